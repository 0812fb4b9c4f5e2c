"""Base: model-based policy optimisation with no pessimism about the model (MBPO offline).

Two critics and their minimum, as in SAC; nothing tells the agent where the model or the critics
cannot be trusted. The control every other method is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..agents.given import Settings
from ..agents.sac import SacConfig
from .scheme import Method


def base(agent: SacConfig) -> Method:
    """`agent` with two critics and no diversity term."""
    return Method("base", replace(agent, num_critics=2, eta=0.0))


@dataclass(frozen=True)
class Base(Settings):
    """No settings of its own."""

    def method(self, agent: SacConfig) -> Method:
        return base(agent)
