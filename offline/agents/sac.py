"""SAC with N critics: SAC-N for `diversity` 0, EDAC above (An et al. 2021, algorithm 1).

Plain SAC is `critics=2`. The agent is a bundle of pure functions; its state is a pytree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import discount_and_polyak
from jaxrl_rollouts.ensemble import ensemble
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, from_linen, uniform
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from .tanh_gaussian import mode, sample_and_log_prob

NextValue = Callable[[jax.Array, jax.Array], jax.Array]
LOG_STD_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class SacConfig:
    """Hyper-parameters of SAC-N/EDAC; defaults are RAVL's (N 10, eta 1)."""

    critics: int = 10
    diversity: float = 1.0
    hidden: tuple[int, ...] = (256, 256, 256)
    discount: float = 0.99
    polyak: float = 0.005
    actor_rate: float = 3e-4
    critic_rate: float = 3e-4
    temperature_rate: float = 3e-4
    initial_alpha: float = 1.0
    target_entropy: float | None = None  # None: minus the number of action dimensions

    def validate(self) -> None:
        if self.critics < 1:
            raise ConfigError("critics", self.critics, "at least 1")
        if self.diversity < 0 or (self.diversity > 0 and self.critics < 2):
            raise ConfigError("diversity", self.diversity, "0, or more with at least 2 critics")
        discount_and_polyak(self)
        if self.initial_alpha <= 0:
            raise ConfigError("initial_alpha", self.initial_alpha, "above 0")
        if not self.hidden:
            raise ConfigError("hidden", self.hidden, "at least one layer")


class SacState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: PyTree
    critic: PyTree
    target_critic: PyTree
    log_alpha: jax.Array
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_alpha: optax.OptState


