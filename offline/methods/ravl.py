"""RAVL (Sims et al. 2024): the edge of reach is seen by the critics, not by the model.

States that can be reached in exactly k steps are bootstrapped from but never updated. A diverse
ensemble of critics disagrees there, so the minimum over it is low where no data correct it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxrl_rollouts.configs import number, positive

from ..agents.given import Settings
from ..agents.sac import SacConfig
from .scheme import Method


def ravl(agent: SacConfig, *, critics: int = 10, diversity: float = 1.0) -> Method:
    """`agent` with `critics` critics (N) and EDAC's diversity term (eta); no model penalty."""
    return Method("ravl", replace(agent, critics=critics, diversity=diversity))


@dataclass(frozen=True)
class Ravl(Settings):
    """Settings of RAVL.

    Attributes:
        critics: N: how many.
        diversity: eta, of the loss that keeps their gradients apart. It lets critics promise ever
            less the longer they train; where episodes never end and most rows are real, 0 did
            better (`ravl_mujoco`).
    """

    critics: int = positive(10)
    diversity: float = number(1.0, least=0)

    def method(self, agent: SacConfig) -> Method:
        return ravl(agent, critics=self.critics, diversity=self.diversity)
