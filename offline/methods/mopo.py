"""MOPO (Yu et al. 2020, arXiv:2005.13239): rewards of imagined steps are lowered where the model is
unsure.

The uncertainty is the largest norm of a member's predicted standard deviation, over all members
and not the elites only, as in the public codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax

from jaxrl_rollouts.configs import coefficient
from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.rollouts import Trajectory

from ..data import Transitions
from ..worlds.dynamics import Consulted
from .model_based import ModelBased, Rolled, Uncertainty, flat


@dataclass(frozen=True, kw_only=True)
class Mopo(ModelBased):
    """MOPO's settings.

    Attributes:
        penalty: lambda, what a unit of uncertainty takes from a reward.
        unit: of the uncertainty: as the model reports it (`raw`, the paper's), or its `mean` over
            the dataset, which does not depend on how targets are scaled.
        members: whose predictions it is the largest of: all `members`', or the `elites`'.
    """

    name: ClassVar[str] = "mopo"
    penalty: float = coefficient(1.0, least=0)
    unit: Literal["raw", "mean"] = "raw"
    members: Consulted = "members"

    def uncertainty(self) -> Uncertainty:
        return Uncertainty(max_aleatoric, self.members, measured=self.unit == "mean")

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[Transitions, jax.Array]:
        """Rewards `r - lambda u`, equation 9."""
        steps, unit = trajectory.steps, world.typical if self.unit == "mean" else 1.0
        return flat(trajectory, rewards=steps.rewards - self.penalty / unit * steps.uncertainties)
