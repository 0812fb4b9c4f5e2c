"""PDEBench's three layouts, built as its own scripts write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers_layouts import ALL, N, T, X, Y, make, normal

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.fieldset import condition_values
from jaxrl_rollouts.pde.files import read, read_pdebench


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: make(kind, tmp_path)


def test_one_tensor(made: Callable) -> None:
    found = read(made("tensor"))
    assert found.layout == "PDEBench (one array per field)" and found.channels == ("u",)
    with h5py.File(found.path) as file:
        np.testing.assert_array_equal(found.read(ALL, ALL)[:, :, 0], file["tensor"][:])
    np.testing.assert_allclose(found.dt, [0.01] * N)
    np.testing.assert_allclose(found.extent, [[1.0]] * N, rtol=1e-6)
    np.testing.assert_array_equal(found.parameters["Nu"], [0.001] * N)


def test_points_far_from_zero_are_even_up_to_their_rounding(made: Callable) -> None:
    """float32 rounds a place of 1000 by 1 % of a spacing of 0.003."""
    path = made("tensor")
    with h5py.File(path, "r+") as file:
        places = (1000 + 0.003 * np.arange(X)).astype(np.float32)
        del file["x-coordinate"]
        file["x-coordinate"] = places
    np.testing.assert_allclose(read(path).extent, [[0.003 * X]] * N, rtol=0.02)
    with h5py.File(path, "r+") as file:
        file["x-coordinate"][:] = places + np.where(np.arange(X) > 3, 0.002, 0).astype("f4")
    with pytest.raises(DataError, match="x-coordinate: found steps of"):
        read(path)


def test_named_variables(made: Callable) -> None:
    found = read(made("flow"))
    assert found.shape == (N, T, 4, X, Y)
    assert found.channels == ("density", "pressure", "Vx", "Vy")
    with h5py.File(found.path) as file:
        expected = np.stack([file[name][:] for name in found.channels], 2)
    np.testing.assert_array_equal(found.read(ALL, ALL), expected)
    np.testing.assert_allclose(found.extent, [[1.0, 3.0]] * N, rtol=1e-6)
    assert {k: x[0] for k, x in found.parameters.items()} == {"eta": 0.1, "zeta": 0.1, "M": 1}
    assert condition_values(found, "dx").shape == (N, 2)  # a column for each axis


def test_darcy_has_no_time(made: Callable) -> None:
    found = read(made("darcy"))
    assert found.shape == (N, 1, 2, X, Y) and found.channels == ("u", "nu")
    with h5py.File(found.path) as file:
        np.testing.assert_array_equal(found.read(ALL, ALL)[:, 0, 1], file["nu"][:])
    assert np.isnan(found.dt).all()
    with pytest.raises(DataError, match="conditions: found no dt, expected a file that has it"):
        condition_values(found, "dt")


def test_a_group_per_seed(made: Callable) -> None:
    found = read(made("seeds"))
    assert found.layout == "PDEBench (a group per seed)" and found.shape == (N, T, 2, X, Y)
    with h5py.File(found.path) as file:
        expected = np.stack([file[f"{seed:04d}/data"][:] for seed in range(N)])
    values = found.read([2, 0], slice(1, 4))
    assert values.dtype == np.float32 and found.channels == ("u_0", "u_1")
    np.testing.assert_array_equal(values, np.moveaxis(expected[[2, 0], 1:4], -1, 2))
    np.testing.assert_allclose(found.dt, [0.5] * N)
    np.testing.assert_allclose(found.extent, [[2.0, 2.0]] * N, rtol=1e-6)


def test_incompressible_flow(made: Callable) -> None:
    found = read(made("incompressible"))
    assert found.layout == "PDEBench (incompressible)" and found.parameters == {}
    assert found.channels == ("velocity_x", "velocity_y", "particles", "force_x", "force_y")
    values = found.read(ALL, ALL)
    with h5py.File(found.path) as file:
        velocity = np.moveaxis(file["velocity"][:], -1, 2)
        force = np.moveaxis(file["force"][:], -1, 1)
    np.testing.assert_array_equal(values[:, :, :2], velocity)
    np.testing.assert_array_equal(values[:, :, 3:], np.repeat(force[:, None], T, 1))
    np.testing.assert_allclose(found.dt, [0.005] * N, rtol=1e-6)
    assert np.isnan(found.extent).all()


def test_a_seed_of_another_shape_is_found_when_it_is_read(made: Callable) -> None:
    path = made("seeds")
    with h5py.File(path, "r+") as file:
        del file["0001/data"], file["0002/data"]
        file["0001/data"] = normal(T, X, 2, 2)
    found = read_pdebench(path)
    with pytest.raises(DataError, match=r"0001/data: found shape \(5, 8, 2, 2\), expected \(5, 8"):
        found.read(1, ALL)
    with pytest.raises(DataError, match=r"0002/data: found only grid, expected an array"):
        found.read(2, ALL)
