"""The Well's layout (Ohana et al. 2024): reading.

Root attributes `dataset_name`, `grid_type`, `n_spatial_dims`, `n_trajectories`,
`simulation_parameters` and one of each parameter's name; groups `dimensions` (`time` and a
coordinate per axis), `boundary_conditions`, `scalars`, `t0_fields`, `t1_fields` and `t2_fields`.
Arrays leave out what does not vary: attributes `sample_varying`, `time_varying`, `dim_varying`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError, printable
from jaxrl_rollouts.hdf5 import BROKEN, open_hdf5, plain_attributes

from ..equations import EQUATIONS
from ..fieldset import FieldSet
from .stored import (
    RESAMPLE,
    Stored,
    axis_extent,
    check_count,
    check_numbers,
    check_shape,
    constant_channels,
    field_array,
    frame_time,
    hdf5_reader,
    listed,
    numbers,
)

LAYOUT = "The Well"
CARTESIAN = "cartesian"
ORDERS = ("t0_fields", "t1_fields", "t2_fields")
# A group in which our writer keeps exactly what axes and scalars hold rounded.
EXACT, FRAME_TIME, EXTENT = "exact", "frame_time", "extent"


def is_well(file: h5py.File) -> bool:
    """Whether this is The Well's layout, sound or not."""
    return any(name in file for name in ("dimensions", *ORDERS))


def read_well(path: str | Path) -> FieldSet:
    """Look into a file; its fields are read when needed.

    Scalar, vector and tensor fields become channels in this order, components named `velocity_x`
    and `stress_xy`; those that do not vary over trajectories, time or an axis are repeated, and
    are `constant` where it is time.
    Scalars that do not vary over time, and the simulation's parameters, become `parameters`;
    those that do are left out. Time between frames and extents are those of the axes, unless the
    file is of our writer, which keeps both exactly.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        grid = plain_attributes(file).get("grid_type", CARTESIAN)
        if grid != CARTESIAN:
            raise DataError(path, "root@grid_type", grid, CARTESIAN, RESAMPLE)
        count = _count(path, file, "n_trajectories")
        axes = _axes(path, file, count)
        fields = _fields(path, file, count, axes)
        parameters = _parameters(path, file, count)
        boundaries = _boundaries(path, file, axes.names)
        known = plain_attributes(file).get("equation")
        dt, extent = axes.dt, np.stack(axes.extents, 1)
        if EXACT in file:
            dt = numbers(path, file, f"{EXACT}/{FRAME_TIME}", (count,))
            extent = numbers(path, file, f"{EXACT}/{EXTENT}", (count, len(axes.names)))
            for name in {*parameters} & {*file[EXACT]}:  # type: ignore[arg-type]
                parameters[name] = numbers(path, file, f"{EXACT}/{name}", (count,))
    channels = tuple(name for field in fields for name in field.channels)
    shape = (count, axes.frames, len(channels), *axes.sizes)
    read = hdf5_reader(path, fields, shape)
    for key, values in {"dimensions/time": dt, "dimensions": extent}.items():
        if (values <= 0).any():
            raise DataError(path, key, f"a step or extent of {values.min()}", "values above 0")
    equation = known if known in EQUATIONS else ""
    constant = constant_channels(fields)
    return FieldSet(
        path, LAYOUT, shape, read, dt, extent, parameters, channels, boundaries, equation, constant
    )


class Axes(NamedTuple):
    """`dimensions`: of `names` and `sizes`, with `dt` `[n]` and `extents` `[n]` each."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    frames: int
    dt: np.ndarray
    extents: list[np.ndarray]


def _attribute(path: Path, node: Any, name: str) -> Any:
    where = f"{node.name.strip('/') or 'root'}@{name}"
    try:
        return node.attrs[name]
    except BROKEN:
        has = ", ".join(sorted(node.attrs)) or "no attributes"
        raise DataError(path, where, has, f"an attribute {name}") from None


def _count(path: Path, file: h5py.File, name: str) -> int:
    value = check_numbers(path, f"root@{name}", _attribute(path, file, name))
    if value.size != 1 or value.item() < 1 or value.item() != int(value.item()):
        raise DataError(path, f"root@{name}", value.tolist(), "a whole number above 0")
    check_count(path, f"root@{name}", int(value.item()))
    return int(value.item())


def _names(path: Path, node: Any, name: str) -> tuple[str, ...]:
    values = np.atleast_1d(_attribute(path, node, name)).tolist()
    if not all(isinstance(value, str | bytes) for value in values):
        raise DataError(path, f"{node.name.strip('/')}@{name}", values, "a list of names")
    return tuple(
        printable(v.decode(errors="replace") if isinstance(v, bytes) else v) for v in values
    )


def _flags(path: Path, node: Any, name: str, count: int) -> tuple[bool, ...]:
    values = np.atleast_1d(_attribute(path, node, name))
    if values.shape != (count,) or values.dtype.kind not in "biu":
        expected = f"{count} times true or false"
        raise DataError(path, f"{node.name.strip('/')}@{name}", values.tolist(), expected)
    return tuple(bool(value) for value in values)


