"""The Well's layout: writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import new_hdf5
from jaxrl_rollouts.record.files import write_atomically

from ..constant import check_constant
from ..generate import Solved
from .pdearena import SPLITS
from .well import EXACT, EXTENT, FRAME_TIME, ORDERS

AXES = "xyz"
Fields = Mapping[str, Sequence[int]]


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
    constant: Sequence[int] = (),
) -> Path:
    """Write solved chunks as they come; the file appears once the last is in.

    Fields are on periodic axes x, y, z: scalar fields, and vector fields where there is a channel
    for every axis, `velocity_x`, `velocity_y`. Where trajectories differ in length or in
    time between frames, their axes are stored for each (`sample_varying`); in any case a group
    of our own holds both, and the parameter, in float64, so that they are read back exactly. A
    parameter that is the same throughout is a simulation parameter and a constant scalar; one that
    varies is a scalar per trajectory.

    With a training set at its place, `NAME/data/train/FILE.hdf5`, goes `NAME/stats.yaml`, which The
    Well's own normalisation reads.

    Args:
        path: the file; The Well's own tools expect `NAME/data/SPLIT/FILE.hdf5`.
        chunks: chunks of `generate`; fields `[b, frames, C, *space]` with one to three axes of
            space.
        split: train, valid or test; kept as an attribute.
        name: name of the set; that of the file unless given.
        parameter: the name of the equation's parameter.
        channels: a name for each of `C`.
        equation: the equation solved, stored as an attribute.
        dtype: data type of fields, scalars and axes; the schema's is float32.
        constant: channels that are constant in time, by number: written once for all frames
            (`time_varying` false), a vector where all of its components are.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ConfigError("split", split, f"one of {', '.join(SPLITS)}")
    columns: dict[str, list[np.ndarray]] = {"dt": [], "extent": [], "value": []}
    shape: tuple[int, ...] = ()
    fields: Fields = {}
    counted = split == "train" and path.absolute().parts[-3:-1] == ("data", "train")
    moments = Moments(len(channels))
    with new_hdf5(path) as file:
        for chunk in chunks:
            shape = shape or chunk.fields.shape[1:]
            fields = fields or grouped(channels, len(shape) - 2)
            check_constant(path, chunk.fields, constant, channels)
            _append(path, file, chunk, shape, fields, dtype, constant)
            if counted:
                moments.add(chunk.fields)
            rows, axes = len(chunk.fields), len(shape) - 2
            extent = np.broadcast_to(np.reshape(chunk.extent, (rows, -1)), (rows, axes))
            for key, values in zip(columns, (chunk.dt, extent, chunk.parameter), strict=True):
                columns[key].append(values)
        if not shape:
            raise DataError(path, "chunks", "none", "at least one")
        dt, extent, value = (np.concatenate(parts).astype(np.float64) for parts in columns.values())
        names = AXES[: extent.shape[1]]
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
        _axes(file, names, shape, dt, extent, dtype)
        _scalars(file, {parameter: value}, dtype)
        exact = file.create_group(EXACT)
        exact[FRAME_TIME], exact[EXTENT], exact[parameter] = dt, extent, value
        for order, group in enumerate(ORDERS):
            kept = [name for name, parts in fields.items() if _order(parts, len(names)) == order]
            file.require_group(group).attrs["field_names"] = _names(kept)
    if counted:
        place = path.absolute().parents[2] / "stats.yaml"
        write_atomically(place, yaml.safe_dump(moments.table(fields)))
    return path


def grouped(channels: Sequence[str], axes: int) -> dict[str, list[int]]:
    """Which channels each field has: one, or one for every axis."""
    fields: dict[str, list[int]] = {}
    names = list(channels)
    for i, channel in enumerate(names):
        stem = channel.rpartition("_")[0]
        parts = [f"{stem}_{axis}" for axis in AXES[:axes]]
        if axes > 1 and stem and channel in parts and stem not in names and {*parts} <= {*names}:
            fields[stem] = [names.index(part) for part in parts]
        else:
            fields[channel] = [i]
    return fields


