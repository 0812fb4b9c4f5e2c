"""Trajectories of fields: on disk, read in part, or on the device for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError


class FieldSet(NamedTuple):
    """Trajectories in a file; nothing is read before it is asked for.

    Attributes:
        path: where they are.
        layout: name of the file's layout.
        shape: `(trajectories, frames, C, *space)`.
        read: `(rows, frames) -> [len(rows), len(frames), C, *space]` for an index or slice of
            either.
        dt: `[trajectories]` time between frames.
        extent: `[trajectories]` length of the domain.
        parameters: name -> `[trajectories]` values of the equation's parameters.
    """

    path: Path
    layout: str
    shape: tuple[int, ...]
    read: Callable[[Any, Any], np.ndarray]
    dt: np.ndarray
    extent: np.ndarray
    parameters: Mapping[str, np.ndarray]


class Fields(NamedTuple):
    """Training data on the device.

    Attributes:
        fields: `[trajectories, frames, C, *space]` float32.
        conditions: `[trajectories, P]` what an emulator is told about each, scaled.
    """

    fields: jax.Array
    conditions: jax.Array


# How PDE-Refiner scales what it embeds, to about [0, 10].
CONDITIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "dt": lambda dt: (dt - 0.15) * 100.0,
    "dx": lambda dx: (dx - 0.2) * 100.0,
    "viscosity": lambda nu: (nu - 0.5) * 100.0,
}


def to_device(
    found: FieldSet, *, every: int = 1, points: int | None = None, conditions: tuple[str, ...] = ()
) -> Fields:
    """Read all of it as float32.

    Args:
        found: what to read.
        every: keep one frame in so many.
        points: stride down to this many points per axis; None keeps all.
        conditions: of `dt` (per frame of the file), `dx` and the parameters' names.

    Raises:
        DataError: no such condition, or `points` does not divide the grid.
    """
    stride = 1
    if points is not None:
        if found.shape[-1] % points:
            raise DataError(found.path, "grid", found.shape[-1], f"a multiple of {points} points")
        stride = found.shape[-1] // points
    values = found.read(slice(None), slice(0, None, every))
    space = (slice(None, None, stride),) * (values.ndim - 3)
    known = {"dt": found.dt, "dx": found.extent / found.shape[-1], **found.parameters}
    columns = []
    for name in conditions:
        if name not in known:
            raise DataError(found.path, "conditions", name, f"one of {sorted(known)}")
        columns.append(CONDITIONS.get(name, lambda value: value)(known[name]))
    table = np.stack(columns, 1) if columns else np.zeros((len(values), 0))
    return Fields(jnp.asarray(values[(..., *space)], jnp.float32), jnp.asarray(table, jnp.float32))


def sample_windows(
    data: Fields, key: jax.Array, batch: int, frames: int, *, shift: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Random windows of consecutive frames.

    Args:
        data: the trajectories.
        key: consumed.
        batch: windows.
        frames: frames in each.
        shift: move each around the circle by a random number of points (1-D); an equation
            without a preferred place looks the same there.

    Returns:
        `[batch, frames, C, *space]` and their conditions `[batch, P]`.

    Raises:
        ValueError: trajectories shorter than a window.
    """
    rows, length = data.fields.shape[:2]
    if length < frames:
        raise ValueError(f"frames: found trajectories of {length}, expected at least {frames}")
    row_key, time_key, shift_key = jax.random.split(key, 3)
    row = jax.random.randint(row_key, (batch,), 0, rows)
    begin = jax.random.randint(time_key, (batch,), 0, length - frames + 1)
    windows = data.fields[row[:, None], begin[:, None] + jnp.arange(frames)]
    if shift:
        by = jax.random.randint(shift_key, (batch,), 0, data.fields.shape[-1])
        windows = jax.vmap(lambda w, n: jnp.roll(w, n, -1))(windows, by)
    return windows, data.conditions[row]
