"""PDEArena's layout of one-dimensional trajectories, as its Kuramoto-Sivashinsky files have it.

A group named after the split holds `pde_<frames>-<points>` [n, T, N], `x` [n, N], `dx` [n],
`t` [n, T], `dt` [n] and, where viscosity varies, `v` [n].
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import new_hdf5, open_hdf5, read_array

from ..fieldset import FieldSet
from ..generate import Solved

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
        chunks: of `generate`.
        split: train, valid or test.
        viscosity: store the equation's parameter as `v`.

    Raises:
        ConfigError: another split.
        DataError: nothing to write, or it cannot be written.
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
                f"pde_{frames}-{points}": chunk.fields[:, :, 0], "x": place,
                "dx": chunk.extent / points, "t": np.arange(frames) * chunk.dt[:, None],
                "dt": chunk.dt,
            }  # fmt: skip
            columns |= {"v": chunk.parameter} if viscosity else {}
            for name, values in columns.items():
                if not count:
                    group.create_dataset(
                        name, shape=(0, *values.shape[1:]), maxshape=(None, *values.shape[1:]),
                        chunks=(1, *values.shape[1:]) if values.ndim > 1 else (1024,),
                        dtype=values.dtype,
                    )  # fmt: skip
                stored: Any = group[name]
                stored.resize(count + rows, axis=0)
                stored[count:] = values
            count += rows
        if not count:
            raise DataError(path, "chunks", "none", "at least one")
    return path


def read_pdearena(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when asked for.

    Raises:
        DataError: another layout, or an array that is missing, misshapen or not finite.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        found = find_group(file)
        if found is None:
            expected = f"a group {', '.join(SPLITS)} with an array pde_..."
            raise DataError(path, "layout", f"keys {', '.join(sorted(file)) or 'none'}", expected)
        split, key = found
        fields: Any = file[key]
        if not isinstance(fields, h5py.Dataset) or fields.ndim != 3 or 0 in fields.shape:
            shape = getattr(fields, "shape", "a group")
            raise DataError(path, key, f"shape {shape}", "an array [trajectories, frames, points]")
        if fields.dtype.kind != "f":
            raise DataError(path, key, fields.dtype, "floating-point numbers")
        count, frames, points = fields.shape
        columns = {name: read_array(path, file, f"{split}/{name}") for name in ("dx", "dt")}
        parameters = {}
        if "v" in file[split]:  # type: ignore[operator]
            columns["v"] = read_array(path, file, f"{split}/v")
            parameters["viscosity"] = columns["v"]
        for name, values in columns.items():
            if values.shape != (count,):
                raise DataError(path, f"{split}/{name}", f"shape {values.shape}", f"({count},)")
            if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
                raise DataError(path, f"{split}/{name}", values.dtype, "finite numbers")
    for name in ("dx", "dt"):
        if (columns[name] <= 0).any():
            raise DataError(path, f"{split}/{name}", columns[name].min(), "values above 0")

    def read(rows: Any, steps: Any) -> np.ndarray:
        with open_hdf5(path) as file:
            stored: Any = file[key]
            try:
                # Rows first: h5py takes one list of indices at a time.
                values = stored[rows] if not isinstance(rows, int) else stored[rows : rows + 1]
            except (OSError, TypeError, ValueError) as error:
                raise DataError(path, key, str(error).split("\n")[0], "readable rows") from error
        values = values[:, steps][:, :, None]
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values).all((1, 2, 3)))[0])
            raise DataError(path, key, f"a non-finite value in row {bad}", "finite numbers")
        return values

    shape = (count, frames, 1, points)
    return FieldSet(path, LAYOUT, shape, read, columns["dt"], columns["dx"] * points, parameters)
