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


def ravl(agent: SacConfig, *, num_critics: int = 10, eta: float = 1.0) -> Method:
    """`agent` with `num_critics` critics (N) and EDAC's diversity term (eta); no model penalty."""
    return Method("ravl", replace(agent, num_critics=num_critics, eta=eta))


@dataclass(frozen=True)
class Ravl(Settings):
    """Settings of RAVL.

    Attributes:
        critics: N: how many.
        eta: weight of the loss that keeps their gradients apart. It lets critics promise ever
            less the longer they train; where episodes never end and most rows are real, 0 did
            better (`ravl_mujoco`).
    """

    num_critics: int = positive(10)
    eta: float = number(1.0, least=0)

    def method(self, agent: SacConfig) -> Method:
        return ravl(agent, num_critics=self.num_critics, eta=self.eta)
