"""Recurrent SAC with REDQ-style critics: an agent with a memory for continuous actions.

NEUBAY's agent (Ni et al. 2025, arXiv 2512.04341). Actor and critic each have a memory of their own,
which learns slower than its heads; targets take the lowest of a few critics drawn at random from
many. It learns from tapes (`tapes.sample`) on which real and imagined timesteps have separate
means. `MemoryConfig(kind="none")` makes it the Markov ablation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import (
    check,
    fraction,
    layers,
    number,
    positive,
    step_size,
)
from jaxrl_rollouts.descent import falling, gradient_step
from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..agents.actors import Density, mode, sample_and_log_prob
from ..method import Agent, bound
from .actor_critic import ActorCritic, make_actor_critic
from .memory import MemoryConfig, Parts, parts_optimiser
from .tapes import Tape, masked_mean, weighted_mean


@dataclass(frozen=True)
class RecurrentSacConfig:
    """Hyper-parameters; defaults are the public code's for D4RL locomotion.

    But for `memory_lr`, which is 1e-5 there and then tuned for every dataset.

    Attributes:
        memory, head_dims: sizes of the memory and of the hidden layers after it, of actor and
            critic alike.
        num_critics, subset_size: heads of the critic, and how many of them, drawn anew at every
            step, a target is the lowest of (REDQ's N and M).
        discount: gamma: what a reward one step later counts.
        tau: update rate of the target networks (Polyak averaging).
        memory_lr, head_lr, alpha_lr: learning rates. The actor's two fall to zero along a cosine
            over the training.
        max_grad_norm: largest global norm of the gradient of each memory and each head.
        huber: critics' errors beyond it count linearly, not squared. Where targets scatter more
            widely than that, their median is learned: what happens in fewer than half of the
            cases, such as a fall, barely counts. None squares all.
        learn_alpha: False keeps `initial_alpha` (the paper's choice for Hopper).
        initial_alpha: the entropy's weight at the start.
        target_entropy: None is minus the number of action dimensions.
        real_weight: weight of the mean over real timesteps in every loss.
        density: density of the tanh-squashed normal, `exact` or SAC's `offset`; see
            `actors.log_slope`.
        reward_shift: added to rewards in targets, not to those in observations (-1 on AntMaze).
    """

    memory: MemoryConfig = field(default_factory=MemoryConfig)
    head_dims: tuple[int, ...] = layers((256, 256))
    num_critics: int = positive(10)
    subset_size: int = positive(2)
    discount: float = number(0.99, least=0, below=1)
    tau: float = number(0.005, above=0, most=1)
    memory_lr: float = step_size(3e-6)
    head_lr: float = step_size(1e-4)
    alpha_lr: float = step_size(1e-4)
    max_grad_norm: float = number(1000.0, above=0)
    huber: float | None = number(1.0, above=0)
    learn_alpha: bool = True
    initial_alpha: float = number(0.2, above=0)
    target_entropy: float | None = None
    real_weight: float = fraction(0.05)
    density: Density = "exact"
    reward_shift: float = 0.0

    def validate(self) -> None:
        if self.subset_size > self.num_critics:
            raise ConfigError(
                "subset_size", self.subset_size, f"from 1 to the {self.num_critics} critics"
            )

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """Build the agent; see `make_recurrent_sac`."""
        return make_recurrent_sac(self, observation_size, action_size, steps)


class RecurrentSacState(NamedTuple):
    """Everything the agent learns; leaves of critic heads are `[N, ...]`."""

    actor: Parts
    critic: Parts
    target_critic: Parts
    log_alpha: jax.Array
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_alpha: optax.OptState


class RecurrentNets(NamedTuple):
    """Networks and optimisers of one configuration."""

    config: RecurrentSacConfig
    target_entropy: float
    both: ActorCritic
    learn_actor: optax.GradientTransformation
    learn_critic: optax.GradientTransformation
    learn_alpha: optax.GradientTransformation

    def sample(
        self, key: jax.Array, mean: jax.Array, log_std: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Actions `[..., A]` and their log-densities `[...]`, by reparameterisation."""
        return sample_and_log_prob(key, mean, log_std, self.config.density)


@functools.lru_cache(maxsize=32)
def make_recurrent_sac(
    config: RecurrentSacConfig, observation_size: int, action_size: int, steps: int | None = None
) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    `update` takes a `Tape` for a batch.

    Args:
        steps: gradient steps after which the actor's rates are zero; None keeps them, for an agent
            that only acts.
    """
    check(config)
    both = make_actor_critic(
        config.memory, config.head_dims, config.num_critics, observation_size, action_size
    )
    entropy = config.target_entropy
    rates = config.memory_lr, config.head_lr
    # Critics' rates stay: they have to follow a policy that still moves.
    actors = (falling(rate, steps) for rate in rates)
    nets = RecurrentNets(
        config,
        -float(action_size) if entropy is None else entropy,
        both,
        # Memory and heads are clipped apart: gradients through a long recurrence would else scale
        # down those of the heads.
        parts_optimiser(*actors, clip=config.max_grad_norm),
        parts_optimiser(*rates, config.max_grad_norm),
        optax.adam(config.alpha_lr),
    )
    acts = bound(nets, init=init, update=update, policy=policy, greedy=greedy, q=q)
    return Agent(**acts, memory=both.start, nets=nets)


def init(nets: RecurrentNets, key: jax.Array, scaler: Scaler | None = None) -> RecurrentSacState:
    """A fresh state; timesteps are seen as they are."""
    del scaler
    actor_key, critic_key = jax.random.split(key)
    actor, critic = nets.both.init_actor(actor_key), nets.both.init_critic(critic_key)
    # Its logarithm is learned, so that the temperature stays positive.
    log_alpha = jnp.log(jnp.float32(nets.config.initial_alpha))
    return RecurrentSacState(
        actor,
        critic,
        critic,
        log_alpha,
        nets.learn_actor.init(actor),
        nets.learn_critic.init(critic),
        nets.learn_alpha.init(log_alpha),
    )


def policy(
    nets: RecurrentNets, actor: Parts, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The stochastic policy, one timestep `[B, D]` at a time."""
    normal, memory = nets.both.now(actor, observation, memory)
    return nets.sample(key, *normal)[0], memory


def greedy(
    nets: RecurrentNets, actor: Parts, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Tanh of the mean, one timestep `[B, D]` at a time."""
    del key
    normal, memory = nets.both.now(actor, observation, memory)
    return mode(normal[0]), memory


def q(nets: RecurrentNets, critic: Parts, timesteps: jax.Array, actions: jax.Array) -> jax.Array:
    """Every critic's value of first timesteps `[B, D]` and actions: `[N, B]`."""
    # On a tape where every timestep begins an episode the memory is empty at each of them.
    begins = jnp.ones(timesteps.shape[:1], bool)
    return nets.both.q(critic, timesteps, begins, actions)


def mean_over(nets: RecurrentNets, tape: Tape, values: jax.Array) -> jax.Array:
    """Mean over real timesteps times `real_weight` plus that over imagined ones times the rest."""
    return weighted_mean(values, tape.mask, tape.timesteps.real, nets.config.real_weight)


def bellman_target(
    nets: RecurrentNets, state: RecurrentSacState, normal: tuple, keys: jax.Array, tape: Tape
) -> jax.Array:
    """`r + gamma (1 - d) (min_i Q'_i(h', a') - alpha log pi(a' | h'))` over a subset of critics.

    REDQ (Chen et al. 2021), algorithm 1, with histories h and `subset_size` critics.

    Args:
        normal: `(mean, log_std)` `[L, A]` of the policy on the tape.
        keys: `[2]`, for the actions and for the choice of critics.
        tape: tape of `L` timesteps; the value after timestep t is that of timestep t + 1, and where
            there is none its mask is False.
    """
    timesteps, alpha = tape.timesteps, jnp.exp(state.log_alpha)
    action, log_prob = nets.sample(keys[0], *normal)
    # The same subset for the whole tape: one evaluation of `subset_size` heads in place of all.
    pair = jax.random.permutation(keys[1], nets.config.num_critics)[: nets.config.subset_size]
    drawn = state.target_critic._replace(head=take_members(state.target_critic.head, pair))
    lowest = nets.both.q(drawn, timesteps.observations, tape.starts, action).min(0)
    # Tapes have no next observations: timestep t + 1 is the successor of t. What the roll brings
    # across the end of an episode or of the tape is masked out of every loss.
    following = jnp.roll(lowest - alpha * log_prob, -1)
    # Truncations bootstrap: the threshold cut the rollout, not the task.
    alive = 1.0 - timesteps.terminations.astype(jnp.float32)
    rewards = timesteps.rewards + nets.config.reward_shift
    return jax.lax.stop_gradient(rewards + nets.config.discount * alive * following)


def error_loss(error: jax.Array, huber: float | None) -> jax.Array:
    """`error^2 / 2`; beyond `huber`, unless it is None, as steep as there."""
    return optax.l2_loss(error) if huber is None else optax.huber_loss(error, delta=huber)


def critic_loss(
    critic: Parts, nets: RecurrentNets, tape: Tape, target: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`mean huber(Q_i(h, a) - target)` over critics and weighted timesteps, and values `[N, L]`;
    `(Q_i - target)^2 / 2` without a `huber`."""
    values = nets.both.q(critic, tape.timesteps.observations, tape.starts, tape.timesteps.actions)
    # Bounds the slope of a single far-off target; see `huber` for what that costs.
    each = error_loss(values - target, nets.config.huber)
    return mean_over(nets, tape, each.mean(0)), values


def actor_loss(
    normal: tuple, nets: RecurrentNets, critic: Parts, alpha: jax.Array, key: jax.Array, tape: Tape
) -> tuple[jax.Array, jax.Array]:
    """`mean (alpha log pi(a | h) - mean_i Q_i(h, a))` with `a ~ pi`, and `-log pi` `[L]`."""
    action, log_prob = nets.sample(key, *normal)
    # The mean of all critics, as in REDQ: pessimism is in the targets, and would count twice here.
    value = nets.both.q(critic, tape.timesteps.observations, tape.starts, action).mean(0)
    return mean_over(nets, tape, alpha * log_prob - value), -log_prob


def update(
    nets: RecurrentNets, state: RecurrentSacState, key: jax.Array, tape: Tape
) -> tuple[RecurrentSacState, dict[str, jax.Array]]:
    """One gradient step of critics, policy and temperature, in this order."""
    config, seen = nets.config, tape.timesteps.observations
    next_key, pair_key, actor_key = jax.random.split(key, 3)
    alpha = jnp.exp(state.log_alpha)
    # Targets and the actor's loss need the same actor's normal on the same tape. One pass through
    # the memory serves both, and `to_actor` carries the loss's slope back through it.
    normal, to_actor = jax.vjp(lambda p: nets.both.heads(p, seen, tape.starts), state.actor)
    target = bellman_target(nets, state, normal, jnp.stack([next_key, pair_key]), tape)
    critic, opt_critic, fit, values = gradient_step(
        nets.learn_critic, critic_loss, state.critic, state.opt_critic, nets, tape, target
    )
    # Before the actor's step, as published: the actor then follows the critic just updated.
    target_critic: Any = optax.incremental_update(critic, state.target_critic, config.tau)

    slope, surprise = jax.grad(actor_loss, has_aux=True)(
        normal, nets, critic, alpha, actor_key, tape
    )
    step, opt_actor = nets.learn_actor.update(to_actor(slope)[0], state.opt_actor, state.actor)
    actor: Any = optax.apply_updates(state.actor, step)

    log_alpha, opt_alpha = state.log_alpha, state.opt_alpha
    if config.learn_alpha:
        # The gradient of `exp(log_alpha) (entropy - target)` by hand: the entropy is at hand.
        slope = alpha * mean_over(nets, tape, surprise - nets.target_entropy)
        change, opt_alpha = nets.learn_alpha.update(slope, opt_alpha, log_alpha)
        log_alpha = log_alpha + jnp.asarray(change)

    # Real and imagined values apart: a gap between them is the first sign of overestimation.
    mean, real = values.mean(0), tape.timesteps.real
    metrics = {
        "critic_loss": fit,
        "q_real": masked_mean(mean, tape.mask & real),
        "q_imagined": masked_mean(mean, tape.mask & ~real),
        "entropy": masked_mean(surprise, tape.mask),
        "alpha": jnp.exp(log_alpha),
    }
    state = RecurrentSacState(
        actor, critic, target_critic, log_alpha, opt_actor, opt_critic, opt_alpha
    )
    return state, metrics
