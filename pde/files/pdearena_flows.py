"""PDEArena's layout of flows in the plane, as its NavierStokes2D files have it.

A group named after the split holds a scalar that the flow carries and the flow's velocity, `u`,
`vx` and `vy` [n, T, X, Y]; `t` [n, T], `x` [n, X], `y` [n, Y], `dt`, `dx`, `dy` [n] and the
buoyancy `buo_y` [n]. Names, shapes and float64 are those of the published generator and reader,
which were read; a published file was not at hand. There `x` runs from 0 to the domain's far end and
`dx` is its distance, the length over one less than the points, although the scalar is of the
centres of as many cells, and the velocities, of their faces, lie half a cell beside it. Fields are
read as they are; the domain has the length of `x`. In periodic files, ours, the end is no point.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError, printable
from jaxrl_rollouts.hdf5 import new_hdf5, open_hdf5, plain_attributes

from ..equations import EQUATIONS
from ..fieldset import FieldSet
from ..flows import to_velocity
from ..generate import Solved
from .pdearena import SPLITS, append
from .stored import (
    Stored,
    axis_extent,
    check_count,
    check_even,
    check_shape,
    field_array,
    frame_time,
    hdf5_reader,
    listed,
    numbers,
)

LAYOUT = "PDEArena (flows)"
FIELDS = ("u", "vx", "vy")
COORDINATES = ("t", "x", "y", "dt", "dx", "dy")


def find_flow_group(file: h5py.File) -> str | None:
    """The split's group in a file of this layout, sound or not; None for another layout."""
    for split in SPLITS:
        group = file.get(split)
        if isinstance(group, h5py.Group) and {"vx", "vy"} & {*map(str, group)}:
            return split
    return None


def read_pdearena_flows(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when needed.

    Whatever else has a number for every trajectory, `buo_y` among it, becomes one of `parameters`.
    Boundaries are walls, which the published sets have, unless the group has `periodic`, as those
    of `write_pdearena_flows` do. `dx` and `dt` go before `x` and `t`, which stand in for them.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        split = find_flow_group(file)
        if split is None:
            expected = f"a group {', '.join(SPLITS)} with arrays {', '.join(FIELDS)}"
            raise DataError(path, "layout", f"keys {listed(file)}", expected)
        keys = [f"{split}/{name}" for name in FIELDS]
        shape = field_array(path, file, keys[0]).shape
        if len(shape) != 4:
            expected = "an array [trajectories, frames, X, Y]"
            raise DataError(path, keys[0], f"shape {shape}", expected)
        for key in keys[1:]:
            check_shape(path, key, field_array(path, file, key).shape, shape)
        check_count(path, keys[0], shape[0])
        check_even(path, file, split)
        parameters = _parameters(path, file, split, shape[0])
        attributes = plain_attributes(file[split])  # type: ignore[arg-type]
        kind = "periodic" if attributes.get("boundaries") == "periodic" else "wall"
        dt = _spacing(path, file, split, "dt", "t", shape[:2])
        extent = [
            _spacing(path, file, split, f"d{axis}", axis, (shape[0], size))
            * (size if kind == "periodic" else size - 1)
            for axis, size in zip("xy", shape[2:], strict=True)
        ]
    known = str(attributes.get("equation", ""))
    whole = (*shape[:2], len(FIELDS), *shape[2:])
    fields = [Stored(key, (name,), (True, True)) for key, name in zip(keys, FIELDS, strict=True)]
    return FieldSet(
        path,
        LAYOUT,
        whole,
        hdf5_reader(path, fields, whole),
        dt,
        np.stack(extent, 1),
        parameters,
        FIELDS,
        (kind, kind),
        known if known in EQUATIONS else "",
    )


def _spacing(
    path: Path, file: h5py.File, split: str, step: str, places: str, shape: tuple[int, ...]
) -> np.ndarray:
    """Distance `[n]` between frames or points; NaN where the file has neither array."""
    key = f"{split}/{step}"
    if step in file[split]:  # type: ignore[operator]
        return numbers(path, file, key, shape[:1], positive=True).astype(np.float64)
    key = f"{split}/{places}"
    if places not in file[split]:  # type: ignore[operator]
        return np.full(shape[0], np.nan)
    values = numbers(path, file, key, shape)
    if places == "t":
        return frame_time(path, key, values)
    return axis_extent(path, key, values) / shape[1]


def _parameters(path: Path, file: h5py.File, split: str, count: int) -> dict[str, np.ndarray]:
    """Numbers `[n]` by name that are neither fields nor coordinates."""
    group, found = file[split], {}
    for name in map(str, group):  # type: ignore[arg-type]
        value = group[name]  # type: ignore[index]
        if name in (*FIELDS, *COORDINATES) or not isinstance(value, h5py.Dataset):
            continue
        if value.dtype.kind in "fiu" and (name == "buo_y" or value.shape == (count,)):
            values = numbers(path, file, f"{split}/{name}", (count,))
            found[printable(name)] = values.astype(np.float64)
    return found


def write_pdearena_flows(
    path: str | Path,
    chunks: Iterable[Solved],
    *,
    split: str = "train",
    parameter: str = "viscosity",
    equation: str = "",
) -> Path:
    """Write solved vorticities as they come; the file appears once the last is in.

    The scalar `u` is the vorticity, which the flow carries, and `vx`, `vy` are
    `flows.to_velocity` of it. The equation's parameter is an
    array of its own name; there is no buoyancy. Attributes of the group, which PDEArena does not
    look at, say that space is periodic and which equation it is.

    Args:
        path: the file; PDEArena looks for the split's name and `h5` in its name.
        chunks: chunks of `generate`; fields `[b, frames, 1, N, N]`, vorticity.
        split: train, valid or test.
        parameter: the name of the equation's parameter.
        equation: the equation solved.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ConfigError("split", split, f"one of {', '.join(SPLITS)}")
    with new_hdf5(path) as file:
        group, count = file.create_group(split), 0
        group.attrs.update(boundaries="periodic", equation=equation)
        for chunk in chunks:
            rows, frames, channels, *space = chunk.fields.shape
            if channels != 1 or len(space) != 2:
                expected = "vorticity, [b, frames, 1, N, N]"
                raise DataError(path, "fields", f"shape {chunk.fields.shape}", expected)
            with jax.enable_x64(True):
                unit = np.asarray(to_velocity(jnp.asarray(chunk.fields, jnp.float64), 1.0))
            velocity = unit * np.reshape(chunk.extent, (-1, 1, 1, 1, 1))
            spacing = chunk.extent / space[0]
            places = spacing[:, None] * np.arange(space[0])
            columns = {
                "u": chunk.fields[:, :, 0],
                "vx": velocity[:, :, 0],
                "vy": velocity[:, :, 1],
                "t": np.arange(frames) * chunk.dt[:, None],
                "dt": chunk.dt,
                "x": places,
                "y": places,
                "dx": spacing,
                "dy": spacing,
                parameter: chunk.parameter,
            }
            append(group, columns, count)
            count += rows
        if not count:
            raise DataError(path, "chunks", "none", "at least one")
    return path
