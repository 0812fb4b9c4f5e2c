"""The same study with trainings several times as long, which begin with the same bits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

Config = TypeVar("Config", bound=Any)

LENGTHS = ("epochs", "updates", "evaluations")
PARTS = ("study", "free", "model_free")


def longer(config: Config, times: int) -> Config:
    """`config` with agents trained `times` as long and looked at as often.

    The agents' lengths and looks, and no others: world models are fitted as before. Nothing that
    learns knows how long it will, so the longer training begins as the shorter one did, bit for bit
    on CPU, and the looks of the shorter one are the first of the longer one.

    Args:
        config: a dataclass with some of `LENGTHS`, or with such ones in `PARTS`.
        times: at least 1.
    """
    names = {f.name for f in fields(config)}
    own = {name: getattr(config, name) * times for name in LENGTHS if name in names}
    parts = {name: longer(getattr(config, name), times) for name in PARTS if name in names}
    return replace(config, **own, **parts)
