"""Trajectories that are arrays: in memory, or in a plain `.npy` or `.npz` file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.foreign import clean
from jaxrl_rollouts.numpy_files import read_npy, read_npz

from ..boundaries import EXPECTED, is_known
from ..fieldset import FieldSet
from .stored import check_finite, check_numbers, positions

MEMORY = Path("array")  # the "file" of arrays in memory, for messages
MANY = 16  # channels; four axes with more might as well be two of space
NAMES = "u, and perhaps dt, dx, boundaries, channels and parameters of the equation"
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
    """Trajectories of your own, checked.

        fields = from_arrays(u, dt=0.1, dx=22 / 64)                      # u [N, T, X]
        fields = from_arrays(u, conditions={"viscosity": nu})            # nu [N]

    Args:
        u: `[N, T, X]` or `[N, T, C, X]`: trajectories, frames, channels, points; with `axes=2`
            `[N, T, X, Y]` or `[N, T, C, X, Y]`, and likewise with 3.
        dt: time between frames, one for all or `[N]`; None where it is not known.
        dx: distance between points, one for all, per axis or `[N, axes]`; None likewise.
        conditions: parameters of the equation by name, one for all or `[N]`.
        boundaries: of every axis, or one each: periodic, wall, open, neumann or dirichlet=VALUE,
            `LOW|HIGH` where its ends differ, "" where it is not known; see `boundaries`.
        names: of the channels.
        axes: of space; left out, 1 for three or four axes of `u`, 2 for five, 3 for six.
        source: a name for messages.

    Raises:
        DataError: a shape that does not fit, no numbers, or a value that is not finite: which
            trajectory, frame and channel.
    """
    path = Path(source)
    values, space = _channelled(path, np.asarray(u), axes)
    count, frames, channels = values.shape[:3]
    named = tuple(names) if names else _default_names(channels)
    if len(named) != channels:
        raise DataError(path, "names", f"{len(named)} names", f"{channels}, one per channel")
    kinds = (boundaries,) * space if isinstance(boundaries, str) else tuple(boundaries)
    if len(kinds) != space or not all(map(is_known, kinds)):
        expected = f"{space}: {EXPECTED}, or an empty text"
        raise DataError(path, "boundaries", ", ".join(kinds) or "nothing", expected)
    spacing = np.full((count, space), np.nan)
    if dx is not None:
        own = np.shape(dx) == (count,) and count != space
        dx = np.reshape(dx, (count, 1)) if own else dx
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

    Raises:
        ConfigError: as many as there are neither axes nor one, or other than in the file.
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


def read_arrays(path: str | Path) -> FieldSet:
    """A plain `.npy` array, or an `.npz` archive with `u` and, if you like, the rest by name.

    What an archive does not say is not known, the boundaries included.

    Raises:
        DataError: as `from_arrays`, or a file that cannot be read.
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
    kinds = arrays.pop("boundaries", np.asarray(""))
    boundaries = kinds.item() if kinds.ndim == 0 else kinds.tolist()
    names = clean(arrays.pop("channels", np.zeros(0)).tolist())
    return from_arrays(
        **own, conditions=arrays, boundaries=boundaries, names=names or None, source=path
    )


def _channelled(path: Path, u: np.ndarray, axes: int | None) -> tuple[np.ndarray, int]:
    """`u` as `[N, T, C, *space]` float32 (float64 stays) and its number of axes of space."""
    if u.dtype.kind not in "fiu":
        raise DataError(path, "u", u.dtype, "real numbers")
    if not 3 <= u.ndim <= 6 or 0 in u.shape:
        expected = "[N, T, X] or [N, T, C, X] (up to three axes of space), not empty"
        raise DataError(path, "u", f"shape {list(u.shape)}", expected)
    space = axes or (1 if u.ndim <= 4 else u.ndim - 3)
    if u.ndim - space not in (2, 3):
        raise DataError(path, "u", f"shape {list(u.shape)}", f"[N, T, (C,) {space} axes of space]")
    if axes is None and u.ndim == 4 and u.shape[2] > MANY:
        expected = f"[N, T, C, X] with at most {MANY} channels"
        hint = "axes=1 makes these channels, axes=2 a second axis of space"
        raise DataError(path, "u", f"shape {list(u.shape)}", expected, hint)
    values = u if u.ndim - space == 3 else u[:, :, None]
    return values if u.dtype.kind == "f" else values.astype(np.float32), space


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


def _default_names(channels: int) -> tuple[str, ...]:
    return ("u",) if channels == 1 else tuple(f"u_{i}" for i in range(channels))
