"""Datasets made on the spot, by name beside those in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record import fetched

from .. import data
from ..data import Dataset, Transitions
from ..tapes import SUFFIX
from ..tapes.replay import load_tape
from ..tapes.tape import packaged
from .acrobot import acrobot_broad, acrobot_narrow
from .ks_control import KS_LOGS
from .mixed import pendulum_mixed

PENDULUM = "pendulum-mixed"


class HasEpisodes(Protocol):
    """A `MinariDataset`."""

    def iterate_episodes(self) -> Iterator[Any]: ...


# Datasets made on the spot: their environment, and how.
MADE: Mapping[str, tuple[str, Callable[..., Transitions]]] = {
    PENDULUM: ("pendulum", pendulum_mixed),
    "acrobot-broad": ("acrobot", acrobot_broad),
    "acrobot-narrow": ("acrobot", acrobot_narrow),
    **KS_LOGS,
}


def load(name: Any, seed: int = 0, **options: Any) -> Dataset:
    """Load a dataset: a name, a path, a mapping of arrays, a Minari dataset, or a generated one.

    Args:
        name: one of `MADE` (`pendulum-mixed`, ...), which is made on the spot; a tape of the
            package, `hopper-medium-mini-v1`, the path of one, or `hf://owner/name`; else what
            `data.load`
            takes: a D4RL name such as `hopper-medium-v2`, the path of an HDF5 or npz file or of a
            Minari folder, a mapping with D4RL's keys, a `MinariDataset`.
        seed: random seed of generated data.
        options: those of `data.load`: `action_low`, `action_high`, `max_episode_steps`, `clip`, ...

    Raises:
        DataError: not found, or not what a dataset should be.
        ConfigError: an option out of range, or any for a dataset that is made on the spot.
    """
    if fetched.is_name(name):
        return load_tape(fetched.the_tape(name))
    tape = isinstance(name, str | Path) and (name in packaged() or Path(name).suffix == SUFFIX)
    if not tape and (not isinstance(name, str) or name not in MADE):
        return data.load(name, **options)
    if options:
        raise ConfigError(
            f"dataset {name}", sorted(options), "none: its rows are made by a program"
        )
    if tape:
        return load_tape(name)
    assert isinstance(name, str)
    environment, make_rows = MADE[name]
    rows = make_rows(as_key(seed, "seed"))
    return Dataset(name, rows, environment, Path("(made on the spot)"), "")


def undeclared(name: Any, **declared: Any) -> dict[str, Any]:
    """Options of `data.load` for a set whose action bounds the environment may give.

    Its actions are then held to [-1, 1] once the environment is known.
    """
    known = is_program(name) or any(key in declared for key in ("action_low", "action_high"))
    return {} if known else {"action_limit": None}


def is_program(name: Any) -> bool:
    """Whether a dataset's rows are made by a program, which takes no options of a file."""
    if not isinstance(name, str | Path):
        return False
    return str(name) in MADE or str(name) in packaged() or Path(name).suffix == SUFFIX
