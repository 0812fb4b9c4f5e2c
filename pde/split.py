"""Which trajectories of a run's files it trains on, and which it is tested on."""

from __future__ import annotations

from typing import Any

from jaxrl_rollouts.errors import ConfigError, DataError

from .constant import check_changing
from .equations import equation
from .fieldset import FieldSet, take_frames, take_trajectories
from .files import complete, read


def split_files(config: Any) -> tuple[FieldSet, FieldSet]:
    """Trajectories to train and to test on; of a single one the last frames are tested on.

    Args:
        config: a `TrainConfig`, or what a run's folder has of it.

    Raises:
        ConfigError: no file.
        DataError: fields that cannot be trained on, or too few of them.
    """
    if not config.file:
        raise ConfigError(
            "file", "nothing", "a file of trajectories: jaxrl-rollouts pde train FILE"
        )
    found = _read(config, config.file)
    check_changing(found)
    if config.test:
        other = _read(config, config.test)
        if other.shape[2:] != found.shape[2:]:
            expected = f"those of {found.path.name}, {list(found.shape[2:])}"
            raise DataError(other.path, "channels, points", list(other.shape[2:]), expected)
        return found, other
    axis, take = (1, take_frames) if found.shape[0] == 1 else (0, take_trajectories)
    count = max(1, round(config.test_share * found.shape[axis]))
    if found.shape[axis] <= count:
        what = ("trajectories", "frames")[axis]
        raise DataError(found.path, what, found.shape[axis], f"more than the {count} to test on")
    train_set, test_set = (take(found, part) for part in (slice(0, -count), slice(-count, None)))
    return train_set, test_set


def _read(config: Any, file: str) -> FieldSet:
    named = equation(config.equation).name if config.equation else ""
    fields = complete(read(file, config.axes), config.boundaries, config.dt, config.dx)
    return fields._replace(equation=named or fields.equation)
