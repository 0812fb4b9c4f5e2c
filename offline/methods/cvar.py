"""Worst-case targets: the conditional value at risk over the members of the world model.

MBDP (Zhang et al. 2021, arXiv:2108.01295) drops the best imagined samples. Of an off-policy critic
that changes which rows it learns from and not their targets. Here the tail is taken in the target
of each state and action: the mean over the elites whose Bellman estimates are lowest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, coefficient

from ..agents import AGENTS
from ..agents.sac import SacConfig, SacState
from ..data import Transitions
from ..method import Agent, AgentConfig
from ..worlds.dynamics import Rolled
from .mobile import OnTargets, imagined_values, lowered, mobile_agent
from .model_based import Given, Learned, Learning


def cvar_agent() -> SacConfig:
    """MOBILE's SAC without a floor of the targets."""
    return replace(mobile_agent(), min_target=None)


@dataclass(frozen=True, kw_only=True)
class Cvar(OnTargets):
    """Settings of worst-case targets.

    Attributes:
        dropped: alpha, share of the elites whose targets are highest and do not count. 0 is base;
            near 1 the lowest counts alone.
    """

    name: ClassVar[str] = "cvar"
    agent: AgentConfig = chosen(AGENTS, cvar_agent)
    dropped: float = coefficient(0.2, least=0, below=1)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """SAC's step, with the gap of mean and tail off the targets of imagined rows."""
        key = jax.random.fold_in(given.key, 1)
        estimates = self.estimates(given.agent, state.agent, key, given.imagined, given.world)
        gap = jax.lax.stop_gradient(tail_gap(estimates, self.dropped))
        learned, metrics = lowered(state, given, gap)
        return learned, metrics | {"tail_gap": gap.mean()}

    def estimates(
        self, agent: Agent, state: SacState, key: jax.Array, batch: Transitions, world: Rolled
    ) -> jax.Array:
        """`T_e = mean_j r_ej + gamma (1 - d_ej) min_i Q'_i(s'_ej, a'_ej)`, `[E, B]`."""

        def once(key: jax.Array) -> jax.Array:
            found, value = imagined_values(agent, state, key, batch, world, self.sample_noise)
            alive = 1.0 - found.terminations.astype(jnp.float32)
            return found.rewards + self.agent.discount * alive * value

        return jax.vmap(once)(jax.random.split(key, self.num_samples)).mean(0)


def tail_gap(estimates: jax.Array, dropped: jax.Array | float) -> jax.Array:
    """Mean over members less the mean of the lowest `ceil((1 - alpha) E)`: `[E, B] -> [B]`.

    At least 0, and exactly 0 where nothing is dropped. For normal estimates of deviation sigma it
    is `sigma phi(z) / (1 - alpha)` with `z` the (1 - alpha)-quantile: MOBILE's penalty at that
    coefficient.
    """
    members = len(estimates)
    # Rounding must not keep one more.
    kept = jnp.clip(jnp.ceil((1.0 - dropped) * members - 1e-4), 1, members)
    weight = 1.0 / members - (jnp.arange(members) < kept) / kept
    return (weight[:, None] * jnp.sort(estimates, axis=0)).sum(0)
