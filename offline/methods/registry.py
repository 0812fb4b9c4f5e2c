"""Every model-based method by its name.

Another package brings its own by a frozen dataclass of settings with `method(agent: SacConfig) ->
Method`, announced in the entry-point group `jaxrl_rollouts.methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any

from jaxrl_rollouts.configs import check, unknown, within
from jaxrl_rollouts.plugins import announced

from ..agents.sac import SacConfig
from .base import Base, base
from .mobile import Mobile, mobile
from .mopo_old import Mopo, mopo
from .ravl import Ravl, ravl
from .scheme import Method

__all__ = [
    "GROUP",
    "METHODS",
    "NAMES",
    "Base",
    "Method",
    "MethodConfig",
    "Mobile",
    "Mopo",
    "Ravl",
    "base",
    "make_method",
    "mobile",
    "mopo",
    "ravl",
]
GROUP = "jaxrl_rollouts.methods"

METHODS: Mapping[str, type] = {
    "base": Base,
    "mopo": Mopo,
    "mobile": Mobile,
    "ravl": Ravl,
    **announced(GROUP, "method"),
}
NAMES = tuple(METHODS)


def _validate(config: Any) -> None:
    for name in NAMES:
        with within(name):
            make_method(name, SacConfig(), config)


# One field for each method's settings, so that all of them are options of the command line.
if TYPE_CHECKING:

    class MethodConfig(Any):
        """Settings of single methods."""

else:
    MethodConfig = make_dataclass(
        "MethodConfig",
        [(name, kind, field(default_factory=kind)) for name, kind in METHODS.items()],
        namespace={"__doc__": "Settings of single methods.", "validate": _validate},
        frozen=True,
    )


def make_method(name: str, agent: SacConfig, config: Any = None) -> Method:
    """The method called `name` (one of `NAMES`), every other choice equal.

    Args:
        name: of the method.
        agent: its actor-critic.
        config: a `MethodConfig`; None takes the papers' values.

    Raises:
        ConfigError: an unknown name or a setting out of range.
    """
    if name not in METHODS:
        raise unknown("method", name, NAMES)
    method = getattr(config or MethodConfig(), name).method(agent)
    check(method.agent)
    return method
