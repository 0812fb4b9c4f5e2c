"""Settings objects remember what was said in making them, so that the rest can be a budget's.

`Cql(weight=10.0)` says one thing. Trained with a small budget it has that weight and the budget's
small networks; trained with the paper's budget it has the paper's. `dataclasses.replace` names all
fields, and so does the command line: what they make says all of it, and no budget changes it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self


class Settings:
    """A base of frozen dataclasses whose instances know which of their fields were given."""

    _given: frozenset[str] = frozenset()

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        made = super().__new__(cls)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        object.__setattr__(made, "_given", frozenset({*names[: len(args)], *settings}))
        return made


def onto(base: Any, settings: Any) -> Any:
    """`base` with everything that was said in making `settings`, nested ones likewise.

    Args:
        base: of the same type as `settings`.
        settings: an instance of `Settings`; of one that is not, every field counts as given.
    """
    every = [field.name for field in fields(settings)]
    changes = {}
    for name in getattr(settings, "_given", every):
        value, before = getattr(settings, name), getattr(base, name)
        nested = isinstance(value, Settings) and type(value) is type(before)
        changes[name] = onto(before, value) if nested else value
    return replace(base, **changes)
