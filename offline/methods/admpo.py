"""ADMPO (Lin et al. 2024, arXiv:2405.17031): MOPO whose world model is an any-step model.

Rewards are lowered by how far predictions from 1 to m steps back are apart. Rollouts begin at rows
of the dataset with the m - 1 steps before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import chosen, coefficient, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Trajectory
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS
from ..agents.sac import SacConfig
from ..data import Transitions
from ..data.transitions import flat, reward_scale
from ..method import AgentConfig, Job
from ..task import Source, Task
from ..worlds.any_step import AnyStepConfig, Recent, ages
from ..worlds.dynamics import Dynamics, Rolled
from .model_based import Given, Learned, Learning, ModelBased


def admpo_agent() -> SacConfig:
    """SAC as ADMPO's authors have it; the temperature is fixed."""
    return SacConfig(
        hidden_dims=(256, 256), actor_lr=1e-4, cosine=True, learn_alpha=False, initial_alpha=0.1
    )


class Dated(NamedTuple):
    """`Transitions` and, in any order, rows that have m - 1 others of their episode before them."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminations: Any
    truncations: Any
    starts: Any


@dataclass(frozen=True, kw_only=True)
class Admpo(ModelBased):
    """ADMPO's settings.

    Attributes:
        world: the any-step model.
        penalty: beta: reward taken off per unit of uncertainty, in the observations' units.
    """

    name: ClassVar[str] = "admpo"
    agent: AgentConfig = chosen(AGENTS, admpo_agent)
    world: AnyStepConfig = AnyStepConfig()  # type: ignore[assignment]
    steps: int = positive(5_000_000)
    penalty: float = coefficient(2.5, least=0)

    def validate(self) -> None:
        if self.rollouts.adaptive:
            expected = "false: the uncertainty is a penalty here and ends no rollout"
            raise ConfigError("rollouts.adaptive", True, expected)
        if found := self.rollouts.keyframe_share:
            expected = "none: rollouts begin with windows of the dataset"
            raise ConfigError("rollouts.keyframe_share", found, expected)

    def rolled_models(self, task: Task, job: Job) -> tuple[Dynamics, PyTree, jax.Array, Source]:
        if job.dynamics is not None:
            expected = "none: admpo rolls the any-step model that it fits"
            raise ConfigError("dynamics", "given", expected)
        scale = reward_scale(task.dataset, self.reward)
        dynamics, worlds = self.world.fit(task, job.seeds, job.seed, job.context, scale)
        return dynamics, worlds, jnp.ones(()), task

    def real_rows(self, transitions: Transitions) -> Dated:
        """The rows, and as many that a rollout may begin at."""
        early = self.world.backtrack - 1
        late = np.flatnonzero(ages(transitions) >= early)
        return Dated(*transitions, np.resize(late, len(transitions.rewards)).astype(np.int32))

    def starts(self, key: jax.Array, real: Any, count: int) -> Recent:
        at = real.starts[jax.random.randint(key, (count,), 0, len(real.starts))]
        window = at[:, None] + jnp.arange(1 - self.world.backtrack, 1)
        return Recent(real.observations[window], real.actions[window[:, :-1]])

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[Transitions, jax.Array]:
        """Rewards `r - beta u`."""
        steps = trajectory.steps
        return flat(trajectory, rewards=steps.rewards - self.penalty * steps.uncertainties)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        rows = Transitions(*given.real[: len(Transitions._fields)])
        return super().learn(state, given._replace(real=rows), **moves)
