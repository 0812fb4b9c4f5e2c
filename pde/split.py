"""Which trajectories of a run's files it trains on, and which it is tested on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError

from .constant import check_changing
from .equations import equation
from .fieldset import FieldSet, take_frames, take_trajectories
from .files import complete, read
from .files.joined import part_of


def split_files(config: Any) -> tuple[FieldSet, FieldSet]:
    """Trajectories to train and to test on: those of a folder's `test` where it is split, else the
    last ones, of several files each file's last; of a single one the last frames are tested on.

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
    if test := config.test or part_of(config.file, "test"):
        other = _read(config, test)
        if other.shape[2:] != found.shape[2:]:
            expected = f"those of {found.path.name}, {list(found.shape[2:])}"
            raise DataError(other.path, "channels, points", list(other.shape[2:]), expected)
        return found, other
    axis = int(found.shape[0] == 1)
    count = max(1, round(config.test_share * found.shape[axis]))
    if found.shape[axis] <= count:
        what = ("trajectories", "frames")[axis]
        raise DataError(found.path, what, found.shape[axis], f"more than the {count} to test on")
    if axis:
        return take_frames(found, slice(0, -count)), take_frames(found, slice(-count, None))
    return without_last(found, count)


def without_last(fields: FieldSet, count: int) -> tuple[FieldSet, FieldSet]:
    """All but `count` trajectories, and those: the last ones; of several files the last ones of
    each, in proportion to its trajectories, so that every file's parameters are in both."""
    total = fields.shape[0]
    ends = np.cumsum(fields.parts or (total,))
    shares = np.diff(ends * count // total, prepend=0)
    taken = [np.arange(end - n, end) for end, n in zip(ends, shares, strict=True)]
    rows = np.isin(np.arange(total), np.concatenate(taken))
    return take_trajectories(fields, ~rows), take_trajectories(fields, rows)


def with_validation(config: Any, fields: FieldSet) -> tuple[FieldSet, FieldSet | None]:
    """Trajectories to learn from and to validate on: those of a folder's `valid`, else the last of
    `fields` (`without_last`); None where `validation_share` leaves none."""
    count = round(config.validation_share * fields.shape[0])
    if config.validation_share and (valid := part_of(config.file, "valid")):
        return fields, _read(config, valid)
    if not count or count == fields.shape[0]:
        return fields, None
    return without_last(fields, count)


def _read(config: Any, file: str | Sequence[Path]) -> FieldSet:
    named = equation(config.equation).name if config.equation else ""
    # Runs of earlier versions have neither `every` nor `channels`.
    found = read(file, config.axes, channels=getattr(config, "channels", ()))
    fields = complete(found, config.boundaries, config.dt, config.dx)
    if (every := getattr(config, "every", 1)) > 1:
        fields = take_frames(fields, slice(None, None, every))
    return fields._replace(equation=named or fields.equation)
