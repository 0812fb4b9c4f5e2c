"""COMBO (Yu et al. 2021, arXiv:2102.08363): critics are low on imagined state-action pairs and high
on those of the dataset; no estimate of uncertainty.

CQL's term with two distributions: the soft maximum over actions is pushed down at the states of
rho, values are pushed up at real rows only. As in OfflineRL-Kit rho are the real and the imagined
states of a batch, the squared error has no factor 1/2, and the soft maximum is a sum over drawn
actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, coefficient, fraction, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS, cql, soft
from ..agents.sac import SacConfig, bellman_target
from ..agents.soft import SoftNets
from ..data import Transitions
from ..method import AgentConfig
from ..worlds.fit import WorldModelConfig
from .model_based import Given, Learned, Learning, ModelBased


def combo_agent() -> SacConfig:
    """SAC as OfflineRL-Kit has it for COMBO."""
    return SacConfig(actor_lr=1e-4, alpha_lr=1e-4, cosine=True, backup_entropy=False)


@dataclass(frozen=True, kw_only=True)
class Combo(ModelBased):
    """COMBO's settings; its agent is `sac` or `edac` with a normal policy.

    Attributes:
        weight: beta, of the conservative term.
        num_actions: actions sampled per row from each of three: uniform, policy at s and at s'.
        rho: the states of its penalty: of the whole batch, `mixed`, or imagined ones alone,
            `model`, as in the paper.
    """

    name: ClassVar[str] = "combo"
    agent: AgentConfig = chosen(AGENTS, combo_agent)
    world: WorldModelConfig = WorldModelConfig(targets="raw")
    steps: int = positive(1_000_000)
    weight: float = coefficient(5.0, least=0)
    num_actions: int = positive(10)
    real_ratio: float = fraction(0.5)
    rho: Literal["mixed", "model"] = "mixed"

    def validate(self) -> None:
        if self.rho == "model" and self.real_ratio == 1:
            raise ConfigError("rho", "model", "mixed where real_ratio is 1: nothing is imagined")
        if not isinstance(self.agent, SacConfig) or self.agent.actor.kind != "gaussian":
            expected = "sac or edac with a gaussian actor, whose density the soft maximum takes"
            raise ConfigError("agent", type(self.agent).__name__, expected)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """One step of temperature and policy (SAC's), then of the critics, algorithm 1."""
        nets, sac, batch = given.agent.nets, state.agent, given.batch
        actor_key, target_key, draw_key = jax.random.split(given.key, 3)
        sac, acted = soft.actor_step(nets, sac, actor_key, batch)
        target = bellman_target(nets, sac, target_key, batch)
        low = batch if self.rho == "mixed" else given.imagined
        drawn = cql.candidates(nets, sac.actor, draw_key, low, self.num_actions)
        more = low, jax.lax.stop_gradient(drawn), given.real, self.weight
        sac, learned = soft.critic_step(nets, sac, critic_loss, batch, target, *more)
        return state._replace(agent=sac), {**acted, **learned}


def critic_loss(
    critic: PyTree,
    nets: SoftNets,
    batch: Transitions,
    target: jax.Array,
    low: Transitions,
    drawn: tuple,
    real: Transitions,
    weight: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`sum_i mean_b (Q_i - target)^2 + beta (mean_rho log sum_a exp Q_i - mean_D Q_i)`; equation 2.

    Args:
        batch: `[B]` real and imagined rows.
        target: `[B]`.
        low: rho's rows.
        drawn: actions in their states, of `cql.candidates`.
    """
    values = soft.q(nets, critic, batch.observations, batch.actions)
    fit = jnp.square(values - target).mean(1).sum()
    highest = cql.soft_maximum(nets, critic, low, drawn)
    gap = highest.mean(1) - soft.q(nets, critic, real.observations, real.actions).mean(1)
    metrics = {
        "critic_loss": fit / len(values),
        "q_mean": values.mean(),
        "conservative_gap": gap.mean(),
    }
    return fit + (weight * gap).sum(), metrics
