"""PDEBench's three layouts (Takamoto et al. 2022), distinguished by what is in the file.

Advection, Burgers, reaction-diffusion, compressible flow and Darcy: arrays `tensor` (and `nu`), or
`density`, `pressure`, `Vx`, ..., `[n, t, *space]`, with `x-coordinate`, ... and `t-coordinate`.
Diffusion-sorption, diffusion-reaction and shallow water: a group per seed, `0000`, with `data`
`[t, *space, c]` and `grid/x`, ..., `grid/t`. Incompressible flow: `velocity`, `particles`, `force`
and `t`, with components last.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.hdf5 import BROKEN, open_hdf5, plain_attributes

from ..fieldset import FieldSet
from .stored import (
    Stored,
    check_count,
    check_finite,
    check_numbers,
    check_shape,
    checked_reader,
    constant_channels,
    default_names,
    field_array,
    frame_time,
    grid_extents,
    hdf5_reader,
    listed,
    numbers,
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
    extents = grid_extents(path, file, [f"{name}-coordinate" for name in axes], space, count)
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
        extents,
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
    places = [f"{keys[0]}/grid/{name}" for name in AXES[: len(space)]]
    extents = grid_extents(path, file, places, space, len(keys))
    clock = f"{keys[0]}/grid/t"
    dt = frame_time(path, clock, numbers(path, file, clock, (frames,)))
    shape = (len(keys), frames, components, *space)

    def load(rows: np.ndarray, frames: np.ndarray) -> np.ndarray:
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

    return FieldSet(
        path,
        SEEDS,
        shape,
        checked_reader(path, "data", shape, load, dtype.itemsize),
        np.full(len(keys), dt),
        extents,
        {},
        default_names(components),
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
    times = numbers(path, file, "t", (count, frames))
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
