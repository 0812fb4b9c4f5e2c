"""MOPO (Yu et al. 2020): rewards of imagined steps are lowered where the model is unsure.

The uncertainty is the largest norm of a member's predicted standard deviation. It vanishes with
the model's error, and with it the only protection against the edge of reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.errors import ConfigError

from ..agents.given import Settings
from ..agents.sac import SacConfig
from .base import base
from .scheme import Method


def mopo(agent: SacConfig, *, penalty: float = 1.0) -> Method:
    """Base with rewards `r - penalty * u` (lambda in the paper: 0.5, 1, 2.5 or 5).

    Raises:
        ConfigError: a negative penalty.
    """
    if penalty < 0:
        raise ConfigError("penalty", penalty, "at least 0")
    return base(agent)._replace(
        name="mopo", coefficient=penalty, disagreement=max_aleatoric, penalise_rewards=True
    )


@dataclass(frozen=True)
class Mopo(Settings):
    """Settings of MOPO.

    Attributes:
        penalty: lambda: how much the model's uncertainty takes from a reward.
    """

    penalty: float = number(1.0, least=0)

    def method(self, agent: SacConfig) -> Method:
        return mopo(agent, penalty=self.penalty)
