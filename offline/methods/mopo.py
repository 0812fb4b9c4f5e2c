"""MOPO (Yu et al. 2020, arXiv:2005.13239): rewards of imagined steps are lowered where the model is
unsure.

The uncertainty is the largest norm of a member's predicted standard deviation, over all members
and not the elites only, as in the public codes. It vanishes with the model's error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax

from jaxrl_rollouts.configs import chosen, coefficient
from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Trajectory

from ..agents import AGENTS
from ..agents.sac import SacConfig
from ..data import Transitions
from ..data.transitions import flat
from ..method import AgentConfig
from ..worlds.dynamics import Consulted, Rolled, Uncertainty
from ..worlds.fit import WorldModelConfig
from .model_based import ModelBased


def kit_agent() -> SacConfig:
    """SAC as OfflineRL-Kit has it for MOPO and MOBILE."""
    return SacConfig(
        hidden_dims=(256, 256), actor_lr=1e-4, alpha_lr=1e-4, cosine=True, max_alpha=1.0
    )


@dataclass(frozen=True, kw_only=True)
class Mopo(ModelBased):
    """MOPO's settings.

    Attributes:
        penalty: lambda: reward penalty per unit of uncertainty (0.5 to 5 in OfflineRL-Kit).
        penalty_scale: unit of the uncertainty: the model's (`raw`, the paper's), or its
            `mean` over the dataset, which is independent of the scaling of targets.
        penalty_members: the maximum is over all `members`, or over the `elites`.
    """

    name: ClassVar[str] = "mopo"
    agent: AgentConfig = chosen(AGENTS, kit_agent)
    world: WorldModelConfig = WorldModelConfig(targets="raw")
    penalty: float = coefficient(1.0, least=0)
    penalty_scale: Literal["raw", "mean"] = "raw"
    penalty_members: Consulted = "members"

    def validate(self) -> None:
        if self.world.variance != "row":
            expected = f"row: {self.name} penalises the predicted deviation, the same for every row"
            raise ConfigError("world.variance", self.world.variance, expected)

    def uncertainty(self) -> Uncertainty:
        measured = self.penalty_scale == "mean"
        return Uncertainty(max_aleatoric, self.penalty_members, measured=measured)

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[Transitions, jax.Array]:
        """Rewards `r - lambda u`, equation 9."""
        steps, unit = trajectory.steps, world.typical if self.penalty_scale == "mean" else 1.0
        return flat(trajectory, rewards=steps.rewards - self.penalty / unit * steps.uncertainties)
