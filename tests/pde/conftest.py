"""Fixtures for files of fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each access to an HDF5 array brought in, as they happen."""
    seen: list[int] = []
    original = h5py.Dataset.__getitem__

    def counted(self: h5py.Dataset, index: Any, **options: Any) -> Any:
        values = original(self, index, **options)
        seen.append(np.asarray(values).nbytes)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return seen


B, T, W, H = 3, 5, 4, 6
RNG = np.random.default_rng(0)
ARRAYS = {
    "t0_fields/density": RNG.normal(size=(B, T, W, H)).astype("f4"),
    "t0_fields/inflow": RNG.normal(size=(B, T, W)).astype("f4"),
    "t0_fields/mask": RNG.normal(size=(W, H)).astype("f4"),
    "t1_fields/velocity": RNG.normal(size=(B, T, W, H, 2)).astype("f4"),
    "t1_fields/gravity": RNG.normal(size=(B, 2)).astype("f4"),
    "t2_fields/stress": RNG.normal(size=(T, W, H, 2, 2)).astype("f4"),
}
VARYING = {
    "density": (True, True, [True, True]),
    "inflow": (True, True, [True, False]),
    "mask": (False, False, [True, True]),
    "velocity": (True, True, [True, True]),
    "gravity": (True, False, [False, False]),
    "stress": (False, True, [True, True]),
}


class WellFile(NamedTuple):
    """A file of 3 trajectories, 5 frames and 4 x 6 points, and what is in it."""

    path: Path
    arrays: dict[str, np.ndarray]
    varying: dict[str, tuple[bool, bool, list[bool]]]


@pytest.fixture
def well_file(tmp_path: Path) -> WellFile:
    """A two-dimensional file as The Well's own: float32, names as variable-length text."""
    with h5py.File(tmp_path / "flow.hdf5", "w") as file:
        file.attrs.update(
            dataset_name="flow",
            grid_type="cartesian",
            n_spatial_dims=2,
            n_trajectories=B,
            simulation_parameters=["Reynolds"],
            Reynolds=1e4,
        )
        axes = file.create_group("dimensions")
        axes.attrs["spatial_dims"] = ["x", "y"]
        for name, size, step in (("time", T, 0.5), ("x", W, 0.25), ("y", H, 0.5)):
            axes[name] = np.arange(size, dtype="f4") * np.float32(step)
            axes[name].attrs["sample_varying"] = False
        for name in "xy":
            axes[name].attrs["time_varying"] = False
        for name, kind in (("x_periodic", "PERIODIC"), ("y_wall", "wall"), ("y_open", "open")):
            condition = file.create_group(f"boundary_conditions/{name}")
            condition.attrs.update(
                associated_dims=[name[0]],
                associated_fields=[],
                bc_type=kind,
                sample_varying=False,
                time_varying=False,
            )
            size = W if name[0] == "x" else H
            condition["mask"] = np.arange(size) == 0
            condition["values"] = np.zeros(1, "f4")
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["Reynolds", "angle", "drift"]
        for name, values, samples, times in (
            ("Reynolds", np.float32(1e4), False, False),
            ("angle", np.arange(B, dtype="f4"), True, False),
            ("drift", np.arange(T, dtype="f4"), False, True),
        ):
            scalars[name] = values
            scalars[name].attrs.update(sample_varying=samples, time_varying=times)
        for order in range(3):
            file.create_group(f"t{order}_fields")
        for key, values in ARRAYS.items():
            group, name = key.split("/")
            names = list(file[group].attrs.get("field_names", []))
            file[group].attrs["field_names"] = [*names, name]
            file[key] = values
            samples, times, dims = VARYING[name]
            file[key].attrs.update(sample_varying=samples, time_varying=times, dim_varying=dims)
        file["t2_fields/stress"].attrs.update(symmetric=True, antisymmetric=False)
    return WellFile(tmp_path / "flow.hdf5", ARRAYS, VARYING)
