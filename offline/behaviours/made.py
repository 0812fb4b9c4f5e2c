"""Datasets made on the spot, by name beside those in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jax

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


def load_dataset(name: str, seed: int = 0) -> Dataset:
    """A dataset by name or path; those in `MADE` are made on the spot, of `seed`."""
    if name not in MADE:
        return load(name)
    environment, make_rows = MADE[name]
    rows = make_rows(jax.random.key(seed))
    return Dataset(name, rows, environment, Path("(made on the spot)"), "")
