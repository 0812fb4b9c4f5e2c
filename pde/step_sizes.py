"""Trajectories at several step sizes, for emulators with the time step as input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError

from .fieldset import FieldSet


def strided(fields: FieldSet, strides: Sequence[int]) -> FieldSet:
    """Every stretch of the trajectories at every stride, its `dt` times as long.

    Of `T` frames and largest stride `S` each stretch has `T // S` frames; one of stride `s` is one
    of `s` interleaved copies. Nothing is read before it is needed.

    Raises:
        ConfigError: no strides, or one below 1.
        DataError: a time step that is not known, or fewer frames than a stretch needs.
    """
    if not strides or min(strides) < 1:
        raise ConfigError("strides", list(strides), "whole numbers of at least 1")
    if not np.isfinite(fields.dt).all():
        raise DataError(fields.path, "dt", "not known", "the time between frames", "give dt")
    count, frames = fields.shape[:2]
    length = frames // max(strides)
    if length < 2:
        raise DataError(fields.path, "frames", frames, f"at least {2 * max(strides)} for strides")
    places = [
        (row, begin + phase, stride)
        for stride in strides
        for row in range(count)
        for begin in range(0, frames - length * stride + 1, length * stride)
        for phase in range(stride)
    ]
    kept = np.array(places)

    def read(rows: Any, frames: Any) -> np.ndarray:
        found = []
        for row, first, stride in kept[rows].reshape(-1, 3).tolist():
            whole = slice(first, first + stride * (length - 1) + 1, stride)
            found.append(fields.read(slice(row, row + 1), whole)[0][frames])
        return np.stack(found) if kept[rows].ndim == 2 else found[0]

    rows = kept[:, 0]
    return fields._replace(
        shape=(len(kept), length, *fields.shape[2:]),
        read=read,
        dt=fields.dt[rows] * kept[:, 2],
        extent=fields.extent[rows],
        parameters={name: values[rows] for name, values in fields.parameters.items()},
        parts=(),
    )
