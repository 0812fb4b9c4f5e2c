"""PDEgym's layout (Herde et al. 2024, Poseidon) of incompressible flows: NetCDF4, so HDF5.

Those of its sets that have one array `velocity` (or `solution`) `[n, t, c, x, y]` of float32 and
nothing beside it. The compressible sets, whose array is `data`, are not read, nor are the wave
sets, which have a speed `c` beside `solution`. No file says it, so it is taken for granted: the
domain is the unit square, periodic, and the frames are spread evenly over one unit of time.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.hdf5 import open_hdf5

from ..fieldset import FieldSet
from .stored import Stored, check_count, field_array, hdf5_reader, listed

LAYOUT = "PDEgym"
KEYS = ("velocity", "solution")
# What the channels of a velocity are; the third is a tracer that the flow carries.
VELOCITY = ("velocity_x", "velocity_y", "tracer")


def pdegym_key(file: h5py.File) -> str | None:
    """The array of a file in this layout, sound or not; None for another layout."""
    there = [key for key in KEYS if isinstance(file.get(key), h5py.Dataset)]
    others = {"particles", "force", "t"} & set(file)  # PDEBench's incompressible flow has them
    return there[0] if len(there) == 1 and not others else None


def read_pdegym(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when asked for. Axes are as they are stored.

    Raises:
        DataError: another layout, or an array that is misshapen or not finite.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        key = pdegym_key(file)
        if key is None:
            expected = f"one array out of {', '.join(KEYS)}, and nothing of PDEBench's"
            raise DataError(path, "layout", f"keys {listed(file)}", expected)
        shape = field_array(path, file, key).shape
    if len(shape) != 5 or (key == "velocity" and not 2 <= shape[2] <= 3):
        raise DataError(path, key, f"shape {shape}", "axes n, t, c, x, y; c 2 or 3 of a velocity")
    count, frames, channels, *space = shape
    check_count(path, key, count)
    flow = key == "velocity" or (key == "solution" and channels == 2)
    names = VELOCITY[:channels] if flow else tuple(f"u_{i}" for i in range(channels))
    fields = [Stored(key, names, (True, True), before=True)]
    dt = 1 / (frames - 1) if frames > 1 else np.nan
    return FieldSet(
        path,
        LAYOUT,
        shape,
        hdf5_reader(path, fields, shape),
        np.full(count, dt),
        np.ones((count, 2)),
        {},
        names,
        ("periodic", "periodic"),
    )
