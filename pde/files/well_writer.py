"""The Well's layout: writing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import new_hdf5

from ..generate import Solved
from .pdearena import SPLITS
from .well import EXTENT, FRAME_TIME, ORDERS


def write_well(
    path: str | Path,
    chunks: Iterable[Solved],
    *,
    split: str = "train",
    name: str = "",
    parameter: str = "viscosity",
    channels: Sequence[str] = ("u",),
    equation: str = "",
    dtype: str = "float32",
) -> Path:
    """Write solved chunks as they come; the file appears once the last is in.

    Fields are scalar fields on periodic axes x, y, z. Where trajectories differ in length or in
    time between frames, their axes are stored for each (`sample_varying`); in any case the
    scalars `frame_time` and `extent_x`, ... hold both in float64, so that they are read back
    exactly. A parameter that is the same throughout is a simulation parameter and a constant
    scalar; one that varies is a scalar per trajectory.

    Args:
        path: the file; The Well's own tools expect `NAME/data/SPLIT/FILE.hdf5`.
        chunks: of `generate`; fields `[b, frames, C, *space]` with one to three axes of space.
        split: train, valid or test; kept as an attribute.
        name: of the set; that of the file unless given.
        parameter: the name of the equation's parameter.
        channels: a name for each of `C`.
        equation: that was solved, kept as an attribute.
        dtype: of the fields; the schema asks for float32.

    Raises:
        ConfigError: another split.
        DataError: nothing to write, chunks that do not fit each other, or it cannot be written.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ConfigError("split", split, f"one of {', '.join(SPLITS)}")
    columns: dict[str, list[np.ndarray]] = {"dt": [], "extent": [], "value": []}
    shape: tuple[int, ...] = ()
    with new_hdf5(path) as file:
        group = file.create_group(ORDERS[0])
        for chunk in chunks:
            shape = shape or chunk.fields.shape[1:]
            _append(path, group, chunk, shape, channels, dtype)
            rows, axes = len(chunk.fields), len(shape) - 2
            extent = np.broadcast_to(np.reshape(chunk.extent, (rows, -1)), (rows, axes))
            for key, values in zip(columns, (chunk.dt, extent, chunk.parameter), strict=True):
                columns[key].append(values)
        if not shape:
            raise DataError(path, "chunks", "none", "at least one")
        dt, extent, value = (np.concatenate(parts).astype(np.float64) for parts in columns.values())
        names = "xyz"[: extent.shape[1]]
        constant = (value == value[0]).all()
        file.attrs.update(
            dataset_name=name or path.stem,
            grid_type="cartesian",
            n_spatial_dims=len(names),
            n_trajectories=len(dt),
            simulation_parameters=_names([parameter] * bool(constant)),
            split=split,
        )
        if equation:
            file.attrs["equation"] = equation
        if constant:
            file.attrs[parameter] = value[0]
        _axes(file, names, shape, dt, extent)
        scalars = {parameter: value, FRAME_TIME: dt}
        scalars |= {f"{EXTENT}{axis}": extent[:, i] for i, axis in enumerate(names)}
        _scalars(file, scalars)
        for order in ORDERS[1:]:
            file.create_group(order).attrs["field_names"] = _names([])
    return path


def _names(values: Sequence[str]) -> np.ndarray:
    return np.array(values, h5py.string_dtype())


def _append(
    path: Path,
    group: h5py.Group,
    chunk: Solved,
    shape: tuple[int, ...],
    channels: Sequence[str],
    dtype: str,
) -> None:
    """Add the rows of a chunk to one array per channel, made at the first."""
    frames, count, *space = shape
    if chunk.fields.shape[1:] != shape or count != len(channels) or not 1 <= len(space) <= 3:
        expected = f"(*, *, {len(channels)}, *space) like the first chunk"
        raise DataError(path, "chunks", f"shape {chunk.fields.shape}", expected)
    for i, channel in enumerate(channels):
        if channel not in group:
            made = group.create_dataset(
                channel,
                (0, frames, *space),
                dtype,
                maxshape=(None, frames, *space),
                chunks=(1, frames if len(space) == 1 else 1, *space),
                fletcher32=True,
            )
            made.attrs["dim_varying"] = np.ones(len(space), bool)
            made.attrs.update(sample_varying=True, time_varying=True)
        stored: Any = group[channel]
        begin = len(stored)
        stored.resize(begin + len(chunk.fields), axis=0)
        stored[begin:] = chunk.fields[:, :, i]
    group.attrs["field_names"] = _names(channels)


def _axes(
    file: h5py.File, names: str, shape: tuple[int, ...], dt: np.ndarray, extent: np.ndarray
) -> None:
    """Time, coordinates and the periodic boundaries at both ends of each."""
    group = file.create_group("dimensions")
    group.attrs["spatial_dims"] = _names(list(names))
    steps = {"time": (np.arange(shape[0]), dt)}
    for i, name in enumerate(names):
        points = shape[2 + i]
        steps[name] = (np.arange(points), extent[:, i] / points)
        condition = file.create_group(f"boundary_conditions/{name}_periodic")
        condition.attrs.update(
            associated_dims=_names([name]),
            associated_fields=_names([]),
            bc_type="periodic",
            sample_varying=False,
            time_varying=False,
        )
        mask = np.zeros(points, bool)
        mask[[0, -1]] = True
        condition["mask"], condition["values"] = mask, np.zeros(mask.sum(), np.float32)
    for name, (index, step) in steps.items():
        varies = bool((step != step[0]).any())
        group[name] = step[:, None] * index if varies else step[0] * index
        group[name].attrs.update(sample_varying=varies, time_varying=False)
    del group["time"].attrs["time_varying"]


def _scalars(file: h5py.File, values: dict[str, np.ndarray]) -> None:
    group = file.create_group("scalars")
    group.attrs["field_names"] = _names(list(values))
    for name, column in values.items():
        varies = bool((column != column[0]).any())
        group[name] = column if varies else column[0]
        group[name].attrs.update(sample_varying=varies, time_varying=False)
