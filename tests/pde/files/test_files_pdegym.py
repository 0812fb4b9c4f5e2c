"""PDEgym's layout, as the published files have it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers_layouts import ALL, N, T, X, Y, gym

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.files import read, read_pdegym


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
