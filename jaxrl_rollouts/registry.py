"""Settings classes by name: ours, each imported at its first use, and other packages'.

A registry is the only place where a method, an agent, a network or an objective has a name. A class
of a file or a module is named by where it is: `my_file.py:Mine` or `package.module:Mine`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from .configs import unknown
from .errors import ConfigError, foreign_code
from .plugins import check_trusted, entries

FILE = "jaxrl_rollouts_file_"  # begins the names of modules that are files of a user's


class Registry(Mapping[str, type]):
    """Frozen dataclasses of one kind, by name.

    Args:
        kind: their kind, for messages: "method".
        group: entry-point group in which other packages announce theirs as `module:Class`.
        ours: name -> `module:Class`.
    """

    def __init__(self, kind: str, group: str, ours: Mapping[str, str]) -> None:
        self.kind, self.group, self._ours = kind, group, ours
        self._places: dict[type, str] = {}  # of classes that were named by where they are

    def __getitem__(self, name: str) -> type:
        if name in self._ours:
            return resolve_name(self._ours[name])
        if is_place(name):
            check_trusted(self.kind, [name])
            return self._placed(name)
        announced = entries(self.group)
        if name not in announced:
            raise unknown(self.kind, name, self)
        with foreign_code(f"{self.kind} {name}", announced[name].value, "a class to import"):
            return announced[name].load()

    def __iter__(self) -> Iterator[str]:
        return iter((*self._ours, *entries(self.group)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def name_of(self, settings: Any) -> str:
        """The name of what these settings are of."""
        cls = type(settings)
        place = f"{cls.__module__}:{cls.__qualname__}"
        for name, ours in self._ours.items():
            if ours == place:
                return name
        for name, entry in entries(self.group).items():
            if entry.value == place or self[name] is cls:
                return name
        if cls in self._places:
            return self._places[cls]
        if cls.__module__.startswith(FILE):  # an agent beside the method that was named
            return f"{sys.modules[cls.__module__].__file__}:{cls.__qualname__}"
        expected = f"a name or settings of {', '.join(self)}"
        raise ConfigError(self.kind, cls.__name__, expected)

    def _placed(self, name: str) -> type:
        place, _, attribute = name.rpartition(":")
        is_file = place.endswith(".py")
        place = str(Path(place).expanduser().resolve()) if is_file else place
        with foreign_code(self.kind, name, "a class to import"):
            module = _module_of(place) if is_file else importlib.import_module(place)
            cls = getattr(module, attribute)
        if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
            raise ConfigError(self.kind, name, f"a frozen dataclass, a {self.kind} of your own")
        self._places[cls] = f"{place}:{attribute}"
        return cls


def is_place(name: str) -> bool:
    """Whether a name is the place of a class, `FILE.py:Class` or `package.module:Class`."""
    return ":" in name


def _module_of(file: str) -> Any:
    """The module of a file, imported once; a second class of it is of the same module."""
    name = f"{FILE}{abs(hash(file)):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not Path(file).is_file():
            raise FileNotFoundError(file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
