"""Recurrent SAC with REDQ-style critics: an agent with a memory for continuous actions.

NEUBAY's agent (Ni et al. 2025, arXiv 2512.04341). Actor and critic each
have a memory of their own, learning slower than their heads; targets take the lowest of a few
critics drawn at random from many. It learns from tapes (`tapes.sample`) on which real and imagined
tokens have separate means. `MemoryConfig(kind="none")` makes it the Markov ablation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import at_least_one, discount_and_polyak
from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agents.tanh_gaussian import mode, sample_and_log_prob
from ..parts import Parts, follow, parts_optimiser
from .actor_critic import ActorCritic, make_actor_critic
from .memory import MemoryConfig
from .tapes import Tape, masked_mean, weighted_mean


@dataclass(frozen=True)
class RecurrentSacConfig:
    """Hyper-parameters; defaults are the paper's for D4RL locomotion.

    Attributes:
        memory, head: sizes of memory and of the hidden layers after it, of actor and critic alike.
        critics, drawn: heads of the critic, and how many of them a target is the lowest of.
        memory_rate, head_rate, temperature_rate: learning rates. The actor's two fall to zero
            along a cosine over `steps`.
        clip: largest global norm of the gradient of each memory and each head.
        learn_alpha: False keeps `initial_alpha` (the paper's choice for Hopper).
        target_entropy: None is minus the number of action dimensions.
        real_weight: of the mean over real tokens in every loss.
    """

    memory: MemoryConfig = field(default_factory=MemoryConfig)
    head: tuple[int, ...] = (256, 256)
    critics: int = 10
    drawn: int = 2
    discount: float = 0.99
    polyak: float = 0.005
    memory_rate: float = 3e-6
    head_rate: float = 1e-4
    temperature_rate: float = 1e-4
    clip: float = 1000.0
    steps: int = 2_000_000
    learn_alpha: bool = True
    initial_alpha: float = 0.2
    target_entropy: float | None = None
    real_weight: float = 0.05

    def validate(self) -> None:
        at_least_one(self, "critics", "steps")
        if not 1 <= self.drawn <= self.critics:
            raise ConfigError("drawn", self.drawn, f"from 1 to the {self.critics} critics")
        if not self.head:
            raise ConfigError("head", self.head, "at least one layer")
        discount_and_polyak(self)
        if not 0 <= self.real_weight <= 1:
            raise ConfigError("real_weight", self.real_weight, "from 0 to 1")
        for name in ("initial_alpha", "clip"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "above 0")


class RecurrentSacState(NamedTuple):
    """Everything the agent learns; leaves of critic heads are `[N, ...]`."""

    actor: Parts
    critic: Parts
    target_critic: Parts
    log_alpha: jax.Array
    opt_actor: Parts
    opt_critic: Parts
    opt_alpha: optax.OptState


class RecurrentSac(NamedTuple):
    """Functions of one agent; see `make_recurrent_sac`.

    Attributes:
        init: `key -> RecurrentSacState`.
        update: one gradient step, `(state, key, tape) -> (state, metrics)`.
        policy: stochastic, `(actor, key, observation [B, D], memory) -> (action, memory)`.
        greedy: the same signature, tanh of the mean.
        networks: actor and critics; its `start` is the policies' memory.
    """

    init: Callable[[jax.Array], RecurrentSacState]
    update: Callable[..., tuple[RecurrentSacState, dict[str, jax.Array]]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    networks: ActorCritic


@functools.lru_cache(maxsize=32)
def make_recurrent_sac(
    config: RecurrentSacConfig, observation_size: int, action_size: int
) -> RecurrentSac:
    """Build the agent's functions. Equal arguments give the same functions.

    Args:
        config: sizes and rates.
        observation_size: `D` of a token: state, last action and last reward, say.
        action_size: `A`.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    nets = make_actor_critic(
        config.memory, config.head, config.critics, observation_size, action_size
    )
    entropy_wanted = -float(action_size)
    if config.target_entropy is not None:
        entropy_wanted = config.target_entropy

    learn_actor = parts_optimiser(
        optax.cosine_decay_schedule(config.memory_rate, config.steps),
        optax.cosine_decay_schedule(config.head_rate, config.steps),
        config.clip,
    )
    learn_critic = parts_optimiser(config.memory_rate, config.head_rate, config.clip)
    learn_alpha = optax.adam(config.temperature_rate)

    def init(key: jax.Array) -> RecurrentSacState:
        actor_key, critic_key = jax.random.split(key)
        actor, critic = nets.init_actor(actor_key), nets.init_critic(critic_key)
        log_alpha = jnp.log(jnp.float32(config.initial_alpha))
        return RecurrentSacState(
            actor, critic, critic, log_alpha, learn_actor.init(actor),
            learn_critic.init(critic), learn_alpha.init(log_alpha),
        )  # fmt: skip

    def update(
        state: RecurrentSacState, key: jax.Array, tape: Tape
    ) -> tuple[RecurrentSacState, dict[str, jax.Array]]:
        next_key, pair_key, actor_key = jax.random.split(key, 3)
        tokens, starts = tape.tokens, tape.starts
        seen = tokens.observations
        alpha = jnp.exp(state.log_alpha)

        def mixed(values: jax.Array) -> jax.Array:
            return weighted_mean(values, tape.mask, tokens.real, config.real_weight)

        # Targets and the actor's loss ask the same actor about the same tape: once is enough.
        normal, to_actor = jax.vjp(lambda p: nets.heads(p, seen, starts), state.actor)
        # The value after token t is that of token t + 1; where there is none the mask is False.
        action, log_prob = sample_and_log_prob(next_key, *normal)
        pair = jax.random.permutation(pair_key, config.critics)[: config.drawn]
        drawn = state.target_critic._replace(head=take_members(state.target_critic.head, pair))
        lowest = nets.q(drawn, seen, starts, action).min(0)
        following = jnp.roll(lowest - alpha * log_prob, -1)
        alive = 1.0 - tokens.terminations.astype(jnp.float32)
        target = jax.lax.stop_gradient(tokens.rewards + config.discount * alive * following)

        def critic_loss(critic: Parts) -> tuple[jax.Array, jax.Array]:
            values = nets.q(critic, seen, starts, tokens.actions)
            return mixed(optax.huber_loss(values, target[None], delta=1.0).mean(0)), values

        (fit, values), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
        critic, opt_critic = learn_critic.step(state.critic, gradient, state.opt_critic)
        target_critic = follow(critic, state.target_critic, config.polyak)

        def actor_loss(normal: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            action, log_prob = sample_and_log_prob(actor_key, *normal)
            value = nets.q(critic, seen, starts, action).mean(0)
            return mixed(alpha * log_prob - value), -log_prob

        slope, surprise = jax.grad(actor_loss, has_aux=True)(normal)
        (gradient,) = to_actor(slope)
        actor, opt_actor = learn_actor.step(state.actor, gradient, state.opt_actor)

        log_alpha, opt_alpha = state.log_alpha, state.opt_alpha
        if config.learn_alpha:  # of exp(log alpha) (entropy - wanted)
            slope = alpha * mixed(surprise - entropy_wanted)
            change, opt_alpha = learn_alpha.update(slope, opt_alpha, log_alpha)
            log_alpha = log_alpha + jnp.asarray(change)

        mean = values.mean(0)
        metrics = {
            "critic_loss": fit,
            "q_real": masked_mean(mean, tape.mask & tokens.real),
            "q_imagined": masked_mean(mean, tape.mask & ~tokens.real),
            "entropy": masked_mean(surprise, tape.mask),
            "alpha": jnp.exp(log_alpha),
        }
        state = RecurrentSacState(
            actor, critic, target_critic, log_alpha, opt_actor, opt_critic, opt_alpha
        )
        return state, metrics

    def policy(actor: Parts, key: jax.Array, observation: jax.Array, carry: PyTree) -> tuple:
        raw, carry = nets.now(actor, observation, carry)
        return sample_and_log_prob(key, *raw)[0], carry

    def greedy(actor: Parts, key: jax.Array, observation: jax.Array, carry: PyTree) -> tuple:
        del key
        raw, carry = nets.now(actor, observation, carry)
        return mode(raw[0]), carry

    return RecurrentSac(init, update, policy, greedy, nets)
