"""PDEArena's layout of one-dimensional trajectories, as its Kuramoto-Sivashinsky files have it.

Flows in the plane have another one, `pdearena_flows`.

A group named after the split holds `pde_<frames>-<points>` [n, T, N], `x` [n, N], `dx` [n],
`t` [n, T], `dt` [n] and, where viscosity varies, `v` [n].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import new_hdf5, open_hdf5

from ..fieldset import FieldSet
from ..generate import Solved
from .stored import Stored, check_count, check_even, field_array, hdf5_reader, listed, numbers

SPLITS = ("train", "valid", "test")
LAYOUT = "PDEArena"


def find_group(file: h5py.File) -> tuple[str, str] | None:
    """Names of the split's group and of its fields; None if this is another layout."""
    for split in SPLITS:
        group = file.get(split)
        if isinstance(group, h5py.Group):
            for key in map(str, group.keys()):
                if key.startswith("pde_"):
                    return split, f"{split}/{key}"
    return None


def write_pdearena(
    path: str | Path, chunks: Iterable[Solved], *, split: str = "train", viscosity: bool = False
) -> Path:
    """Write solved chunks as they come; the file appears once the last is in.

    Args:
        path: the file.
        chunks: chunks of `generate`.
        split: train, valid or test.
        viscosity: store the equation's parameter as `v`.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ConfigError("split", split, f"one of {', '.join(SPLITS)}")
    with new_hdf5(path) as file:
        group, count = file.create_group(split), 0
        for chunk in chunks:
            rows, frames, _, points = chunk.fields.shape
            place = np.arange(points) * (chunk.extent[:, None] / points)
            columns = {
                f"pde_{frames}-{points}": chunk.fields[:, :, 0],
                "x": place,
                "dx": chunk.extent / points,
                "t": np.arange(frames) * chunk.dt[:, None],
                "dt": chunk.dt,
            }
            columns |= {"v": chunk.parameter} if viscosity else {}
            append(group, columns, count)
            count += rows
        if not count:
            raise DataError(path, "chunks", "none", "at least one")
    return path


def append(group: h5py.Group, columns: Mapping[str, np.ndarray], count: int) -> None:
    """Write more rows of arrays `[rows, ...]` behind the first `count`."""
    for name, values in columns.items():
        if not count:
            group.create_dataset(
                name,
                shape=(0, *values.shape[1:]),
                maxshape=(None, *values.shape[1:]),
                chunks=(1, *values.shape[1:]) if values.ndim > 1 else (1024,),
                dtype=values.dtype,
                fletcher32=True,
            )
        stored: Any = group[name]
        stored.resize(count + len(values), axis=0)
        stored[count:] = values


def read_pdearena(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when needed."""
    path = Path(path)
    with open_hdf5(path) as file:
        found = find_group(file)
        if found is None:
            expected = f"a group {', '.join(SPLITS)} with an array pde_..."
            raise DataError(path, "layout", f"keys {listed(file)}", expected)
        split, key = found
        fields = field_array(path, file, key)
        if fields.ndim != 3:
            expected = "an array [trajectories, frames, points]"
            raise DataError(path, key, f"shape {fields.shape}", expected)
        count, frames, points = fields.shape
        check_count(path, key, count)
        check_even(path, file, split)
        names = {"dx": "dx", "dt": "dt"}
        names |= {"v": "viscosity"} if "v" in file[split] else {}  # type: ignore[operator]
        columns = {
            meaning: numbers(path, file, f"{split}/{name}", (count,), positive=name != "v")
            for name, meaning in names.items()
        }
    dx, dt = columns.pop("dx"), columns.pop("dt")
    shape = (count, frames, 1, points)
    read = hdf5_reader(path, [Stored(key, ("u",), (True,))], shape)
    return FieldSet(
        path, LAYOUT, shape, read, dt, (dx * points)[:, None], columns, ("u",), ("periodic",)
    )
