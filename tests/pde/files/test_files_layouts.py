"""Layouts of PDEBench, PDEGym and APEBench, and files that are joined."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from fixtures import joined, solved, tiny
from helpers_layouts import ALL, APE, INFO, N, T, X, Y, gym, make, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.constant import named
from jaxrl_rollouts.pde.fieldset import condition_values
from jaxrl_rollouts.pde.files import read, read_apebench, read_pdebench, read_pdegym, write_apebench


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


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("velocity", ("velocity_x", "velocity_y")),
        ("velocity", ("velocity_x", "velocity_y", "tracer")),
        ("solution", ("velocity_x", "velocity_y")),
        ("solution", ("u_0", "u_1", "u_2", "u_3")),
        ("data", ("density", "velocity_x", "velocity_y", "pressure")),
        ("data", ("density", "velocity_x", "velocity_y", "pressure", "u_4")),
    ],
)
def test_a_published_file(tmp_path: Path, key: str, names: tuple[str, ...]) -> None:
    path = gym(tmp_path / "NS-PwC.nc", key, len(names))
    found = read(path)
    assert found.layout == "PDEgym" and found.channels == names
    assert found.boundaries == ("periodic", "periodic")
    np.testing.assert_allclose(found.dt, 0.05)
    np.testing.assert_array_equal(found.extent, np.ones((N, 2)))
    with h5py.File(path) as file:
        np.testing.assert_array_equal(found.read(ALL, ALL), file[key][:])


@pytest.mark.parametrize("waves", [True, False])
def test_scalars_and_waves_that_run_at_a_speed_of_their_own(tmp_path: Path, waves: bool) -> None:
    rng = np.random.default_rng(0)
    u, c = rng.normal(size=(N, T, X, Y)).astype("f4"), rng.uniform(1e3, 5e3, (N, X, Y))
    path = tmp_path / "Wave-Layer.nc"
    with h5py.File(path, "w") as file:
        file["solution"] = u
        if waves:
            file["c"] = c
    found = read(path)
    assert found.layout == "PDEgym" and found.shape == (N, T, 1 + waves, X, Y)
    assert found.channels == ("u", "speed")[: 1 + waves] and found.constant == (1,) * waves
    assert found.boundaries == (("open",) * 2 if waves else ("periodic",) * 2)
    assert np.isnan(found.dt).all() and np.isnan(found.extent).all()
    values = found.read([2, 0], slice(1, 5))
    np.testing.assert_array_equal(values[:, :, 0], u[[2, 0], 1:5])
    if waves:
        np.testing.assert_array_equal(values[:, :, 1], c[[2, 0], None].repeat(4, 1))
        with h5py.File(path, "r+") as file:
            del file["c"]
            file["c"] = c[:2]
        with pytest.raises(DataError, match=r"c: found shape \(2, 8, 6\), expected \(3, 8, 6\)"):
            read(path)


def test_another_shape_is_named(tmp_path: Path) -> None:
    path = gym(tmp_path / "a.nc", "velocity", 4)
    with pytest.raises(DataError, match=r"velocity: found shape .*axes n, t, c, x, y; c 2 or 3"):
        read_pdegym(path)
    other = tmp_path / "b.nc"
    with h5py.File(other, "w") as file:
        file["solution"] = np.ones((3, 4, 5), "f4")
    with pytest.raises(DataError, match=r"solution: found shape \(3, 4, 5\).*or n, t, x, y"):
        read(other)
    with h5py.File(other, "a") as file:
        file["particles"] = np.ones(3, "f4")
    with pytest.raises(DataError, match="layout: found keys particles, solution"):
        read_pdegym(other)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make("ape", tmp_path)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    frames=st.integers(1, 4),
    channels=st.integers(1, 3),
    axes=st.integers(1, 3),
    points=st.integers(2, 5),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_what_is_written_is_read(
    rows: list[int], frames: int, channels: int, axes: int, points: int, dtype: str
) -> None:
    shape = (frames, channels, *(points,) * axes)
    chunks = [solved((n, *shape), i) for i, n in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = write_apebench(Path(folder) / "a_train.npy", iter(chunks), dtype=dtype)
        found = read(path)
        values = found.read(ALL, ALL)
        plain = np.load(path)
    fields, extent, dt, value = joined(chunks)
    assert found.layout == "APEBench" and found.shape == (sum(rows), *shape)
    assert values.dtype == plain.dtype == dtype
    np.testing.assert_array_equal(plain, fields.astype(dtype))
    np.testing.assert_array_equal(values, plain)
    np.testing.assert_array_equal(found.dt, dt)
    np.testing.assert_array_equal(found.extent, np.repeat(extent[:, None], axes, 1))
    np.testing.assert_array_equal(found.parameters["viscosity"], value)


def test_a_scraped_scenario(path: Path) -> None:
    found = read(path)
    assert found.layout == "APEBench" and found.shape == APE.shape
    assert found.channels == ("u_0", "u_1") and found.boundaries == ("periodic", "periodic")
    np.testing.assert_array_equal(found.read(ALL, ALL), APE)
    np.testing.assert_array_equal(found.dt, [0.1] * N)
    np.testing.assert_array_equal(found.extent, [[2.0, 2.0]] * N)
    assert {name: list(x) for name, x in found.parameters.items()} == {"diffusion_coef": [0.01] * N}
    assert read(path.with_name("2d_phy_burgers_test.npy")).shape[0] == 2


def described(path: Path, info: dict) -> None:
    path.with_name("2d_phy_burgers.json").write_text(json.dumps({"name": "a", "info": info}))


def test_a_scenario_without_units(path: Path) -> None:
    described(path, {k: v for k, v in INFO.items() if k not in ("dt", "domain_extent")})
    found = read_apebench(path)
    assert set(found.dt) == {1.0} and set(found.extent.flat) == {1.0}


def test_the_array_is_mapped_and_not_read(path: Path, monkeypatch: Any) -> None:
    modes: list[Any] = []
    original = np.memmap

    def load(path: Path, dtype: Any, mode: str, *rest: Any) -> Any:
        modes.append(mode)
        return original(path, dtype, mode, *rest)

    monkeypatch.setattr(np, "memmap", load)
    assert read_apebench(path).read(1, slice(0, 2)).shape == (1, 2, 2, X, X)
    assert set(modes) == {"r"}


def test_diffusivity_and_drag_are_parameters(path: Path) -> None:
    """As APEBench's flows in the plane have them."""
    described(path, {**INFO, "diffusivity": 0.002, "drag": -0.1, "num_warmup_steps": 3})
    found = {name: values[0] for name, values in read_apebench(path).parameters.items()}
    assert found == {"diffusion_coef": 0.01, "diffusivity": 0.002, "drag": -0.1}


