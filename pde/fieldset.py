"""Trajectories of fields: on disk, read in part, or on the device for training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.errors import DataError

from .emulator import Conditioning, Conditions


class FieldSet(NamedTuple):
    """Trajectories in a file; nothing is read before it is needed.

    Attributes:
        path: their file.
        layout: name of the file's layout.
        shape: `(trajectories, frames, C, *space)`.
        read: `(rows, frames) -> [len(rows), len(frames), C, *space]` for an index or slice of
            either.
        dt: `[trajectories]` time between frames; NaN where the file does not say.
        extent: `[trajectories, axes]` lengths of the domain: points times spacing; NaN likewise.
        parameters: name -> `[trajectories]` values of the equation's parameters.
        channels: a name for each of `C`.
        boundaries: per axis: periodic, wall, open or several with a slash; "" where the file does
            not say.
        equation: its name in `equations`, where it is known.
        constant: numbers of the channels that the file itself holds once for all frames.
        parts: trajectories of each of several files, in order; () of one file.
        every: frames of the file per frame.
    """

    path: Path
    layout: str
    shape: tuple[int, ...]
    read: Callable[[Any, Any], np.ndarray]
    dt: np.ndarray
    extent: np.ndarray
    parameters: Mapping[str, np.ndarray]
    channels: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    equation: str = ""
    constant: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    every: int = 1

    __repr__ = brief

    def array(self) -> np.ndarray:
        """All of it, in memory: `[trajectories, frames, C, *space]`."""
        return self.read(slice(None), slice(None))


class Fields(NamedTuple):
    """Training data on the device.

    Attributes:
        fields: `[trajectories, frames, C, *space]` float32.
        conditions: `[trajectories, P]` what an emulator sees of each, scaled; `Conditioning` where
            there are constant channels.
    """

    fields: jax.Array
    conditions: Conditions


class PickedWindows(NamedTuple):
    """Windows that were read before: `[batch, frames, C, *space]`, conditions `[batch, P]`."""

    fields: jax.Array
    conditions: Conditions


SPAN = 10.0  # networks see conditions on a scale from 0 to about this


class Scaling(NamedTuple):
    """How a network sees a condition: `(value - shift) * factor`, about [0, 10]."""

    shift: float = 0.0
    factor: float = 1.0

    def __call__(self, value: np.ndarray) -> np.ndarray:
        return (value - self.shift) * self.factor

    def checked(self, name: str, value: np.ndarray) -> np.ndarray:
        """The condition as a network sees it; warn outside the training's range."""
        scaled = self(value)
        if scaled.size and (scaled.min() < -0.01 * SPAN or scaled.max() > 1.01 * SPAN):
            found = " to ".join(dict.fromkeys(f"{v:.4g}" for v in (value.min(), value.max())))
            low, high = self.shift, self.shift + SPAN / self.factor
            warnings.warn(
                f"conditions.{name}: found {found}, expected {low:.4g} to {high:.4g}, which "
                "networks get as 0 to 10: predictions outside are untested",
                stacklevel=3,
            )
        return scaled


def unit_columns(units: Sequence[Scaling], axes: int, dtype: Any = np.float32) -> np.ndarray:
    """Shift and factor of every channel, `[2, C, *1]`, for fields `[..., C, *space]`."""
    return np.array(units, dtype).T.reshape(2, -1, *(1,) * axes)


def to_units(units: Sequence[Scaling], fields: Any, axes: int) -> Any:
    """Fields `[..., C, *space]` as networks see them, `(u - shift) * factor`, float32.

    Space has `axes`. Of float64 fields the shift is subtracted before they are rounded.
    """
    double = fields.dtype == np.float64
    shift, factor = unit_columns(units, axes, np.float64 if double else np.float32)
    seen = (fields - shift) * factor
    return seen.astype(np.float32) if double else seen


def from_units(units: Sequence[Scaling], fields: Any, axes: int, dtype: Any = np.float32) -> Any:
    """Undo `to_units`, in float32 or float64."""
    shift, factor = unit_columns(units, axes, dtype)
    return fields / factor + shift


