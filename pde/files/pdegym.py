"""PDEgym's layout (Herde et al. 2024, Poseidon): NetCDF4, so HDF5.

Three kinds, known by what is in the file. Flows: one array `velocity`, `solution` or, of the
compressible sets, `data`, `[n, t, c, x, y]`. Scalars: `solution` `[n, t, x, y]` (Allen-Cahn).
Waves: the same, and beside it their speed `c` `[n, x, y]`, a constant channel. No file has more.
For granted is taken of flows that the domain is the unit square, periodic, and that frames are
spread evenly over one unit of time; of scalars that they are periodic; of waves that space is open,
for they are absorbed. Lengths and times of these two are not known.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.hdf5 import open_hdf5

from ..fieldset import FieldSet
from .stored import (
    Stored,
    check_count,
    check_shape,
    constant_channels,
    field_array,
    hdf5_reader,
    listed,
)

LAYOUT = "PDEgym"
# The arrays: their least and most channels, in words what else is expected.
CHANNELS = {
    "velocity": (2, 3, "c 2 or 3 of a velocity"),
    "solution": (1, np.inf, "or n, t, x, y"),
    "data": (4, np.inf, "c at least 4 of data"),
}
SPEED = "c"
# What the channels of a velocity are; the third is a tracer that the flow carries.
VELOCITY = ("velocity_x", "velocity_y", "tracer")
# Of compressible flow; what may come after these has no name of its own.
COMPRESSIBLE = ("density", "velocity_x", "velocity_y", "pressure")


def pdegym_key(file: h5py.File) -> str | None:
    """The array of a file in this layout, sound or not; None for another layout."""
    there = [key for key in CHANNELS if isinstance(file.get(key), h5py.Dataset)]
    others = {"particles", "force", "t"} & set(file)  # PDEBench's incompressible flow has them
    return there[0] if len(there) == 1 and not others else None


def read_pdegym(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when needed. Axes are as they are stored."""
    path = Path(path)
    with open_hdf5(path) as file:
        key = pdegym_key(file)
        if key is None:
            expected = f"one array out of {', '.join(CHANNELS)}, and nothing of PDEBench's"
            raise DataError(path, "layout", f"keys {listed(file)}", expected)
        shape = field_array(path, file, key).shape
        flow = len(shape) == 5
        waves = SPEED in file and not flow
        if waves:
            speed = field_array(path, file, SPEED).shape
            check_shape(path, SPEED, speed, (*shape[:1], *shape[2:]))
    names = channel_names(path, key, shape)
    fields = [Stored(key, names, (True, True), before=True)]
    if waves:
        fields.append(Stored(SPEED, ("speed",), (True, True), times=False))
    count, frames, *_ = shape
    check_count(path, key, count)
    whole = (count, frames, sum(len(field.channels) for field in fields), *shape[-2:])
    dt = 1 / (frames - 1) if flow and frames > 1 else np.nan
    ends = "open" if waves else "periodic"
    return FieldSet(
        path,
        LAYOUT,
        whole,
        hdf5_reader(path, fields, whole),
        np.full(count, dt),
        np.full((count, 2), 1.0 if flow else np.nan),
        {},
        tuple(name for field in fields for name in field.channels),
        (ends, ends),
        constant=constant_channels(fields),
    )


def channel_names(path: Path, key: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the channels of an array `[n, t, c, x, y]`, or `[n, t, x, y]` of one."""
    if len(shape) == 4 and key == "solution":
        return ("u",)
    least, most, known = CHANNELS[key]
    if len(shape) != 5 or not least <= shape[2] <= most:
        raise DataError(path, key, f"shape {shape}", f"axes n, t, c, x, y; {known}")
    count = shape[2]
    flow = key == "velocity" or (key == "solution" and count == 2)
    known = VELOCITY if flow else COMPRESSIBLE if key == "data" else ()
    return tuple(known[i] if i < len(known) else f"u_{i}" for i in range(count))