U = np.random.default_rng(0).normal(size=(7, 5, 2, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files: of 3, 2 and 2 trajectories, diffusivity 1, 2 and 3."""
    for i, rows in enumerate((slice(0, 3), slice(3, 5), slice(5, 7))):
        np.savez(tmp_path / f"d_{i}.npz", u=U[rows], dt=0.1 * (i + 1), dx=0.5, D=i + 1.0)
    (tmp_path / "notes.txt").write_text("not fields")
    return tmp_path


def test_a_folder_a_pattern_and_a_list_are_one_set(folder: Path) -> None:
    listed = [folder / f"d_{i}.npz" for i in range(3)]
    commas = ",".join(map(str, listed))
    for kept in (folder, str(folder), folder / "d_*.npz", f"{folder}/d_?.npz", listed, commas):
        fields = pde.read(kept)
        assert fields.shape == U.shape
        np.testing.assert_array_equal(fields.array(), U)
        np.testing.assert_array_equal(fields.parameters["D"], [1, 1, 1, 2, 2, 3, 3])
        np.testing.assert_allclose(fields.dt, 0.1 * fields.parameters["D"])
    for pattern in (f"{str(folder)[:-1]}?/d_*.npz", f"{folder}/**/d_?.npz"):
        np.testing.assert_array_equal(pde.read(pattern).array(), U)
    assert pde.read([folder / "d_1.npz"]).shape[0] == 2 and pde.read(folder).parts == (3, 2, 2)


@pytest.mark.parametrize("rows", [4, [6, 0, 3, 0], slice(2, 6, 2), slice(0, 0), [-1]])
@pytest.mark.parametrize("frames", [1, slice(0, None, 2), [3, 1]])
def test_trajectories_are_read_alone(folder: Path, rows: object, frames: object) -> None:
    picked = [np.atleast_1d(np.arange(n)[i]) for n, i in zip((7, 5), (rows, frames), strict=True)]
    np.testing.assert_array_equal(pde.read(folder).read(rows, frames), U[np.ix_(*picked)])


def test_some_frames_and_some_channels(folder: Path) -> None:
    found = pde.read(folder, every=2, channels=("u_1",))
    np.testing.assert_array_equal(found.array(), U[:, ::2, 1:])
    np.testing.assert_array_equal(found.read([6, 0], slice(1, 3)), U[[6, 0], 2::2, 1:])
    np.testing.assert_allclose(found.dt, 0.2 * found.parameters["D"])
    assert found.channels == ("u_1",)
    turned = pde.read(folder, channels=("u_1", "u_0"))
    np.testing.assert_array_equal(turned.array(), U[:, :, ::-1])
    with pytest.raises(ConfigError, match="channels: found 'v', expected one of u_0, u_1"):
        pde.read(folder, channels=("v",))
    with pytest.raises(ConfigError, match="every: found 0"):
        pde.read(folder, every=0)
    with pytest.raises(ConfigError, match="paths"):
        pde.read([])


def test_a_set_without_some_channels_names_no_equation() -> None:
    own = pde.from_arrays(U, dt=0.1)._replace(equation="gray_scott_2d")
    assert named(own, own.channels).equation == "gray_scott_2d"
    assert named(own, own.channels[:1]).equation == ""


def test_a_parameter_that_differs_between_files_is_a_condition(folder: Path) -> None:
    net = tiny()
    fitted = pde.fit("mse", [str(folder / f"d_{i}.npz") for i in (0, 1)], network=net, steps=1)
    assert set(fitted.emulator.conditions) == {"D", "dt"}


def test_several_files_left_on_the_disk_train_the_same(folder: Path) -> None:
    options: Any = {"network": tiny(), "steps": 3}
    one, two = (pde.fit("mse", folder, stream=s, **options).params for s in ("never", "always"))
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_files_of_other_fields_are_named(folder: Path) -> None:
    for name, changes, words in (
        ("points", {"u": U[:2, :, :, :4]}, r"points.npz: frames, channels, points: .*of d_0.npz"),
        ("names", {"channels": np.array(["a", "b"])}, r"names.npz: channels: found \['a', 'b'\]"),
        ("ends", {"boundaries": np.asarray("wall")}, r"ends.npz: boundaries: found \['wall'\]"),
    ):
        np.savez(folder / f"{name}.npz", **({"u": U[:2], "dt": 0.1, "dx": 0.5, "D": 1.0} | changes))
        with pytest.raises(DataError, match=words):
            pde.read([folder / "d_0.npz", folder / f"{name}.npz"])
    np.savez(folder / "none.npz", u=U[:2], dt=0.1, dx=0.5)
    with pytest.raises(DataError, match="none.npz: parameters: found none, expected D, as other"):
        pde.read([folder / "d_0.npz", folder / "none.npz"])
    with pytest.raises(DataError, match="pattern: found no file"):
        pde.read(folder / "e_*.npz")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="folder: found no file of fields"):
        pde.read(folder / "empty")
