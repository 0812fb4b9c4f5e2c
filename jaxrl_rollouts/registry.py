"""Settings classes by name: ours, each imported when it is asked for, and other packages'.

A registry is the only place where a method, an agent, a network or an objective has a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from .configs import unknown
from .errors import ConfigError
from .plugins import entries


class Registry(Mapping[str, type]):
    """Frozen dataclasses of one kind, by name.

    Args:
        kind: what they are, for messages: "method".
        group: entry-point group in which other packages announce theirs as `module:Class`.
        ours: name -> `module:Class`.
    """

    def __init__(self, kind: str, group: str, ours: Mapping[str, str]) -> None:
        self.kind, self.group, self._ours = kind, group, ours

    def __getitem__(self, name: str) -> type:
        if name in self._ours:
            return resolve_name(self._ours[name])
        announced = entries(self.group)
        if name not in announced:
            raise unknown(self.kind, name, self)
        try:
            return announced[name].load()
        except Exception as error:
            found = announced[name].value
            raise ConfigError(
                f"{self.kind} {name}", found, f"a class to import: {error}"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter((*self._ours, *entries(self.group)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def name_of(self, settings: Any) -> str:
        """The name of what these settings are of.

        Raises:
            ConfigError: they are none of these.
        """
        for name in self:
            if type(settings) is self[name]:
                return name
        found = type(settings).__name__
        raise ConfigError(self.kind, found, f"a name or settings of {', '.join(self)}")
