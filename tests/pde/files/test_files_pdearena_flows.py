"""PDEArena's layout of flows in the plane, as its generator writes it, and ours."""

from __future__ import annotations

from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
from fixtures import joined
from helpers_layouts import ALL, DT, LENGTHS, N, T, arena_flow, make

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.files import read, read_pdearena, read_pdearena_flows, write_pdearena_flows
from jaxrl_rollouts.pde.flows import find_flow, to_vorticity
from jaxrl_rollouts.pde.generate import Solved


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_published_file(tmp_path: Path, split: str) -> None:
    path = arena_flow(tmp_path / "a.h5", split)
    found = read(path)
    assert found.layout == "PDEArena (flows)" and found.channels == ("u", "vx", "vy")
    assert found.boundaries == ("wall", "wall") and found.equation == ""
    assert find_flow(found) is None, "walls have no Fourier modes"
    np.testing.assert_array_equal(found.dt, np.full(N, DT))
    np.testing.assert_allclose(found.extent, np.tile(LENGTHS, (N, 1)))
    assert set(found.parameters) == {"buo_y"}
    np.testing.assert_array_equal(found.parameters["buo_y"], np.linspace(0.2, 0.5, N))
    with h5py.File(path) as file:
        values = np.stack([file[f"{split}/{name}"][:] for name in found.channels], 2)
    np.testing.assert_array_equal(found.read(ALL, ALL), values)


def test_inspect_says_what_is_in_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.dispatch(["pde", "inspect", str(path)])
    said = capsys.readouterr().out
    assert f"PDEArena (flows), {N} trajectories of {T} frames" in said
    assert "buo_y        0.2 to 0.5" in said and "wall, wall" in said


def test_coordinates_stand_in_for_spacings(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        for name in ("dt", "dx", "dy"):
            del file["valid"][name]
    found = read(path)
    np.testing.assert_allclose(found.dt, DT)
    np.testing.assert_allclose(found.extent, np.tile(LENGTHS, (N, 1)))
    with h5py.File(path, "r+") as file:
        for name in "txy":
            del file["valid"][name]
    found = read(path)
    assert np.isnan(found.dt).all() and np.isnan(found.extent).all()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make("arena_flow", tmp_path)


def chunks(count: int = 2) -> list[Solved]:
    """Vorticities without a mean and without the highest waves, on domains of two lengths."""
    draw = np.random.default_rng(1)
    made = []
    for _ in range(count):
        modes = np.fft.rfft2(draw.normal(size=(2, 4, 1, 8, 8)))
        modes[..., 0, 0] = modes[..., 4, :] = modes[..., :, 4] = 0.0
        fields = np.fft.irfft2(modes, (8, 8))
        extent, nu = np.array([2 * np.pi, 3.0]), draw.uniform(0.01, 0.02, 2)
        made.append(Solved(fields, extent, np.array([0.1, 0.2]), nu))
    return made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    solved = chunks()
    whole = joined(solved)
    path = write_pdearena_flows(
        tmp_path / "flow_train.h5", iter(solved), equation="navier_stokes_2d"
    )
    found = read(path)
    assert found.shape == (4, 4, 3, 8, 8) and found.equation == "navier_stokes_2d"
    assert found.boundaries == ("periodic", "periodic")
    np.testing.assert_array_equal(found.dt, whole.dt)
    np.testing.assert_allclose(found.extent, whole.extent[:, None].repeat(2, 1), rtol=1e-15)
    np.testing.assert_array_equal(found.parameters["viscosity"], whole.parameter)
    with h5py.File(path, "r+") as file:
        group = file["train"]
        np.testing.assert_allclose(np.diff(group["x"][()]), group["dx"][()][:, None].repeat(7, 1))
        del group["dx"], group["dy"]
    np.testing.assert_allclose(read(path).extent, found.extent, rtol=1e-14)
    fields = found.read(ALL, ALL)
    np.testing.assert_array_equal(fields[:, :, :1], whole.fields)
    flow = find_flow(found)
    assert flow is not None and flow.channels == (1, 2)
    with jax.enable_x64(True):
        for velocity, extent, vorticity in zip(
            fields[:, :, 1:], whole.extent, whole.fields, strict=True
        ):
            np.testing.assert_allclose(to_vorticity(velocity, extent), vorticity, atol=1e-12)


def test_its_arrays_are_the_generators(tmp_path: Path) -> None:
    theirs = arena_flow(tmp_path / "a.h5", "train")
    ours = write_pdearena_flows(tmp_path / "flow_train.h5", iter(chunks()))
    with h5py.File(theirs) as a, h5py.File(ours) as b:
        assert set(b["train"]) == {*a["train"]} - {"buo_y"} | {"viscosity"}
        for name in set(b["train"]) - {"viscosity"}:
            assert a["train"][name].dtype == b["train"][name].dtype == np.float64
            assert a["train"][name].ndim == b["train"][name].ndim
        for file in (a, b):  # in both the distance of the places; only ours is periodic
            x, dx = file["train/x"][0], file["train/dx"][0]
            np.testing.assert_allclose(x, dx * np.arange(8), rtol=1e-14)
        np.testing.assert_allclose(b["train/dy"][0], 2 * np.pi / 8)


def test_strange_attributes_change_nothing(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["valid"].attrs.update(boundaries=[1, 2], equation=["kolmogorov_2d", "ks"])
    found = read(path)
    assert found.boundaries == ("wall", "wall") and found.equation == ""


def test_one_layout_is_not_the_other(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="layout: found keys valid"):
        read_pdearena(path)
    other = tmp_path / "b.h5"
    with h5py.File(other, "w") as file:
        file["train/u"] = np.ones((1, 2, 4, 4))
    with pytest.raises(DataError, match="layout: found keys train.*vx, vy"):
        read_pdearena_flows(other)
    with pytest.raises(DataError, match="layout: .*in train: u"):
        read(other)