def condition_values(fields: FieldSet, name: str) -> np.ndarray:
    """A condition of every trajectory as the file has it: `[trajectories, columns]`."""
    rows = fields.shape[0]
    dx = fields.extent.reshape(rows, -1) / np.asarray(fields.shape[3:])
    known = {"dt": fields.dt, "dx": dx, **fields.parameters}
    if name not in known:
        raise DataError(fields.path, "conditions", name, f"one of {sorted(known)}")
    if not np.isfinite(known[name]).all():
        raise DataError(fields.path, "conditions", f"no {name}", "a file that has it")
    return np.asarray(known[name], np.float64).reshape(rows, -1)


def take_trajectories(fields: FieldSet, rows: slice | np.ndarray) -> FieldSet:
    """Some of the trajectories, as a set that reads no others."""
    kept = np.arange(fields.shape[0])[rows]

    def read(picked: Any, frames: Any) -> np.ndarray:
        return fields.read(kept[picked], frames)

    return fields._replace(
        shape=(len(kept), *fields.shape[1:]),
        read=read,
        dt=fields.dt[kept],
        extent=fields.extent[kept],
        parameters={name: values[kept] for name, values in fields.parameters.items()},
        parts=_parts(fields.parts, kept),
    )


def _parts(parts: tuple[int, ...], kept: np.ndarray) -> tuple[int, ...]:
    """How many of the trajectories `kept` each file has; () where they are in another order."""
    of_file = np.repeat(np.arange(len(parts)), parts)[kept] if parts else np.zeros(0, int)
    counts = np.unique(of_file, return_counts=True)[1]
    return tuple(counts.tolist()) if (np.diff(of_file) >= 0).all() else ()


def take_frames(fields: FieldSet, frames: slice) -> FieldSet:
    """Some of the frames of every trajectory, as a set that reads no others.

    Of every n-th frame `dt` is n times as long.
    """
    kept = np.arange(fields.shape[1])[frames]

    def read(rows: Any, picked: Any) -> np.ndarray:
        return fields.read(rows, kept[picked])

    shape, step = (fields.shape[0], len(kept), *fields.shape[2:]), frames.step or 1
    return fields._replace(shape=shape, read=read, dt=fields.dt * step, every=fields.every * step)


def check_trainable(fields: FieldSet) -> None:
    """`DataError` unless the operators here can do it: one to three axes of space, two frames."""
    axes = len(fields.shape[3:])
    if not 1 <= axes <= 3:
        raise DataError(fields.path, "axes", f"{axes} of space", "1, 2 or 3")
    if fields.shape[1] < 2:
        raise DataError(fields.path, "frames", fields.shape[1], "at least 2")


def sample_windows(
    data: Fields | PickedWindows,
    key: jax.Array,
    batch: int,
    frames: int,
    *,
    random_shift: bool = True,
    axes: Sequence[int] | None = None,
    stride: int = 1,
) -> tuple[jax.Array, Conditions]:
    """Random windows of consecutive frames.

    Returns:
        `[batch, frames, C, *space]` and their conditions `[batch, P]`, moved as windows are.
    """
    if isinstance(data, PickedWindows):
        windows, conditions = data
    else:
        rows, length = data.fields.shape[:2]
        row, begin = window_places(key, rows, length, batch, (frames - 1) * stride + 1)
        windows = data.fields[row[:, None], begin[:, None] + stride * jnp.arange(frames)]
        conditions = jax.tree.map(lambda x: x[row], data.conditions)
    shift_key = jax.random.split(key, 3)[2]
    if random_shift:
        space = windows.ndim - 3
        moved = range(space) if axes is None else axes
        for axis in sorted((axis - space for axis in moved), reverse=True):
            key = shift_key if axis == -1 else jax.random.fold_in(shift_key, -axis)
            by = jax.random.randint(key, (batch,), 0, windows.shape[axis])
            moved_by = jax.vmap(lambda w, n, axis=axis: jnp.roll(w, n, axis))
            windows = moved_by(windows, by)
            if isinstance(conditions, Conditioning):
                conditions = conditions._replace(constant=moved_by(conditions.constant, by))
    return windows, conditions


def window_places(
    key: jax.Array, rows: int, length: int, batch: int, span: int
) -> tuple[jax.Array, jax.Array]:
    """Where `sample_windows` begins: trajectories and first frames, `[batch]` int32 each."""
    if length < span:
        raise ValueError(f"frames: found trajectories of {length}, expected at least {span}")
    row_key, time_key, _ = jax.random.split(key, 3)
    row = jax.random.randint(row_key, (batch,), 0, rows)
    return row, jax.random.randint(time_key, (batch,), 0, length - span + 1)
