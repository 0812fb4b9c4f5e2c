"""SAC with N critics: SAC-N for `eta` 0, EDAC above (An et al. 2021, algorithm 1).

Plain SAC has two. The agent is a bundle of pure functions; its state is a pytree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from ..method import Agent
from .actors import ActorConfig
from .model_free import ModelFree
from .soft import (
    SoftConfig,
    SoftNets,
    density,
    fresh,
    greedy,
    make_nets,
    min_q,
    policy,
    q,
    q_and_slopes,
    sample,
    soft_target,
    soft_value,
    temperature,
    temperature_step,
)

NextValue = Callable[[jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True)
class SacConfig(SoftConfig):
    """SAC-N; by default plain SAC with two critics.

    Attributes:
        target_entropy: what the policy's entropy is driven to. None: minus the number of action
            dimensions; for a flow, the entropy of its whole path when its noise is `actor.log_std`.
        eta: weight of EDAC's term, which keeps the critics' action gradients apart.
        min_target: Bellman targets are not let below it (0 in MOBILE's code, for tasks whose
            returns are positive). None lets them be.
        actor: what its policy is: a tanh-squashed normal, or a flow.
    """

    eta: float = number(0.0, least=0)
    min_target: float | None = None
    actor: ActorConfig = ActorConfig()

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_sac(self, observation_size, action_size, steps if self.cosine else None)

    def validate(self) -> None:
        if self.eta > 0 and self.num_critics < 2:
            raise ConfigError("eta", self.eta, "0, or more with at least 2 critics")


@dataclass(frozen=True)
class EdacConfig(SacConfig):
    """EDAC (and RAVL's critics): N 10, eta 1."""

    num_critics: int = positive(10)
    eta: float = number(1.0, least=0)


class SacState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: PyTree
    critic: PyTree
    target_critic: PyTree
    log_alpha: jax.Array
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_alpha: optax.OptState


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
    # Pairs i != j count twice here, as in the authors' code: (i, j) and (j, i).
    pairs = jnp.square(unit.sum(0)).sum(-1) - jnp.square(unit).sum((0, -1))
    return pairs.mean() / (gradients.shape[0] - 1)


@functools.lru_cache(maxsize=32)
def make_sac(
    config: SacConfig, observation_size: int, action_size: int, steps: int | None = None
) -> Agent:
    """Bind the functions of this module and `soft`. Equal arguments give the same functions.

    `update` takes besides the batch `penalty` (`[B]` or 0), subtracted from the Bellman target, and
    `next_value`, see `bellman_target`.
    """
    check(config)
    nets = make_nets(config, observation_size, action_size, config.actor, steps)
    functions: Any = (init, update, policy, greedy, q)
    return Agent(
        *(functools.partial(function, nets) for function in functions),
        sample=functools.partial(sample, nets),
        nets=nets,
        density=functools.partial(density, nets) if config.actor.kind == "gaussian" else None,
    )


def init(nets: SoftNets, key: jax.Array, scaler: Scaler | None = None) -> SacState:
    """A fresh state; SAC sees observations as they are."""
    # EDAC's and RAVL's published settings take raw observations.
    del scaler
    return SacState(**fresh(nets, key))


def bellman_target(
    nets: SoftNets,
    state: SacState,
    key: jax.Array,
    batch: Transitions,
    penalty: jax.Array | float = 0.0,
    next_value: NextValue | None = None,
) -> jax.Array:
    """`r - penalty + gamma (1 - d) (min_i Q'_i(s', a') - alpha log pi(a' | s'))`, `[B]`.

    SAC-N, An et al. 2021, equation 2; the minimum is over all critics. Without `backup_entropy`
    the logarithm is left out, and with a `min_target` the whole is cut from below.

    Args:
        batch: `[B]` rows.
        penalty: `[B]` or a number.
        next_value: `(next_observations [B, S], value [B]) -> [B]` replaces the soft value that is
            bootstrapped from; None trusts the critics.
    """
    # One action for all critics: the minimum is then over values of the same action.
    value = soft_value(nets, state, key, batch.next_observations)
    if next_value is not None:
        value = next_value(batch.next_observations, value)
    # The penalty comes off the reward, so that terminal rows are penalised too (MOPO).
    target = soft_target(nets, batch._replace(rewards=batch.rewards - penalty), value)
    # Cut last: rewards and penalties are inside the bound (MOBILE's code).
    min_target = nets.config.min_target
    return target if min_target is None else jnp.maximum(target, min_target)


def critic_loss(
    critic: PyTree, nets: SoftNets, batch: Transitions, target: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """`sum_i mean (Q_i(s, a) - target)^2 + eta diversity`; EDAC, An et al. 2021, algorithm 1.

    Returns:
        The loss, with every critic's values `[N, B]` and the mean squared error of one critic.
    """
    config = nets.config
    if config.eta == 0:
        values, spread = q(nets, critic, batch.observations, batch.actions), jnp.zeros(())
    else:
        values, slopes = q_and_slopes(nets, critic, batch.observations, batch.actions)
        spread = diversity_loss(slopes)
    # Summed over critics, not averaged: the learning rate of one critic does not depend on N.
    fit = jnp.square(values - target).mean(1).sum()
    return fit + config.eta * spread, (values, fit / config.num_critics)


def actor_loss(
    actor: PyTree, nets: SoftNets, state: SacState, key: jax.Array, batch: Transitions
) -> tuple[jax.Array, jax.Array]:
    """`mean (alpha log pi(a | s) - min_i Q_i(s, a))` with `a ~ pi`, and the log-densities `[B]`."""
    actions, log_prob = sample(nets, actor, key, batch.observations)
    value = min_q(nets, state.critic, batch.observations, actions)
    # The temperature moves first (as in RAVL's code), on this batch's entropy.
    log_alpha = state.log_alpha + temperature_step(nets, state, log_prob)[0]
    return (temperature(nets, log_alpha) * log_prob - value).mean(), log_prob


def update(
    nets: SoftNets,
    state: SacState,
    key: jax.Array,
    batch: Transitions,
    penalty: jax.Array | float = 0.0,
    next_value: NextValue | None = None,
) -> tuple[SacState, dict[str, jax.Array]]:
    """One gradient step of temperature, policy and critics, in this order.

    Of the metrics `actor_gradient` is the norm of the policy's gradient, which steep flows blow up.
    """
    # Actor before critics, as in EDAC's code: targets use the policy that has just moved.
    actor_key, target_key = jax.random.split(key)
    (_, log_prob), slope = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, nets, state, actor_key, batch
    )
    move, opt_actor = nets.learn_actor.update(slope, state.opt_actor, state.actor)
    actor = optax.apply_updates(state.actor, move)
    step, opt_alpha = temperature_step(nets, state, log_prob)
    log_alpha = state.log_alpha + step
    moved = state._replace(actor=actor, log_alpha=log_alpha)
    target = bellman_target(nets, moved, target_key, batch, penalty, next_value)
    critic, opt_critic, _, (values, fit) = descend(
        nets.learn_critic, critic_loss, state.critic, state.opt_critic, nets, batch, target
    )
    # Targets follow the critics of this very step, as in SAC's code.
    target_critic = optax.incremental_update(critic, state.target_critic, nets.config.tau)
    metrics = {
        "critic_loss": fit,
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
        "target_mean": target.mean(),
        "entropy": -log_prob.mean(),
        "alpha": temperature(nets, log_alpha),
        "actor_gradient": optax.tree.norm(slope),
    }
    state = SacState(actor, critic, target_critic, log_alpha, opt_actor, opt_critic, opt_alpha)
    return state, metrics


@dataclass(frozen=True, kw_only=True)
class Sac(SacConfig, ModelFree):
    """SAC-N on the rows of a dataset."""

    name: ClassVar[str] = "sac"
    steps: int = positive(3_000_000)


@dataclass(frozen=True, kw_only=True)
class Edac(EdacConfig, ModelFree):
    """EDAC on the rows of a dataset."""

    name: ClassVar[str] = "edac"
    steps: int = positive(3_000_000)
