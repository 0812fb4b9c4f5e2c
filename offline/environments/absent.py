"""In the place of a simulator where there is none: the sizes of networks, nothing to play in."""

from __future__ import annotations

from typing import Any

from jaxrl_rollouts.errors import ConfigError

from .base import Environment, observe

NONE = "none"


def _refuse(*_: Any) -> Any:
    raise ConfigError("environment", NONE, "a simulator to play in", "name one")


def no_simulator(
    observation_size: int, action_size: int, max_episode_steps: int, **fields: Any
) -> Environment:
    """An `Environment` that raises when it is played in; `fields` are more of its fields."""
    sizes = observation_size, action_size, max_episode_steps
    return Environment(NONE, *sizes, _refuse, _refuse, observe, **fields)