def _order(parts: Sequence[int], axes: int) -> int:
    """Of the tensor that so many components are."""
    return int(axes > 1 and len(parts) == axes)


class Moments:
    """Sums over fields, and over their changes from frame to frame, for every channel."""

    def __init__(self, channels: int) -> None:
        self.sums = {end: np.zeros((3, channels)) for end in ("", "_delta")}

    def add(self, fields: np.ndarray) -> None:
        """Count `[b, T, C, *space]`."""
        for end, values in (("", fields), ("_delta", np.diff(fields, axis=1))):
            over = (0, 1, *range(3, values.ndim))
            count = np.full(values.shape[2], values.size / values.shape[2])
            both = values.sum(over, np.float64), np.square(values, dtype=np.float64).sum(over)
            self.sums[end] += np.stack([count, *both])

    def table(self, fields: Fields) -> dict[str, dict[str, Any]]:
        """Mean, std and rms of fields and changes by name; of vectors a list each."""
        found = {}
        for end, (count, first, second) in self.sums.items():
            mean, square = first / np.maximum(count, 1), second / np.maximum(count, 1)
            values = {"mean": mean, "std": np.sqrt(np.maximum(square - mean**2, 0))}
            for name, column in (values | {"rms": np.sqrt(square)}).items():
                found[name + end] = {
                    field: [float(column[i]) for i in parts]
                    if len(parts) > 1
                    else float(column[parts[0]])
                    for field, parts in fields.items()
                }
        return found


def _names(values: Sequence[str]) -> np.ndarray:
    return np.array(values, h5py.string_dtype())


def _append(
    path: Path,
    file: h5py.File,
    chunk: Solved,
    shape: tuple[int, ...],
    fields: Fields,
    dtype: str,
    constant: Sequence[int],
) -> None:
    """Add the rows of a chunk to one array per field, made at the first."""
    frames, count, *space = shape
    channels = sum(map(len, fields.values()))
    if chunk.fields.shape[1:] != shape or count != channels or not 1 <= len(space) <= 3:
        expected = f"(*, *, {channels}, *space) like the first chunk"
        raise DataError(path, "chunks", f"shape {chunk.fields.shape}", expected)
    for name, parts in fields.items():
        order = _order(parts, len(space))
        group = file.require_group(ORDERS[order])
        values = np.moveaxis(chunk.fields[:, :, list(parts)], 2, -1)
        values = values if order else values[..., 0]
        times = not {*parts} <= {*constant}
        together = frames if len(space) == 1 else 1  # frames in a chunk of the file
        values, lead = (values, (1, together)) if times else (values[:, 0], (1,))
        if name not in group:
            made = group.create_dataset(
                name,
                (0, *values.shape[1:]),
                dtype,
                maxshape=(None, *values.shape[1:]),
                chunks=(*lead, *values.shape[len(lead) :]),
                fletcher32=True,
            )
            made.attrs["dim_varying"] = np.ones(len(space), bool)
            made.attrs.update(sample_varying=True, time_varying=times)
        stored: Any = group[name]
        begin = len(stored)
        stored.resize(begin + len(values), axis=0)
        stored[begin:] = values


def _axes(
    file: h5py.File,
    names: str,
    shape: tuple[int, ...],
    dt: np.ndarray,
    extent: np.ndarray,
    dtype: str,
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
        condition["mask"], condition["values"] = mask, np.zeros(mask.sum(), dtype)
    for name, (index, step) in steps.items():
        varies = bool((step != step[0]).any())
        places = step[:, None] * index if varies else step[0] * index
        group[name] = places.astype(dtype)
        group[name].attrs.update(sample_varying=varies, time_varying=False)
    del group["time"].attrs["time_varying"]


def _scalars(file: h5py.File, values: dict[str, np.ndarray], dtype: str) -> None:
    group = file.create_group("scalars")
    group.attrs["field_names"] = _names(list(values))
    for name, column in values.items():
        varies = bool((column != column[0]).any())
        group[name] = column.astype(dtype) if varies else np.asarray(column[0], dtype)
        group[name].attrs.update(sample_varying=varies, time_varying=False)
