"""A package's public names, each imported when it is first asked for (PEP 562).

So that `import jaxrl_rollouts` costs nothing: neither jax nor a room that is not used is loaded.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .configs import did_you_mean


def lazily(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

        __getattr__, __dir__ = lazily(__name__, {"rollout": ".rollouts:rollout"})

    Args:
        package: its `__name__`.
        names: public name -> `module:attribute`, or `module` for a module itself; modules
            relative to the package.
    """

    def find(name: str) -> Any:
        if name not in names:
            hint = "" if name.startswith("_") else did_you_mean(name, names)
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; {hint}".rstrip("; ")
            )
        module, _, attribute = names[name].partition(":")
        found = importlib.import_module(module, package)
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[package], name, value)  # found without us from now on
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return find, listing
