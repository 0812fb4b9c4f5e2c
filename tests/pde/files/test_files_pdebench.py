"""PDEBench's three layouts, built as its own scripts write them, and malformed ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.fieldset import condition_values
from jaxrl_rollouts.pde.files import read, read_pdebench

ALL = slice(None)
N, T, X, Y = 4, 5, 8, 6
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def centres(points: int, length: float = 1.0) -> np.ndarray:
    return ((np.arange(points) + 0.5) * length / points).astype(np.float32)


def tensor_file(file: h5py.File) -> None:
    """`transform` of Data_Merge.py: Burgers, with one instant more than frames."""
    file["tensor"] = normal(N, T, X)
    file["x-coordinate"] = centres(X)
    file["t-coordinate"] = np.arange(T + 1) * 0.01
    file.attrs["Nu"] = 0.001


def flow_file(file: h5py.File) -> None:
    """`merge` of Data_Merge.py: two-dimensional compressible flow."""
    for name in ("density", "pressure", "Vx", "Vy"):
        file[name] = normal(N, T, X, Y)
    file["x-coordinate"], file["y-coordinate"] = centres(X), centres(Y, 3.0)
    file["t-coordinate"] = np.arange(T + 1) * 0.05
    file.attrs.update(eta=0.1, zeta=0.1, M=1.0)


def darcy_file(file: h5py.File) -> None:
    """`merge` of Data_Merge.py: Darcy flow has neither frames nor times."""
    file["tensor"], file["nu"] = normal(N, 1, X, Y), normal(N, X, Y)
    file["x-coordinate"], file["y-coordinate"] = centres(X), centres(Y)
    file.attrs["beta"] = 0.1


def seeds_file(file: h5py.File) -> None:
    """`simulator` of gen_diff_react.py."""
    for seed in range(N):
        for key, values in {
            "data": normal(T, X, Y, 2),
            "grid/x": centres(X, 2.0) - 1,
            "grid/y": centres(Y, 2.0),
            "grid/t": np.linspace(0, 2, T),
        }.items():
            file.create_dataset(f"{seed:04d}/{key}", data=values, dtype="f4", compression="lzf")
        file[f"{seed:04d}"].attrs["config"] = "sim:\n  seed: 0\n"


def incompressible_file(file: h5py.File) -> None:
    """`h5_for` of data_io.py: a chunk per frame."""
    file.attrs.update(config="sim_name: ns\n", latestIndex=T - 1)
    for key, shape in {
        "velocity": (N, T, X, Y, 2),
        "particles": (N, T, X, Y, 1),
        "force": (N, X, Y, 2),
    }.items():
        file.create_dataset(
            key, data=normal(*shape), compression="lzf", chunks=(1, 1, *shape[2:]), shuffle=True
        )
    file["t"] = (np.arange(T) * 0.005 * np.ones((N, 1))).astype(np.float32)


MAKERS = (tensor_file, flow_file, darcy_file, seeds_file, incompressible_file)
LAYOUTS = {maker.__name__.removesuffix("_file"): maker for maker in MAKERS}


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Path]:
    def make(kind: str) -> Path:
        path = tmp_path / f"{kind}.dat"  # neither .h5 nor .hdf5 is to decide
        with h5py.File(path, "w") as file:
            LAYOUTS[kind](file)
        return path

    return make


def test_one_tensor(made: Callable) -> None:
    found = read(made("tensor"))
    assert found.layout == "PDEBench (one array per field)" and found.channels == ("u",)
    with h5py.File(found.path) as file:
        np.testing.assert_array_equal(found.read(ALL, ALL)[:, :, 0], file["tensor"][:])
    np.testing.assert_allclose(found.dt, [0.01] * N)
    np.testing.assert_allclose(found.extent, [[1.0]] * N, rtol=1e-6)
    np.testing.assert_array_equal(found.parameters["Nu"], [0.001] * N)


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


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_window_reads_no_more_than_itself(
    made: Callable, bytes_read: list[int], kind: str
) -> None:
    found = read(made(kind))
    assert sum(bytes_read) < 2000  # coordinates
    bytes_read.clear()
    window = found.read(1, slice(0, 2))
    assert 0 < sum(bytes_read) <= window.nbytes


def test_a_bad_value_names_its_row(made: Callable) -> None:
    path = made("seeds")
    with h5py.File(path, "r+") as file:
        file["0002/data"][1, 1, 1, 1] = np.inf
    found = read_pdebench(path)
    found.read([0, 1, 3], ALL)
    with pytest.raises(
        DataError,
        match=r"0002/data: found .* in trajectory 2, frame \d+, channel \d+, expected finite",
    ):
        found.read([3, 2], ALL)


def test_a_seed_of_another_shape_is_found_when_it_is_read(made: Callable) -> None:
    path = made("seeds")
    with h5py.File(path, "r+") as file:
        del file["0003/data"]
        file["0003/data"] = normal(T, X, 2, 2)
        del file["0002/data"]
    found = read_pdebench(path)
    with pytest.raises(DataError, match=r"0003/data: found shape \(5, 8, 2, 2\), expected \(5, 8"):
        found.read(3, ALL)
    with pytest.raises(DataError, match=r"0002/data: found only grid, expected an array"):
        found.read(2, ALL)


def drop(*keys: str) -> Callable:
    return lambda file: [file.__delitem__(key) for key in keys]


def put(key: str, values: Any) -> Callable:
    def change(file: h5py.File) -> None:
        if key in file:
            del file[key]
        file[key] = values

    return change


BAD = {
    "generator's leading axis": (
        "tensor",
        put("tensor", normal(1, N, T, X)),
        "tensor: found shape (1, 4, 5, 8), expected axes n, t, x",
    ),
    "tensor of two axes": ("tensor", put("tensor", normal(N, X)), "tensor: found shape (4, 8)"),
    "tensor a group": (
        "tensor",
        lambda f: (drop("tensor")(f), f.create_group("tensor")),
        "tensor: found a group, expected an array",
    ),
    "tensor empty": ("tensor", put("tensor", normal(0, T, X)), "tensor: found shape (0, 5, 8)"),
    "tensor of integers": ("tensor", put("tensor", np.ones((N, T, X), int)), "found int64"),
    "no x": ("tensor", drop("x-coordinate"), "x-coordinate: found only t-coordinate, tensor"),
    "no t": ("tensor", drop("t-coordinate"), "t-coordinate: found only tensor, x-coordinate"),
    "x too long": (
        "tensor",
        put("x-coordinate", centres(X + 1)),
        "x-coordinate: found shape (9,), expected (8,)",
    ),
    "x repeats": ("tensor", put("x-coordinate", np.ones(X)), "x-coordinate: found repeated"),
    "x NaN": ("tensor", put("x-coordinate", np.full(X, np.nan)), "expected finite numbers"),
    "t too long": (
        "tensor",
        put("t-coordinate", np.arange(T + 2)),
        "t-coordinate: found shape (7,), expected (5,) or (6,)",
    ),
    "t backwards": ("tensor", put("t-coordinate", -np.arange(T)), "expected times that increase"),
    "attribute NaN": ("tensor", lambda f: f.attrs.update(Nu=np.nan), "root@Nu"),
    "no pressure": ("flow", drop("pressure"), "pressure: found only Vx, Vy, density"),
    "no Vy": ("flow", drop("Vy"), "Vy: found only Vx, density"),
    "Vx of another shape": (
        "flow",
        put("Vx", normal(N, T, X, X)),
        "Vx: found shape (4, 5, 8, 8), expected (4, 5, 8, 6)",
    ),
    "flow without y": ("flow", drop("y-coordinate"), "density: found shape (4, 5, 8, 6), expected"),
    "nu of fewer": ("darcy", put("nu", normal(N - 1, X, Y)), "nu: found shape (3, 8, 6)"),
    "seed without data": ("seeds", drop("0000/data"), "0000/data: found only grid"),
    "seed without grid": ("seeds", drop("0000/grid"), "0000/grid/x: found no 0000/grid"),
    "seed of one axis": ("seeds", put("0000/data", normal(T)), "0000/data: found shape (5,)"),
    "seed's times": (
        "seeds",
        put("0000/grid/t", np.arange(T + 1)),
        "0000/grid/t: found shape (6,), expected (5,)",
    ),
    "seed's grid text": ("seeds", put("0000/grid/y", np.full(Y, b"a")), "0000/grid/y: found |S1"),
    "no velocity": ("incompressible", drop("velocity"), "velocity: found only force, particles, t"),
    "velocity of one component": (
        "incompressible",
        put("velocity", normal(N, T, X, Y, 1)),
        "velocity: found shape (4, 5, 8, 6, 1)",
    ),
    "no particles": ("incompressible", drop("particles"), "particles: found only force, t"),
    "particles of fewer frames": (
        "incompressible",
        put("particles", normal(N, 2, X, Y, 1)),
        "particles: found shape (4, 2, 8, 6, 1)",
    ),
    "force of fewer": ("incompressible", put("force", normal(1, X, Y, 2)), "force: found shape"),
    "no times": ("incompressible", drop("t"), "t: found only force, particles, velocity"),
    "times cut off": ("incompressible", put("t", np.zeros((N, T))), "t: found a step of 0"),
    "nothing": ("tensor", lambda f: f.clear(), "layout: found nothing, expected PDEArena"),
    "other keys": ("seeds", lambda f: f.move("0000", "seed0"), "layout: found 0001, 0002, 0003, s"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files_are_named(made: Callable, case: str) -> None:
    kind, change, message = BAD[case]
    path = made(kind)
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in str(caught.value) and str(path) in str(caught.value)
    assert ", expected " in str(caught.value) and "\n" not in str(caught.value)
