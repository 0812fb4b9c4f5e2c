"""Datasets made on the spot, by name beside those in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxrl_rollouts.errors import ConfigError

from ..data import (
    Dataset,
    Transitions,
    load,
)
from .acrobot import acrobot_broad, acrobot_narrow
from .mixed import pendulum_mixed

PENDULUM = "pendulum-mixed"


# Datasets made on the spot: their environment, and how.
MADE: Mapping[str, tuple[str, Callable[..., Transitions]]] = {
    PENDULUM: ("pendulum", pendulum_mixed),
    "acrobot-broad": ("acrobot", acrobot_broad),
    "acrobot-narrow": ("acrobot", acrobot_narrow),
}


def load_dataset(name: Any, seed: int = 0, **options: Any) -> Dataset:
    """A dataset: a name, a path, a mapping of arrays, a Minari dataset, or one made on the spot.

    Args:
        name: one of `MADE` (`pendulum-mixed`, ...), which is made on the spot; else what `load`
            takes: a D4RL name such as `hopper-medium-v2`, the path of an HDF5 or npz file or of a
            Minari folder, a mapping with D4RL's keys, a `MinariDataset`.
        seed: of what is made on the spot.
        options: those of `load`: `action_low`, `action_high`, `max_episode_steps`, `clip`, ...

    Raises:
        DataError: not found, or not what a dataset should be.
        ConfigError: an option out of range, or any for a dataset that is made on the spot.
    """
    if not isinstance(name, str) or name not in MADE:
        return load(name, **options)
    if options:
        raise ConfigError(f"dataset {name}", sorted(options), "none: it is made on the spot")
    environment, make_rows = MADE[name]
    rows = make_rows(jax.random.key(seed))
    return Dataset(name, rows, environment, Path("(made on the spot)"), "")


def undeclared(name: Any, **declared: Any) -> dict[str, Any]:
    """Options of `load_dataset` for a set whose action bounds the environment may give.

    Its actions are then held to [-1, 1] once the environment is known.
    """
    made = isinstance(name, str) and name in MADE
    known = made or any(key in declared for key in ("action_low", "action_high"))
    return {} if known else {"action_limit": None}
