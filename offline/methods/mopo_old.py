"""MOPO (Yu et al. 2020): rewards of imagined steps are lowered where the model is unsure.

The uncertainty is the largest norm of a member's predicted standard deviation, over all members
and not the elites only, as in the public codes. It vanishes with the model's error, and with it
the only protection against the edge of reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.errors import ConfigError

from ..agents.given import Settings
from ..agents.sac import SacConfig
from ..worlds.dynamics import Consulted
from .base import base
from .scheme import Method


def mopo(
    agent: SacConfig,
    *,
    penalty: float = 1.0,
    unit: Literal["raw", "mean"] = "raw",
    penalty_members: Consulted = "members",
) -> Method:
    """Base with rewards `r - penalty * u` (lambda in the authors' code: 0.5, 1, 2 or 5).

    How large u is depends on the world model's targets (2.4 times larger on HalfCheetah with
    standardised ones, which are calibrated): `unit="mean"` divides it by its mean over the data.

    Raises:
        ConfigError: a negative penalty.
    """
    if penalty < 0:
        raise ConfigError("penalty", penalty, "at least 0")
    return base(agent)._replace(
        name="mopo",
        coefficient=penalty,
        disagreement=max_aleatoric,
        penalty_members=penalty_members,
        unit=unit,
        penalise_rewards=True,
    )


@dataclass(frozen=True)
class Mopo(Settings):
    """Settings of MOPO.

    Attributes:
        penalty: lambda: how much the model's uncertainty takes from a reward.
        unit: of the uncertainty: as the model reports it (`raw`, the papers'), or its `mean` over
            the dataset.
        penalty_members: whose predictions it is the largest of: all `members`', or the `elites`'.
    """

    penalty: float = number(1.0, least=0)
    unit: Literal["raw", "mean"] = "raw"
    penalty_members: Consulted = "members"

    def method(self, agent: SacConfig) -> Method:
        return mopo(
            agent, penalty=self.penalty, unit=self.unit, penalty_members=self.penalty_members
        )
