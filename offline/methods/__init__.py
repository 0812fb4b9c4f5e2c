"""Model-based offline methods; each file says how its method differs from the base."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl_rollouts.errors import ConfigError

from ..agents.sac import SacConfig
from .base import base as base
from .mobile import mobile as mobile
from .mopo import mopo as mopo
from .ravl import ravl as ravl
from .scheme import Method

NAMES = ("base", "mopo", "mobile", "ravl")


@dataclass(frozen=True)
class MethodConfig:
    """Strength of each method's own pessimism; a method reads only its own fields."""

    ravl_critics: int = 10
    ravl_diversity: float = 1.0
    mopo_penalty: float = 1.0
    mobile_penalty: float = 1.0
    mobile_samples: int = 10

    def validate(self) -> None:
        for name in NAMES:
            make_method(name, SacConfig(), self)


def make_method(name: str, agent: SacConfig, config: MethodConfig | None = None) -> Method:
    """The method called `name` (one of `NAMES`), every other choice equal.

    Raises:
        ConfigError: an unknown name or a setting out of range.
    """
    c = config or MethodConfig()
    if name == "base":
        return base(agent)
    if name == "mopo":
        return mopo(agent, penalty=c.mopo_penalty)
    if name == "mobile":
        return mobile(agent, penalty=c.mobile_penalty, samples=c.mobile_samples)
    if name == "ravl":
        return ravl(agent, critics=c.ravl_critics, diversity=c.ravl_diversity)
    raise ConfigError("method", name, f"one of {', '.join(NAMES)}")
