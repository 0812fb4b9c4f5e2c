"""The Well's layout: files that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.files import read

B, T, W, H = 3, 5, 4, 6


@pytest.fixture
def path(well_file: Any) -> Path:
    return well_file.path


def without(key: str) -> Callable:
    return lambda file: file.__delitem__(key)


def replaced(key: str, values: Any) -> Callable:
    def change(file: h5py.File) -> None:
        attributes = dict(file[key].attrs)
        del file[key]
        file[key] = values
        file[key].attrs.update(attributes)

    return change


def attribute(key: str, name: str, value: Any = None) -> Callable:
    def change(file: h5py.File) -> None:
        del file[key].attrs[name]
        if value is not None:
            file[key].attrs[name] = value

    return change


F4 = np.float32
BAD = {
    "no dimensions": (without("dimensions"), "dimensions: found only boundary_conditions, scalars"),
    "dimensions an array": (
        lambda f: (without("dimensions")(f), f.create_dataset("dimensions", data=1.0)),
        "dimensions: found an array, expected a group",
    ),
    "no time": (without("dimensions/time"), "dimensions/time: found only x, y, expected an array"),
    "no axis": (without("dimensions/y"), "dimensions/y: found only time, x"),
    "no spatial_dims": (attribute("dimensions", "spatial_dims"), "dimensions@spatial_dims"),
    "spatial_dims numbers": (attribute("dimensions", "spatial_dims", [1, 2]), "a list of names"),
    "no n_trajectories": (attribute("/", "n_trajectories"), "root@n_trajectories: found Reynolds"),
    "n_trajectories 0": (attribute("/", "n_trajectories", 0), "root@n_trajectories: found 0"),
    "n_trajectories text": (attribute("/", "n_trajectories", "3"), "expected finite numbers"),
    "n_spatial_dims 3": (
        attribute("/", "n_spatial_dims", 3),
        "root@n_spatial_dims: found 3, expected 2 (dimensions)",
    ),
    "time stands still": (replaced("dimensions/time", np.zeros(T, F4)), "times that increase"),
    "time uneven": (replaced("dimensions/time", np.arange(T) ** 2), "times in even steps"),
    "grid uneven": (
        replaced("dimensions/x", np.geomspace(0.1, 6, W).astype(F4)),
        "dimensions/x: found steps of 0.2915 to 4.467, expected points in even steps",
    ),
    "grid spherical": (
        attribute("/", "grid_type", "spherical"),
        "root@grid_type: found spherical, expected cartesian",
    ),
    "time NaN": (replaced("dimensions/time", np.full(T, np.nan)), "dimensions/time: found a value"),
    "time text": (replaced("dimensions/time", np.full(T, b"a")), "dimensions/time: found |S1"),
    "time empty": (replaced("dimensions/time", np.ones(0)), "dimensions/time: found shape (0,)"),
    "time of two axes": (
        replaced("dimensions/time", np.ones((B, T))),
        "dimensions/time: found shape (3, 5), expected (5,)",
    ),
    "x not in order": (replaced("dimensions/x", np.array([0.0, 2, 1, 3])), "points in order"),
    "x one point": (replaced("dimensions/x", np.ones(1)), "at least 2 points"),
    "moving grid": (attribute("dimensions/x", "time_varying", True), "a grid that does not move"),
    "x without flag": (
        attribute("dimensions/x", "sample_varying"),
        "dimensions/x@sample_varying: found time_varying",
    ),
    "field gone": (without("t0_fields/mask"), "t0_fields/mask: found only density, inflow"),
    "field a group": (
        lambda f: (without("t0_fields/mask")(f), f.create_group("t0_fields/mask")),
        "t0_fields/mask: found a group",
    ),
    "fewer trajectories": (
        replaced("t0_fields/density", np.ones((2, T, W, H), F4)),
        "t0_fields/density: found shape (2, 5, 4, 6), expected (3, 5, 4, 6)",
    ),
    "fewer frames": (
        replaced("t1_fields/velocity", np.ones((B, 4, W, H, 2), F4)),
        "t1_fields/velocity: found shape (3, 4, 4, 6, 2)",
    ),
    "three components": (
        replaced("t1_fields/velocity", np.ones((B, T, W, H, 3), F4)),
        "expected (3, 5, 4, 6, 2)",
    ),
    "integers": (
        replaced("t0_fields/density", np.ones((B, T, W, H), int)),
        "t0_fields/density: found int64, expected floating-point numbers",
    ),
    "no dim_varying": (
        attribute("t0_fields/density", "dim_varying"),
        "t0_fields/density@dim_varying",
    ),
    "dim_varying short": (
        attribute("t0_fields/density", "dim_varying", [True]),
        "t0_fields/density@dim_varying: found [True], expected 2 times",
    ),
    "flag is text": (
        attribute("t0_fields/density", "time_varying", "yes"),
        "t0_fields/density@time_varying",
    ),
    "no field_names": (attribute("t1_fields", "field_names"), "t1_fields@field_names"),
    "no fields": (
        lambda f: [f.__delitem__(f"t{i}_fields") for i in range(3)],
        "expected at least one field",
    ),
    "scalar gone": (without("scalars/angle"), "scalars/angle: found only Reynolds, drift"),
    "scalar too long": (
        replaced("scalars/angle", np.ones(B + 1)),
        "scalars/angle: found shape (4,), expected (3,)",
    ),
    "scalar infinite": (replaced("scalars/angle", np.full(B, np.inf)), "scalars/angle: found a"),
    "boundary of no axis": (
        attribute("boundary_conditions/y_wall", "associated_dims", ["z"]),
        "boundary_conditions/y_wall@associated_dims: found z",
    ),
    "boundary of no kind": (
        attribute("boundary_conditions/y_wall", "bc_type"),
        "boundary_conditions/y_wall@bc_type",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files_are_named(path: Path, case: str) -> None:
    change, message = BAD[case]
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in str(caught.value) and str(path) in str(caught.value)
    assert ", expected " in str(caught.value) and "\n" not in str(caught.value)
