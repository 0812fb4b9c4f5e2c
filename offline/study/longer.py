"""The same study with trainings several times as long, which begin with the same bits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.errors import ConfigError

Config = TypeVar("Config", bound=Any)

LENGTHS = ("epochs", "updates", "evaluations")
PARTS = ("study", "free", "model_free")


def longer(config: Config, times: int) -> Config:
    """`config` with agents trained `times` as long and looked at as often.

    The agents' lengths and looks, and no others: world models are fitted as before. What learns
    does not know for how long, so the longer training begins as the shorter one did, bit for bit on
    CPU, and the looks of the shorter one are the first of the longer one.

    Args:
        config: a dataclass with some of `LENGTHS`, or with such ones in `PARTS`.
        times: at least 1.

    Raises:
        ConfigError: a rate that falls to zero over the steps there are.
    """
    for name, steps in settings(config).items():
        if name.rpartition(".")[2] == "cosine_steps" and steps is not None:
            expected = f"none with {name}: beyond {steps:,} steps the rate is zero"
            raise ConfigError("times", times, expected, "run it anew with more steps")
    return _lengthened(config, times)


def _lengthened(config: Config, times: int) -> Config:
    names = {f.name for f in fields(config)}
    own = {name: getattr(config, name) * times for name in LENGTHS if name in names}
    parts = {name: _lengthened(getattr(config, name), times) for name in PARTS if name in names}
    return replace(config, **own, **parts)
