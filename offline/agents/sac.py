"""SAC with N critics: SAC-N for `eta` 0, EDAC above (An et al. 2021, algorithm 1).

Plain SAC has two. The agent is a bundle of pure functions; its state is a pytree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from ..method import Agent, bound
from .actors import ActorConfig
from .critics import bootstrapped
from .model_free import ModelFree
from .soft import (
    SoftConfig,
    SoftNets,
    actor_step,
    critic_step,
    density,
    greedy,
    initial_state,
    make_nets,
    policy,
    q,
    q_and_slopes,
    sample,
    soft_value,
)

NextValue = Callable[[jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True)
class SacConfig(SoftConfig):
    """SAC-N; by default plain SAC with two critics.

    Attributes:
        target_entropy: target of the policy's entropy. None: minus the number of action
            dimensions; for a flow, the entropy of its whole path when its noise is `actor.log_std`.
        eta: weight of EDAC's diversity term on the critics' action gradients.
        min_target: lower bound of Bellman targets (0 in MOBILE's code, for tasks whose
            returns are positive). None: no bound.
        actor: kind of policy: a tanh-squashed normal, or a flow.
    """

    eta: float = number(0.0, least=0)
    min_target: float | None = None
    actor: ActorConfig = ActorConfig()

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_sac(self, observation_size, action_size, steps if self.cosine else None)

    def validate(self) -> None:
        if (self.target_critics or 1) > self.num_critics:
            raise ConfigError("target_critics", self.target_critics, "at most num_critics")
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
    acts = {"policy": policy, "greedy": greedy, "q": q, "sample": sample}
    if config.actor.kind == "gaussian":
        acts["density"] = density
    return Agent(**bound(nets, init=init, update=update, **acts), nets=nets)


def init(nets: SoftNets, key: jax.Array, scaler: Scaler | None = None) -> SacState:
    """A fresh state; SAC sees observations as they are."""
    # EDAC's and RAVL's published settings take raw observations.
    del scaler
    return SacState(**initial_state(nets, key))


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
            bootstrapped from; None: no bound.
    """
    # One action for all critics: the minimum is then over values of the same action.
    value = soft_value(nets, state, key, batch.next_observations)
    if next_value is not None:
        value = next_value(batch.next_observations, value)
    # The penalty comes off the reward, so that terminal rows are penalised too (MOPO).
    rewarded = batch._replace(rewards=batch.rewards - penalty)
    target = bootstrapped(rewarded, nets.config.discount, value)
    # Cut last: rewards and penalties are inside the bound (MOBILE's code).
    min_target = nets.config.min_target
    return target if min_target is None else jnp.maximum(target, min_target)


def critic_loss(
    critic: PyTree, nets: SoftNets, batch: Transitions, target: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`sum_i mean (Q_i(s, a) - target)^2 + eta diversity`; EDAC, An et al. 2021, algorithm 1.

    Returns:
        The loss, and metrics.
    """
    config = nets.config
    # Slopes cost another backward pass, so they are computed with EDAC's term only.
    if config.eta == 0:
        values, spread = q(nets, critic, batch.observations, batch.actions), jnp.zeros(())
    else:
        values, slopes = q_and_slopes(nets, critic, batch.observations, batch.actions)
        spread = diversity_loss(slopes)
    # Summed over critics, not averaged: the learning rate of one critic does not depend on N.
    fit = jnp.square(values - target).mean(1).sum()
    return fit + config.eta * spread, {
        "critic_loss": fit / config.num_critics,
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
    }


def update(
    nets: SoftNets,
    state: SacState,
    key: jax.Array,
    batch: Transitions,
    penalty: jax.Array | float = 0.0,
    next_value: NextValue | None = None,
) -> tuple[SacState, dict[str, jax.Array]]:
    """One gradient step of temperature, policy and critics, in this order."""
    # Actor before critics, as in EDAC's code: targets use the policy that has just moved.
    actor_key, target_key = jax.random.split(key)
    state, acted = actor_step(nets, state, actor_key, batch)
    # One target for all critics: they differ by their initial weights alone.
    target = bellman_target(nets, state, target_key, batch, penalty, next_value)
    state, learned = critic_step(nets, state, critic_loss, batch, target)
    return state, learned | acted


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
