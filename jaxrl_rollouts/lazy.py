"""A package's public names, each imported at its first use (PEP 562).

So that `import jaxrl_rollouts` costs nothing: neither jax nor a room that is not used is loaded.
The names stand once, under `if TYPE_CHECKING:` in the package's `__init__.py`, as plain imports
(`from .rollouts import rollout as rollout`): type checkers and editors read those, and so does
`lazily`, as text.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .configs import did_you_mean


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

        if TYPE_CHECKING:
            from .rollouts import rollout as rollout
        else:
            __getattr__, __dir__, __all__ = lazily(__name__)

    Args:
        package: its `__name__`.
    """
    names = table(Path(str(sys.modules[package].__file__)).read_text("utf-8"))

    def find(name: str) -> Any:
        if name not in names:
            hint = "" if name.startswith("_") else did_you_mean(name, names)
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; {hint}".rstrip("; ")
            )
        module, attribute = names[name]
        found = importlib.import_module(module, package)
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[package], name, value)  # found without us from now on
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return find, listing, [*names]


def table(source: str) -> dict[str, tuple[str, str]]:
    """Public name -> module and attribute ("" for the module itself), of the imports under
    `if TYPE_CHECKING:` in a file's text."""
    names = {}
    for block in ast.parse(source).body:
        if not (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"):
            continue
        for line in (line for line in block.body if isinstance(line, ast.ImportFrom)):
            module = "." * line.level + (line.module or "")
            for alias in line.names:
                whole = line.module is None  # `from . import pde as pde`
                names[alias.asname or alias.name] = (
                    (module + alias.name, "") if whole else (module, alias.name)
                )
    return names
