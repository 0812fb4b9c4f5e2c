"""PDEBench's three layouts (Takamoto et al. 2022), distinguished by what is in the file.

Advection, Burgers, reaction-diffusion, compressible flow and Darcy: arrays `tensor` (and `nu`), or
`density`, `pressure`, `Vx`, ..., `[n, t, *space]`, with `x-coordinate`, ... and `t-coordinate`.
Diffusion-sorption, diffusion-reaction and shallow water: a group per seed, `0000`, with `data`
`[t, *space, c]` and `grid/x`, ..., `grid/t`. Incompressible flow: `velocity`, `particles`, `force`
and `t`, with components last.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.hdf5 import BROKEN, open_hdf5, plain_attributes

from ..fieldset import FieldSet
from .stored import (
    Stored,
    axis_extent,
    check_count,
    check_finite,
    check_numbers,
    check_shape,
    constant_channels,
    field_array,
    frame_time,
    hdf5_reader,
    listed,
    numbers,
    positions,
    take,
)

SINGLE, SEEDS, INCOMPRESSIBLE = (
    f"PDEBench ({kind})" for kind in ("one array per field", "a group per seed", "incompressible")
)
AXES = "xyz"


def pdebench_kind(file: h5py.File) -> str | None:
    """Which of the three layouts this is, sound or not; None if none."""
    if "tensor" in file or "density" in file:
        return SINGLE
    if "velocity" in file or "particles" in file:
        return INCOMPRESSIBLE
    return SEEDS if len(file) and all(str(name).isdigit() for name in file) else None


def read_pdebench(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when needed.

    Numbers among the file's attributes (`beta`, `Nu`, `eta`, ...) become `parameters`; force and
    permeability are `constant` channels.

    Raises:
        DataError: another layout, or an array that is missing, misshapen or not finite.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        kind = pdebench_kind(file)
        if kind is None:
            expected = "tensor, density, velocity or groups 0000, 0001, ..."
            raise DataError(path, "layout", f"keys {listed(file)}", expected)
        readers = {SINGLE: _single, SEEDS: _seeds, INCOMPRESSIBLE: _incompressible}
        return readers[kind](path, file)


def _parameters(path: Path, file: h5py.File, count: int) -> dict[str, np.ndarray]:
    return {
        name: np.full(count, check_numbers(path, f"root@{name}", value), np.float64)
        for name, value in plain_attributes(file).items()
        if isinstance(value, int | float) and name != "latestIndex"
    }


def _single(path: Path, file: h5py.File) -> FieldSet:
    axes = [name for name in AXES if f"{name}-coordinate" in file] or ["x"]
    flow = ("density", "pressure", *(f"V{name}" for name in axes))
    keys = ("tensor",) if "tensor" in file else flow
    shape = field_array(path, file, keys[0]).shape
    if len(shape) != 2 + len(axes):
        raise DataError(
            path,
            keys[0],
            f"shape {shape}",
            f"axes n, t, {', '.join(axes)} (the coordinates)",
            "a file as PDEBench's generator leaves it has a leading axis of one: drop it",
        )
    count, frames, *space = shape
    check_count(path, keys[0], count)
    fields = [
        Stored(key, ("u",) if key == "tensor" else (key,), (True,) * len(axes)) for key in keys
    ]
    if "tensor" in file and "nu" in file:
        fields.append(Stored("nu", ("nu",), (True,) * len(axes), times=False))
    for field in fields:
        expected = shape if field.times else (count, *space)
        check_shape(path, field.key, field_array(path, file, field.key).shape, expected)
    extents = []
    for name, points in zip(axes, space, strict=True):
        places = numbers(path, file, f"{name}-coordinate")
        check_shape(path, f"{name}-coordinate", places.shape, (points,))
        extents.append(axis_extent(path, f"{name}-coordinate", places))
    dt = np.full((), np.nan)
    if frames > 1 or "t-coordinate" in file:
        times = numbers(path, file, "t-coordinate")
        # Most of the published files have the end of a frame that was not written, too.
        if times.shape not in ((frames,), (frames + 1,)):
            expected = f"({frames},) or ({frames + 1},)"
            raise DataError(path, "t-coordinate", f"shape {times.shape}", expected)
        dt = frame_time(path, "t-coordinate", times[:frames])
    channels = tuple(name for field in fields for name in field.channels)
    whole = (count, frames, len(channels), *space)
    return FieldSet(
        path,
        SINGLE,
        whole,
        hdf5_reader(path, fields, whole),
        np.full(count, dt),
        np.tile(extents, (count, 1)),
        _parameters(path, file, count),
        channels,
        ("",) * len(axes),
        constant=constant_channels(fields),
    )


def _seeds(path: Path, file: h5py.File) -> FieldSet:
    """All seeds are solved on one grid; the first is looked at, each of the others when read."""
    keys = sorted(file)
    stored = field_array(path, file, f"{keys[0]}/data")
    first, dtype = stored.shape, stored.dtype
    if not 3 <= len(first) <= 5:
        raise DataError(path, f"{keys[0]}/data", f"shape {first}", "axes t, space (1 to 3), c")
    frames, *space, components = first
    check_count(path, f"{keys[0]}/data", len(keys))
    extents = []
    for name, points in zip(AXES, space, strict=False):
        key = f"{keys[0]}/grid/{name}"
        places = numbers(path, file, key)
        check_shape(path, key, places.shape, (points,))
        extents.append(axis_extent(path, key, places))
    times = numbers(path, file, f"{keys[0]}/grid/t")
    check_shape(path, f"{keys[0]}/grid/t", times.shape, (frames,))
    dt = frame_time(path, f"{keys[0]}/grid/t", times)
    shape = (len(keys), frames, components, *space)

    def read(rows: Any, frames: Any) -> np.ndarray:
        rows, frames = (
            positions(path, "data", i, n) for i, n in zip((rows, frames), shape[:2], strict=True)
        )
        size = len(rows) * len(frames) * math.prod(first[1:])
        check_room(path, "data", dtype.itemsize * size)
        parts = np.empty((len(rows), len(frames), *first[1:]), dtype)
        with open_hdf5(path) as file:
            for at, row in enumerate(rows):
                key = f"{keys[row]}/data"
                stored = field_array(path, file, key)
                check_shape(path, key, stored.shape, first)
                try:
                    values = take(stored, None, frames)
                except BROKEN as error:
                    raise DataError(path, key, one_line(error), "readable rows") from error
                one = np.moveaxis(values[None], -1, 2)
                check_finite(path, key, one, rows[at : at + 1], frames)
                parts[at] = values
        return np.moveaxis(parts, -1, 2)

    channels = ("u",) if components == 1 else tuple(f"u_{i}" for i in range(components))
    return FieldSet(
        path,
        SEEDS,
        shape,
        read,
        np.full(len(keys), dt),
        np.tile(extents, (len(keys), 1)),
        {},
        channels,
        ("",) * len(space),
    )


def _incompressible(path: Path, file: h5py.File) -> FieldSet:
    """No array has the extent of its domain or the places of its points.

    The generator's settings, text in an attribute `config`, are not read.
    """
    velocity = field_array(path, file, "velocity").shape
    count, frames, *space, components = velocity if len(velocity) > 3 else (0, 0, 0, 0)
    if not count or len(space) != components or components > 3:
        raise DataError(path, "velocity", f"shape {velocity}", "axes n, t, space, one per axis")
    check_count(path, "velocity", count)
    axes, grid = AXES[:components], (True,) * components
    particles = (*velocity[:-1], 1)
    fields = [
        Stored("velocity", tuple(f"velocity_{name}" for name in axes), grid),
        Stored("particles", ("particles",), grid),
    ]
    check_shape(path, "particles", field_array(path, file, "particles").shape, particles)
    if "force" in file:
        force = (count, *space, components)
        check_shape(path, "force", field_array(path, file, "force").shape, force)
        fields.append(Stored("force", tuple(f"force_{name}" for name in axes), grid, times=False))
    times = numbers(path, file, "t")
    check_shape(path, "t", times.shape, (count, frames))
    channels = tuple(name for field in fields for name in field.channels)
    shape = (count, frames, len(channels), *space)
    return FieldSet(
        path,
        INCOMPRESSIBLE,
        shape,
        hdf5_reader(path, fields, shape),
        frame_time(path, "t", times),
        np.full((count, len(space)), np.nan),
        _parameters(path, file, count),
        channels,
        ("",) * len(space),
        constant=constant_channels(fields),
    )
