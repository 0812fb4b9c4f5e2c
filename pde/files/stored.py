"""What the layouts share: checked arrays and attributes, and reading part of several arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.hdf5 import BROKEN, check_written, open_hdf5, read_array
from jaxrl_rollouts.outside import to_array

FLOAT32 = np.finfo(np.float32)
RESAMPLE = "all operators and spectra assume evenly spaced points: interpolate the fields to such"
COLUMNS = 32  # numbers that are kept of a trajectory, about


class Stored(NamedTuple):
    """An array of fields in a file, `[samples?, times?, *varying axes of space, *components]`, or
    with the components before the axes of space.

    Attributes:
        key: its name in the file.
        channels: names of what its components become.
        samples, times: whether it has these axes.
        varying: for each axis of space, whether it has it.
        before: whether components come before the axes of space.
    """

    key: str
    channels: tuple[str, ...]
    varying: tuple[bool, ...]
    samples: bool = True
    times: bool = True
    before: bool = False


def listed(names: Iterable[str]) -> str:
    """Names for a message: not more than fit on a line."""
    names = sorted(names)
    return ", ".join(names[:8]) + ", ..." * (len(names) > 8) or "nothing"


def require(path: Path, file: h5py.File, key: str) -> None:
    """`DataError` where there is nothing of this name; names what is beside it."""
    if key not in file:
        above = key.rpartition("/")[0]
        beside = file.get(above) if above else file
        has = f"only {listed(beside)}" if isinstance(beside, h5py.Group) else f"no {above}"
        raise DataError(path, key, has, f"an array {key}")


def field_array(path: Path, file: h5py.File, key: str) -> h5py.Dataset:
    """A floating-point array that is not empty, unread; `DataError` for anything else."""
    require(path, file, key)
    found: Any = file[key]
    if not isinstance(found, h5py.Dataset):
        raise DataError(path, key, "a group", "an array")
    if found.dtype.kind != "f":
        raise DataError(path, key, found.dtype, "floating-point numbers")
    if not found.shape or 0 in found.shape:
        raise DataError(path, key, f"shape {found.shape}", "an array that is not empty")
    check_written(path, key, found)
    return found


def check_shape(path: Path, key: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """`DataError` where the shapes differ."""
    if tuple(found) != tuple(expected):
        raise DataError(path, key, f"shape {tuple(found)}", tuple(expected))


def check_count(path: Path, key: str, count: int) -> None:
    """`DataError` where a file declares more trajectories than there is room to count them."""
    check_room(path, key, 8 * COLUMNS * count)


def numbers(
    path: Path,
    file: h5py.File,
    key: str,
    shape: tuple[int, ...] | None = None,
    positive: bool = False,
) -> np.ndarray:
    """A small array of finite numbers, read whole; of this shape, and above 0 if `positive`."""
    require(path, file, key)
    values = check_numbers(path, key, read_array(path, file, key))
    if shape is not None:
        check_shape(path, key, values.shape, shape)
    if positive and (values <= 0).any():
        raise DataError(path, key, values.min(), "values above 0")
    return values


def default_names(channels: int) -> tuple[str, ...]:
    """What channels are called that have no names: `u`, or `u_0`, `u_1`, ..."""
    return ("u",) if channels == 1 else tuple(f"u_{i}" for i in range(channels))


def check_numbers(path: Path, key: str, values: Any) -> np.ndarray:
    """`values` as an array; `DataError` unless they are finite numbers."""
    values = to_array(path, key, values)
    if values.dtype.kind not in "fiu":
        raise DataError(path, key, values.dtype, "finite numbers")
    if not np.isfinite(values).all():
        raise DataError(path, key, "a value that is not finite", "finite numbers")
    return values


def frame_time(path: Path, key: str, times: np.ndarray) -> np.ndarray:
    """Time between frames `[...]` of the instants `[..., T]`; NaN where there is one frame."""
    steps = np.diff(times.astype(np.float64), axis=-1)
    if not steps.shape[-1]:
        return np.full(times.shape[:-1], np.nan, np.float64)
    if not (steps > 0).all():
        raise DataError(path, key, f"a step of {steps.min():.4g}", "times that increase")
    mean = steps.mean(-1, keepdims=True)
    if _uneven(steps, mean, times):
        found = f"steps of {steps.min():.4g} to {steps.max():.4g}"
        raise DataError(path, key, found, "times in even steps")
    return mean[..., 0]


def _uneven(steps: np.ndarray, mean: np.ndarray, values: np.ndarray) -> bool:
    """Whether steps differ by more than 1 % and the rounding of values that lie far from 0."""
    rounding = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0.0
    allowed = 0.01 * abs(mean) + float(rounding) * abs(values.astype(np.float64)).max()
    return bool((abs(steps - mean) > allowed).any())


def check_even(path: Path, file: h5py.File, split: str) -> None:
    """`DataError` where instants or points that a group of PDEArena's stores are not even.

    Its `dt` and `dx` say nothing of that.
    """
    for name, even in (("t", frame_time), ("x", axis_extent), ("y", axis_extent)):
        if (key := f"{split}/{name}") in file:
            values = numbers(path, file, key)
            if values.shape[-1:] > (1,):
                even(path, key, values)


def axis_extent(path: Path, key: str, places: np.ndarray) -> np.ndarray:
    """Length of the domain `[...]` along grid points `[..., N]`: points times mean spacing."""
    steps = np.diff(places.astype(np.float64), axis=-1)
    if not steps.shape[-1]:
        raise DataError(path, key, f"shape {places.shape}", "at least 2 points")
    if not ((steps > 0).all() or (steps < 0).all()):
        raise DataError(path, key, "repeated or unsorted points", "points in order")
    mean = steps.mean(-1, keepdims=True)
    if _uneven(steps, mean, places):
        found = f"steps of {abs(steps).min():.4g} to {abs(steps).max():.4g}"
        raise DataError(path, key, found, "points in even steps", RESAMPLE)
    return abs(steps.mean(-1)) * places.shape[-1]


def grid_extents(
    path: Path, file: h5py.File, keys: Sequence[str], sizes: Sequence[int], count: int
) -> np.ndarray:
    """Lengths of the domain `[count, axes]`, of the coordinates at these names."""
    places = [numbers(path, file, key, (n,)) for key, n in zip(keys, sizes, strict=True)]
    pairs = zip(keys, places, strict=True)
    return np.tile([axis_extent(path, key, values) for key, values in pairs], (count, 1))


def positions(path: Path, key: str, index: Any, size: int) -> np.ndarray:
    """Which of `size` an int, slice or sequence of ints picks."""
    try:
        return np.atleast_1d(np.arange(size)[index])
    except IndexError as error:
        raise DataError(path, key, one_line(error), f"rows or frames out of {size}") from None


def _cover(picked: np.ndarray) -> tuple[slice, np.ndarray | slice]:
    """A slice with all of `picked` in it and where they are in that."""
    steps = np.diff(picked)
    if len(picked) and (steps > 0).all() and (steps == steps[:1]).all():
        step = int(steps[0]) if len(steps) else 1
        return slice(int(picked[0]), int(picked[-1]) + 1, step), slice(None)
    low, high = (int(picked.min()), int(picked.max()) + 1) if len(picked) else (0, 0)
    return slice(low, high), picked - low


def take(stored: Any, rows: np.ndarray | None, frames: np.ndarray | None) -> np.ndarray:
    """`stored[rows][:, frames]`, None for an axis that is not there; reads little else.

    Rows in no even order are read one by one, each once.
    """
    along, inside = _cover(frames) if frames is not None else (None, None)
    rest = () if along is None else (along,)
    if rows is None:
        values = np.asarray(stored[rest])
    else:
        span, scattered = _cover(rows)
        if isinstance(scattered, slice):
            values = np.asarray(stored[(span, *rest)])
        else:
            unique, back = np.unique(rows, return_inverse=True)
            parts = [np.asarray(stored[(int(row), *rest)]) for row in unique]
            values = np.stack(parts)[back] if parts else np.asarray(stored[(slice(0, 0), *rest)])
    if isinstance(inside, np.ndarray):
        values = values[inside] if rows is None else values[:, inside]
    return values


def take_field(
    stored: Any, field: Stored, shape: tuple[int, ...], rows: np.ndarray, frames: np.ndarray
) -> np.ndarray:
    """`[len(rows), len(frames), C of the field, *space]`; what does not vary is repeated."""
    values = take(stored, rows if field.samples else None, frames if field.times else None)
    lead = (len(rows) if field.samples else 1, len(frames) if field.times else 1)
    grid = tuple(n if there else 1 for n, there in zip(shape[3:], field.varying, strict=True))
    if field.before:
        values = values.reshape(*lead, len(field.channels), *grid)
    else:
        values = np.moveaxis(values.reshape(*lead, *grid, len(field.channels)), -1, 2)
    whole = (len(rows), len(frames), len(field.channels), *shape[3:])
    return np.broadcast_to(values, whole)


def check_finite(
    path: Path,
    key: str,
    values: np.ndarray,
    rows: np.ndarray,
    frames: np.ndarray,
    channels: Sequence[str] = (),
) -> None:
    """`DataError` with the place of the first value that is not finite.

    Args:
        path, key: the array's.
        values: `[len(rows), len(frames), C, *space]`.
        rows, frames: numbers of the trajectories and frames.
        channels: their names.
    """
    good = np.abs(values) <= FLOAT32.max  # a NaN is not; networks see float32
    if not good.all():
        at = tuple(np.argwhere(~good)[0])
        row, frame, channel = int(rows[at[0]]), int(frames[at[1]]), int(at[2])
        name = f" ({channels[channel]})" if channels else ""
        where = f"trajectory {row}, frame {frame}, channel {channel}{name}"
        raise DataError(
            path, key, f"{values[at]} in {where}", "finite numbers, as float32 has them"
        )


def constant_channels(fields: Sequence[Stored]) -> tuple[int, ...]:
    """Numbers of the channels whose arrays have no axis of time."""
    times = [field.times for field in fields for _ in field.channels]
    return tuple(i for i, there in enumerate(times) if not there)


def checked_reader(
    path: Path,
    key: str,
    shape: tuple[int, ...],
    load: Callable[[np.ndarray, np.ndarray], np.ndarray],
    itemsize: int = 8,
) -> Callable[[Any, Any], np.ndarray]:
    """`FieldSet.read`: `load(rows, frames)` once both, and the memory, are checked."""

    def read(rows: Any, frames: Any) -> np.ndarray:
        rows, frames = (
            positions(path, key, i, n) for i, n in zip((rows, frames), shape[:2], strict=True)
        )
        check_room(path, key, itemsize * len(rows) * len(frames) * math.prod(shape[2:]))
        return load(rows, frames)

    return read


def hdf5_reader(
    path: Path, fields: Sequence[Stored], shape: tuple[int, ...]
) -> Callable[[Any, Any], np.ndarray]:
    """`FieldSet.read` of arrays in one file."""

    def load(rows: np.ndarray, frames: np.ndarray) -> np.ndarray:
        parts = []
        with open_hdf5(path) as file:
            for field in fields:
                try:
                    part = take_field(file[field.key], field, shape, rows, frames)
                except BROKEN as error:
                    raise DataError(path, field.key, one_line(error), "readable rows") from error
                check_finite(path, field.key, part, rows, frames, field.channels)
                parts.append(part)
        return np.concatenate(parts, 2)

    return checked_reader(path, fields[0].key, shape, load)