class Sac(NamedTuple):
    """Functions of one agent; see `make_sac`.

    Attributes:
        init: `key -> SacState`.
        update: `(state, key, batch, penalty, next_value) -> (state, metrics)`; `penalty` (`[B]`
            or 0) is subtracted from the Bellman target, `next_value` (a function of the next
            observations `[B, S]` and the target critics' soft value of them `[B]`, or None)
            replaces the value the target bootstraps from.
        policy: stochastic, `(actor, key, observation, memory) -> (action, memory)`.
        greedy: the same signature, tanh of the mean.
        q: `(critic, observations, actions) -> [N, B]`.
        draw: `(actor, key, observations) -> (actions [B, A], log_prob [B])`.
    """

    init: Callable[[jax.Array], SacState]
    update: Callable[..., tuple[SacState, dict[str, jax.Array]]]
    policy: Callable[..., tuple[jax.Array, PyTree]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    q: Callable[[PyTree, jax.Array, jax.Array], jax.Array]
    draw: Callable[[PyTree, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def diversity_loss(gradients: jax.Array) -> jax.Array:
    """EDAC's term: mean over rows of the sum over critic pairs of cos(grad_a Q_i, grad_a Q_j),
    over N - 1.

    Args:
        gradients: `[N, B, A]` action gradients. The sum over pairs i != j is taken as
            |sum g|^2 - sum |g|^2, so it costs O(N).
    """
    squared = jnp.square(gradients).sum(-1, keepdims=True)
    # A critic that ignores the action has gradient zero, where the norm has no derivative.
    flat = squared == 0
    unit = jnp.where(flat, 0.0, gradients / (jnp.sqrt(jnp.where(flat, 1.0, squared)) + 1e-10))
    pairs = jnp.square(unit.sum(0)).sum(-1) - jnp.square(unit).sum((0, -1))
    return pairs.mean() / (gradients.shape[0] - 1)


@functools.lru_cache(maxsize=32)
def make_sac(config: SacConfig, observation_size: int, action_size: int) -> Sac:
    """Build the agent's functions. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    a = jax.ShapeDtypeStruct((1, action_size), jnp.float32)
    bias = jax.nn.initializers.constant(0.1)
    actor_net = from_linen(
        MLP(config.hidden, (action_size, action_size), bias_init=bias,
            head_init=uniform(1e-3), head_bias_init=uniform(1e-3)), s,
    )  # fmt: skip
    critic_net = from_linen(
        MLP(config.hidden, (1,), bias_init=bias,
            head_init=uniform(3e-3), head_bias_init=uniform(3e-3)), s, a,
    )  # fmt: skip
    critics = ensemble(critic_net, config.critics)
    # One action per critic, so that each critic's own action gradient comes from one pass.
    own_action_q = jax.vmap(critic_net.apply, in_axes=(0, None, 0))
    entropy = -float(action_size) if config.target_entropy is None else config.target_entropy
    optimise_actor = optax.adam(config.actor_rate)
    optimise_critic = optax.adam(config.critic_rate)
    optimise_alpha = optax.adam(config.temperature_rate)

    def heads(actor: PyTree, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = actor_net.apply(actor, observations)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def draw(actor: PyTree, key: jax.Array, observations: jax.Array) -> tuple:
        return sample_and_log_prob(key, *heads(actor, observations))

    def q(critic: PyTree, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return critics.apply_all(critic, observations, actions)[..., 0]

    def init(key: jax.Array) -> SacState:
        actor_key, critic_key = jax.random.split(key)
        actor, critic = actor_net.init(actor_key), critics.init(critic_key)
        log_alpha = jnp.log(jnp.float32(config.initial_alpha))
        return SacState(
            actor, critic, critic, log_alpha,
            optimise_actor.init(actor), optimise_critic.init(critic),
            optimise_alpha.init(log_alpha),
        )  # fmt: skip

    def critic_loss(
        critic: PyTree, batch: Transitions, target: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        if config.diversity == 0:
            values, spread = q(critic, batch.observations, batch.actions), jnp.zeros(())
        else:
            own_actions = jnp.broadcast_to(batch.actions, (config.critics, *batch.actions.shape))
            values, pull = jax.vjp(
                lambda own: own_action_q(critic, batch.observations, own)[..., 0], own_actions
            )
            spread = diversity_loss(pull(jnp.ones_like(values))[0])
        fit = jnp.square(values - target).mean(1).sum()
        return fit + config.diversity * spread, (values, fit / config.critics)

    def update(
        state: SacState,
        key: jax.Array,
        batch: Transitions,
        penalty: jax.Array | float = 0.0,
        next_value: NextValue | None = None,
    ) -> tuple[SacState, dict[str, jax.Array]]:
        actor_key, target_key = jax.random.split(key)

        def actor_loss(actor: PyTree) -> tuple[jax.Array, jax.Array]:
            actions, log_prob = draw(actor, actor_key, batch.observations)
            value = q(state.critic, batch.observations, actions).min(0)
            # The temperature moves first (authors' order), on this batch's entropy.
            moved = state.log_alpha + alpha_step(log_prob)[0]
            return (jnp.exp(moved) * log_prob - value).mean(), log_prob

        def alpha_step(log_prob: jax.Array) -> tuple:
            gradient = -jax.lax.stop_gradient(log_prob + entropy).mean()
            return optimise_alpha.update(gradient, state.opt_alpha, state.log_alpha)

        (_, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.actor)
        step, opt_alpha = alpha_step(log_prob)
        log_alpha = state.log_alpha + step
        step, opt_actor = optimise_actor.update(gradient, state.opt_actor, state.actor)
        actor = optax.apply_updates(state.actor, step)

        next_actions, next_log_prob = draw(actor, target_key, batch.next_observations)
        lowest = q(state.target_critic, batch.next_observations, next_actions).min(0)
        soft = lowest - jnp.exp(log_alpha) * next_log_prob
        if next_value is not None:
            soft = next_value(batch.next_observations, soft)
        alive = 1.0 - batch.terminations.astype(jnp.float32)
        target = jax.lax.stop_gradient(batch.rewards - penalty + config.discount * alive * soft)
        (_, (values, fit)), gradient = jax.value_and_grad(critic_loss, has_aux=True)(
            state.critic, batch, target
        )
        step, opt_critic = optimise_critic.update(gradient, state.opt_critic, state.critic)
        critic = optax.apply_updates(state.critic, step)
        target_critic = optax.incremental_update(critic, state.target_critic, config.polyak)
        metrics = {
            "critic_loss": fit,
            "q_mean": values.mean(),
            "q_spread": values.std(0).mean(),
            "target_mean": target.mean(),
            "entropy": -log_prob.mean(),
            "alpha": jnp.exp(log_alpha),
        }
        state = SacState(actor, critic, target_critic, log_alpha, opt_actor, opt_critic, opt_alpha)
        return state, metrics

    def policy(actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        return draw(actor, key, observation)[0], memory

    def greedy(actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        del key
        return mode(heads(actor, observation)[0]), memory

    return Sac(init, update, policy, greedy, q, draw)