def _group(path: Path, file: h5py.File, name: str) -> h5py.Group:
    found = file.get(name)
    if not isinstance(found, h5py.Group):
        has = "an array" if found is not None else f"only {listed(file)}"
        raise DataError(path, name, has, f"a group {name}")
    return found


def _axes(path: Path, file: h5py.File, count: int) -> Axes:
    group = _group(path, file, "dimensions")
    names = _names(path, group, "spatial_dims")
    found = {}
    for name in ("time", *names):
        key = f"dimensions/{name}"
        values = numbers(path, file, key)
        varies = _flags(path, group[name], "sample_varying", 1)[0]
        # The Well's own `dummy_data.py` leaves the attribute out.
        moves = name != "time" and "time_varying" in group[name].attrs
        if moves and _flags(path, group[name], "time_varying", 1)[0]:
            raise DataError(path, f"{key}@time_varying", "true", "a grid that does not move")
        check_shape(path, key, values.shape, (count,) * varies + values.shape[-1:])
        if not values.size:
            raise DataError(path, key, f"shape {values.shape}", "at least one value")
        found[name] = values
    if _count(path, file, "n_spatial_dims") != len(names) or not names:
        value = file.attrs["n_spatial_dims"]
        raise DataError(path, "root@n_spatial_dims", value, f"{len(names)} (dimensions)")
    dt = frame_time(path, "dimensions/time", found["time"])
    extents = [axis_extent(path, f"dimensions/{name}", found[name]) for name in names]
    sizes = tuple(found[name].shape[-1] for name in names)
    spread = [np.broadcast_to(values, (count,)) for values in (dt, *extents)]
    return Axes(names, sizes, found["time"].shape[-1], spread[0], spread[1:])


def _fields(path: Path, file: h5py.File, count: int, axes: Axes) -> list[Stored]:
    fields = []
    for order, group_name in enumerate(ORDERS):
        if group_name not in file:
            continue
        group = _group(path, file, group_name)
        for name in _names(path, group, "field_names"):
            key = f"{group_name}/{name}"
            found = field_array(path, file, key)
            varying = _flags(path, found, "dim_varying", len(axes.names))
            samples = _flags(path, found, "sample_varying", 1)[0]
            times = _flags(path, found, "time_varying", 1)[0]
            lead = (count,) * samples + (axes.frames,) * times
            grid = tuple(n for n, there in zip(axes.sizes, varying, strict=True) if there)
            components = (len(axes.names),) * order
            # The documentation writes tensors as D^2 values, the files as [D, D].
            flat = order == 2 and found.shape[-1:] == (len(axes.names) ** 2,)
            components = (len(axes.names) ** 2,) if flat else components
            # `dummy_data.py` gives a scalar one component.
            single = order == 0 and found.shape == (*lead, *grid, 1)
            components = (1,) if single else components
            check_shape(path, key, found.shape, (*lead, *grid, *components))
            ends = ["".join(part) for part in product(axes.names, repeat=order)]
            channels = tuple(f"{name}_{end}" if end else name for end in ends)
            fields.append(Stored(key, channels, varying, samples, times))
    if not fields:
        raise DataError(path, "t0_fields", "no fields in any group", "at least one field")
    return fields


def _parameters(path: Path, file: h5py.File, count: int) -> dict[str, np.ndarray]:
    parameters = {}
    if "scalars" in file:
        group = _group(path, file, "scalars")
        for name in _names(path, group, "field_names"):
            key = f"scalars/{name}"
            values = numbers(path, file, key)
            varies = _flags(path, group[name], "sample_varying", 1)[0]
            if _flags(path, group[name], "time_varying", 1)[0]:
                continue
            expected = (count,) if varies else (1,)
            check_shape(path, key, values.shape or (1,), expected)
            parameters[name] = np.broadcast_to(values.reshape(expected), (count,))
    attributes = plain_attributes(file)
    listing = "simulation_parameters"
    for name in _names(path, file, listing) if listing in attributes else ():
        if name not in parameters and isinstance(attributes.get(name), int | float):
            value = check_numbers(path, f"root@{name}", attributes[name])
            parameters[name] = np.full(count, value, np.float64)
    return parameters


def _boundaries(path: Path, file: h5py.File, names: tuple[str, ...]) -> tuple[str, ...]:
    if "boundary_conditions" not in file:
        return ("",) * len(names)
    kinds: dict[str, set[str]] = {name: set() for name in names}
    for condition in _group(path, file, "boundary_conditions").values():
        kind, *others = _names(path, condition, "bc_type") or ("",)
        if others:
            key = f"{condition.name.strip('/')}@bc_type"
            raise DataError(path, key, f"{1 + len(others)} kinds", "one")
        for name in _names(path, condition, "associated_dims"):
            if name not in kinds:
                key = f"{condition.name.strip('/')}@associated_dims"
                raise DataError(path, key, name, f"one of {', '.join(names)}")
            kinds[name].add(kind.lower())
    return tuple("/".join(sorted(kinds[name])) for name in names)
