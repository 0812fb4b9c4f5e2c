"""JSON and TOML texts from outside, without what is ambiguous in them or nested without end.

A key that is given twice and nesting deeper than `DEPTH` are refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

DEPTH = 50


def load_json(text: str) -> Any:
    """The data in a JSON text."""
    return _shallow(lambda: json.loads(text, object_pairs_hook=_object, parse_constant=_constant))


def load_toml(text: str) -> dict[str, Any]:
    """The data in a TOML text, which by itself refuses a key that is given twice."""
    return _shallow(lambda: tomllib.loads(text))


def _shallow(load: Callable[[], Any]) -> Any:
    """What `load` gives; `ValueError` where it is nested too deep."""
    try:
        data = load()
    except RecursionError:
        raise ValueError(_too_deep()) from None
    level, depth = [data], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > DEPTH:
            raise ValueError(_too_deep())
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep() -> str:
    return f"nested more than {DEPTH} levels deep"
