"""Trajectories that are arrays: in memory, or in a plain `.npy` or `.npz` file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.foreign import clean
from jaxrl_rollouts.numpy_files import read_npy, read_npz
from jaxrl_rollouts.outside import to_array

from ..boundaries import EXPECTED, is_known
from ..fieldset import FieldSet
from .stored import check_finite, check_numbers, default_names, positions

MEMORY = Path("array")  # the "file" of arrays in memory, for messages
# The third axis may be one of space where it has more than MANY points, or more than FEW and at
# least half as many as an axis of space; the last may be channels where it has a QUARTER as many.
MANY, FEW, QUARTER = 16, 4, 4
NAMES = "u, and perhaps dt, dx, axes, boundaries, channels and parameters of the equation"
AXES = "axes={one} (--axes {one}) where the third axis is channels, axes={more} where it is space"
LAST = (
    "the last axis looks like channels, which come before space: np.moveaxis(u, -1, 2); names of "
    "all channels confirm the order"
)
# What others call these, and no equation calls a parameter.
CALLED = {"t": "dt", "time": "dt", "times": "dt", "x": "dx", "boundary": "boundaries"}
CALLED |= {"names": "channels", "channel_names": "channels"}


def from_arrays(
    u: ArrayLike,
    dt: ArrayLike | None = None,
    dx: ArrayLike | None = None,
    conditions: Mapping[str, ArrayLike] | None = None,
    boundaries: str | Sequence[str] = "periodic",
    names: Sequence[str] | None = None,
    *,
    axes: int | None = None,
    source: str | Path = MEMORY,
) -> FieldSet:
    """A `FieldSet` from your own trajectories, checked.

        fields = from_arrays(u, dt=0.1, dx=22 / 64)                      # u [N, T, X]
        fields = from_arrays(u, conditions={"viscosity": nu})            # nu [N]

    Args:
        u: `[N, T, X]` or `[N, T, C, X]`: trajectories, frames, channels, points; with `axes=2`
            `[N, T, X, Y]` or `[N, T, C, X, Y]`, and likewise with 3.
        dt: time between frames, one for all or `[N]`; None where it is not known.
        dx: distance between points, one for all, per axis or `[N, axes]`; None likewise.
        conditions: parameters of the equation by name, one for all or `[N]`.
        boundaries: boundaries of every axis, or one each: periodic, wall, open, neumann or
            dirichlet=VALUE, `LOW|HIGH` where its ends differ, "" where it is not known; see
            `boundaries`.
        names: names of the channels.
        axes: number of spatial axes; optional where the shape is unambiguous: 1 for three or four
            axes of `u`, 2 for five, 3 for six.
        source: a name for messages.

    Raises:
        DataError: a shape that does not fit or that has two readings, no numbers, or a value that
            is not finite: which trajectory, frame and channel.
        ConfigError: `axes` that are not 1, 2 or 3.
    """
    path = Path(source)
    given_names = () if names is None else _texts(path, "names", names)
    values, space = _channelled(path, u, axes, given_names)
    count, frames, channels = values.shape[:3]
    named = given_names or default_names(channels)
    if len(named) != channels:
        raise DataError(path, "names", f"{len(named)} names", f"{channels}, one per channel")
    single = isinstance(boundaries, str)
    kinds = (boundaries,) * space if single else _texts(path, "boundaries", boundaries)
    if len(kinds) != space or not all(map(is_known, kinds)):
        expected = f"{space}: {EXPECTED}, or an empty text"
        raise DataError(path, "boundaries", ", ".join(kinds) or "nothing", expected)
    spacing = np.full((count, space), np.nan)
    if dx is not None:
        dx = to_array(path, "dx", dx)
        dx = dx[:, None] if dx.shape == (count,) and count != space else dx
        spacing = _column(path, "dx", dx, (count, space), positive=True)
    times = np.full(count, np.nan) if dt is None else _column(path, "dt", dt, (count,), True)
    given = {k: _column(path, k, v, (count,)) for k, v in (conditions or {}).items()}
    check_finite(path, "u", values, np.arange(count), np.arange(frames), named)

    def read(rows: Any, frames: Any) -> np.ndarray:
        picked = (
            positions(path, "u", i, n) for i, n in zip((rows, frames), values.shape, strict=False)
        )
        return values[np.ix_(*picked)]

    extent = spacing * np.asarray(values.shape[3:])
    return FieldSet(path, "array", values.shape, read, times, extent, given, named, kinds)


def complete(
    fields: FieldSet,
    boundaries: Sequence[str] = (),
    dt: float | None = None,
    dx: Sequence[float] = (),
) -> FieldSet:
    """A set with what its file does not say.

    Args:
        fields: the set.
        boundaries, dx: for all axes or one for each; () to leave them.
        dt: time between frames; None likewise.
    """
    axes, name = len(fields.shape[3:]), fields.path.name
    for key, given in (("boundaries", boundaries), ("dx", dx)):
        if len(given) not in (0, 1, axes):
            raise ConfigError(key, list(given), f"one, or {axes}: one for each axis of {name}")
    if boundaries:
        kinds = tuple(boundaries) * (axes if len(boundaries) == 1 else 1)
        if not all(map(is_known, kinds)):
            raise ConfigError("boundaries", list(kinds), EXPECTED)
        known = fields.boundaries or ("",) * axes
        if any(own and own != kind for own, kind in zip(known, kinds, strict=True)):
            raise ConfigError("boundaries", list(kinds), f"what {name} has: {', '.join(known)}")
        fields = fields._replace(boundaries=kinds)
    if dt is not None:
        if not np.allclose(fields.dt[np.isfinite(fields.dt)], dt):
            raise ConfigError("dt", dt, f"what {name} has: {np.nanmean(fields.dt):.4g}")
        fields = fields._replace(dt=np.full(fields.dt.shape, float(dt)))
    if len(dx):
        extent = np.broadcast_to(np.multiply(dx, fields.shape[3:]), fields.extent.shape)
        known = np.isfinite(fields.extent)
        if not np.allclose(fields.extent[known], extent[known]):
            spacing = (fields.extent / fields.shape[3:])[known.all(1)][0].tolist()
            raise ConfigError("dx", list(dx), f"what {name} has: {spacing}")
        fields = fields._replace(extent=extent.astype(np.float64))
    return fields


def read_arrays(path: str | Path, axes: int | None = None) -> FieldSet:
    """A plain `.npy` array, or an `.npz` archive with `u` and, if you like, the rest by name.

    What an archive does not say is not known, the boundaries included.

    Args:
        path: the file.
        axes: number of spatial axes, where the archive has no `axes`; see `from_arrays`.
    """
    path = Path(path)
    arrays = read_npz(path) if zipfile.is_zipfile(path) else {"u": read_npy(path)}
    if "u" not in arrays and len(arrays) == 1:
        arrays = {"u": next(iter(arrays.values()))}
    if "u" not in arrays:
        raise DataError(path, "arrays", ", ".join(sorted(arrays)) or "nothing", NAMES)
    for key, ours in CALLED.items():
        if key in arrays:
            raise DataError(path, "arrays", key, NAMES, f"is it {ours}? Leave out what is neither")
    own: dict[str, Any] = {key: arrays.pop(key) for key in ("u", "dt", "dx") if key in arrays}
    if "axes" in arrays:
        axes = _whole(path, "axes", arrays.pop("axes"), axes)
    kinds = arrays.pop("boundaries", np.asarray(""))
    boundaries = kinds.item() if kinds.ndim == 0 else kinds.tolist()
    names = clean(arrays.pop("channels", np.zeros(0)).tolist())
    return from_arrays(
        **own, conditions=arrays, boundaries=boundaries, names=names or None, axes=axes, source=path
    )


def _whole(path: Path, key: str, values: np.ndarray, asked: int | None) -> int:
    """A number of an archive; `DataError` where another one was given."""
    if values.size != 1 or values.dtype.kind not in "iu":
        raise DataError(path, key, values.tolist(), "a whole number")
    if asked not in (None, values.item()):
        raise DataError(path, key, values.item(), f"{asked}, as was given")
    return int(values.item())


def _texts(path: Path, key: str, given: Any) -> tuple[str, ...]:
    """Names; `DataError` for anything that is not."""
    listed = tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [one for one in listed if not isinstance(one, str)]:
        raise DataError(path, key, wrong[0], "texts")
    return listed


def _channelled(
    path: Path, given: ArrayLike, axes: int | None, names: Sequence[str]
) -> tuple[np.ndarray, int]:
    """`u` as `[N, T, C, *space]` float32 (float64 stays) and its number of axes of space."""
    u = to_array(path, "u", given)
    if u.dtype.kind not in "fiu":
        raise DataError(path, "u", u.dtype, "real numbers")
    if not 3 <= u.ndim <= 6 or 0 in u.shape:
        expected = "[N, T, X] or [N, T, C, X] (up to three axes of space), not empty"
        raise DataError(path, "u", f"shape {list(u.shape)}", expected)
    if axes is not None and (isinstance(axes, bool) or axes not in (1, 2, 3)):
        raise ConfigError("axes", axes, "1, 2 or 3")
    space = axes or (1 if u.ndim <= 4 else u.ndim - 3)
    if u.ndim - space not in (2, 3):
        raise DataError(path, "u", f"shape {list(u.shape)}", f"[N, T, (C,) {space} axes of space]")
    _check_reading(path, u.shape, axes, space, len(names))
    values = u if u.ndim - space == 3 else u[:, :, None]
    return values if u.dtype.kind == "f" else values.astype(np.float32), space


def _check_reading(
    path: Path, shape: tuple[int, ...], axes: int | None, space: int, names: int
) -> None:
    """`DataError` where the third or the last axis may be channels or space as well.

    Args:
        path: for messages.
        shape: shape of `u`.
        axes: number of spatial axes, as given.
        space: number of spatial axes used.
        names: names of channels, as given; as many as the third axis has points settle it.
    """
    if len(shape) - space == 2 or names == shape[2] > 1:
        return
    third, *grid = shape[2:]
    found = f"shape {list(shape)}"
    if shape[-1] <= MANY and QUARTER * shape[-1] <= min(shape[2:-1]):
        expected = f"[N, T, C, {'X, Y, Z'[: 3 * space - 2]}]"
        raise DataError(path, "u", found, expected, LAST)
    if axes is None and space < 3 and (third > MANY or third > FEW and 2 * third >= min(grid)):
        expected = "one reading: the third axis may be channels or space"
        raise DataError(path, "u", found, expected, AXES.format(one=space, more=space + 1))


def _column(
    path: Path, key: str, given: ArrayLike, shape: tuple[int, ...], positive: bool = False
) -> np.ndarray:
    """Numbers for every trajectory, float64."""
    values = check_numbers(path, key, given)
    if positive and (values <= 0).any():
        raise DataError(path, key, values.min(), "above 0")
    try:
        return np.broadcast_to(values, shape).astype(np.float64)
    except ValueError:
        expected = f"one number or {list(shape)}"
        raise DataError(path, key, f"shape {list(values.shape)}", expected) from None
