"""From fields over two axes, with walls or around, to a rolled emulator and a report."""

from __future__ import annotations

import json
from pathlib import Path

import fixtures
import jax
import numpy as np
import pytest
from fixtures import tiny
from PIL import Image

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError
from jaxrl_rollouts.pde.fieldset import Fields, sample_windows
from jaxrl_rollouts.pde.files import from_arrays, read
from jaxrl_rollouts.pde.fitting import Fitted, fit
from jaxrl_rollouts.pde.operators import Fno
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.reports.report import load_report

GRID = (8, 12)
FNO = Fno(width=12, layers=2, modes=3, embedding=8)
QUICK = Training(lr=3e-3, warmup=20, average=0.99, batch=16)


def drifting(count: int = 16, frames: int = 6) -> np.ndarray:
    """Two channels of 300 and of 0.01 units that drift by a point a frame: `[N, T, 2, X, Y]`."""
    return fixtures.two_units(fixtures.waves(count, frames, GRID)[0])


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit("mse", from_arrays(drifting(), dt=0.5), network=FNO, steps=300, training=QUICK)


def test_an_emulator_learns_and_keeps_its_grid(fitted: Fitted, tmp_path: Path) -> None:
    u, own = drifting(), fitted.emulator
    assert own.points == GRID == own.grid and own.boundaries == ("periodic", "periodic")
    assert len(own.scale) == 2
    rolled = fitted.roll(u[:, 0], 5)
    assert rolled.shape == (5, 16, 2, *GRID)
    error = np.abs(rolled - np.swapaxes(u[:, 1:], 0, 1)).mean((0, 1, 3, 4))
    assert error[0] < 0.2 * 50 and error[1] < 0.2 * 0.01
    again = load_emulator(fitted.save(tmp_path / "emulator")).roll(u[:, 0], 5)
    np.testing.assert_array_equal(again, rolled)
    with pytest.raises(DataError, match=r"shape: found .*expected .2, 8, 12. or"):
        own.roll(np.zeros((2, 12, 8)), 1)


def test_a_saved_grid_that_is_none_is_named(fitted: Fitted, tmp_path: Path) -> None:
    file = fitted.save(tmp_path / "emulator") / "emulator.json"
    facts = json.loads(file.read_text())
    assert facts["points"] == list(GRID)
    for wrong in ([], [8, 0], [8, 12.5], "8"):
        file.write_text(json.dumps(facts | {"points": wrong}))
        with pytest.raises(CheckpointError, match="points|digest|damaged|checksum"):
            load_emulator(tmp_path / "emulator")


@pytest.mark.slow
def test_a_spacing_is_told_for_every_axis() -> None:
    """And only if trajectories differ in it: axes may."""
    u = drifting(6)
    net = tiny()
    same = fit("mse", from_arrays(u, dx=(0.1, 0.3)), network=net, steps=2)
    assert not same.emulator.conditions
    dx = np.stack([np.linspace(0.1, 0.2, 6), np.linspace(0.3, 0.6, 6)], 1)
    own = fit("mse", from_arrays(u, dx=dx), network=net, steps=2)
    assert list(own.emulator.conditions) == ["dx"]
    rolled = own.roll(from_arrays(u, dx=dx), 2)
    np.testing.assert_array_equal(own.roll(u[:, 0], 2, conditions={"dx": dx}), rolled)
    with pytest.raises(ConfigError, match="conditions.dx: .*expected one finite number or 6 x 2"):
        own.roll(u[:, 0], 2, conditions={"dx": dx[:, :1].repeat(3, 1)})


def test_windows_are_moved_along_some_axes() -> None:
    u = np.arange(96.0).reshape(1, 1, 1, *GRID).repeat(2, 1)
    data = Fields(jax.numpy.asarray(u), jax.numpy.zeros((1, 0)))
    rows = {tuple(row) for row in u[0, 0, 0]}
    moved, _ = sample_windows(data, jax.random.key(0), 8, 1, axes=(0,))
    assert {tuple(row) for row in np.asarray(moved[:, 0, 0]).reshape(-1, 12)} == rows
    assert not np.array_equal(moved[0], moved[1])
    columns = {tuple(column) for column in u[0, 0, 0].T}
    moved, _ = sample_windows(data, jax.random.key(0), 8, 1, axes=(1,))
    found = np.asarray(moved[:, 0, 0]).transpose(0, 2, 1).reshape(-1, 8)
    assert {tuple(column) for column in found} == columns
    everywhere, _ = sample_windows(data, jax.random.key(0), 8, 1)
    both, _ = sample_windows(data, jax.random.key(0), 8, 1, axes=(0, 1))
    np.testing.assert_array_equal(both, everywhere)


@pytest.mark.slow
def test_from_a_file_to_a_report_and_a_rollout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    u = drifting()
    file, out = tmp_path / "drift.npz", tmp_path / "runs"
    np.savez(file, u=u, dt=0.5, dx=0.1, boundaries=np.asarray(["periodic", "wall"]))
    command = ["pde", "train", str(file), "--out", str(out), "--no-progress", "--network", "fno"]
    sizes = "--network.width 4 --network.layers 1 --network.modes 2 --steps 10 --batch 4"
    cli.dispatch(command + sizes.split())
    (folder,) = out.iterdir()
    report = load_report(folder)
    assert {row[""] for row in report.tables["on trajectories it has not seen"]} == {
        "refiner",
        "mse",
        "persistence",
    }
    assert [row["wavenumber"] for row in report.tables["by wavenumber"]] == [1, 2, 4]
    assert set(report.pictures) == {"rollouts", "moving", "correlation", "spectra"}
    with Image.open(folder / report.pictures["moving"].file) as moving:
        assert (moving.format, moving.n_frames) == ("GIF", 5)
        width, height = moving.size
        assert width > 3 * 160 and height > 160  # truth, rollout and error beside each other
    assert "data:image/gif;base64" in (folder / "report.html").read_text()
    assert any("periodic, wall" in note for note in report.notes)
    rolled = tmp_path / "rolled.npz"
    roll = ["pde", "roll", str(folder), str(file), "--steps", "3", "--rows", "2", "--out"]
    capsys.readouterr()
    cli.dispatch([*roll, str(rolled), "--picture", str(tmp_path / "rolled.png")])
    assert "stays above 0.8" in capsys.readouterr().out
    found = read(rolled)
    assert found.shape == (2, 4, 2, *GRID) and found.boundaries == ("periodic", "wall")
    np.testing.assert_allclose(found.extent[0], [0.8, 1.2])
    cli.dispatch([*roll, str(rolled), "--picture", str(tmp_path / "rolled.gif")])
    with Image.open(tmp_path / "rolled.gif") as moving:
        assert moving.n_frames == 3
    with pytest.raises(ConfigError, match="ends in .npz: .* axes, not periodic, wall"):
        cli.dispatch([*roll, str(tmp_path / "rolled.h5")])
    with pytest.raises(ConfigError, match=".hdf5 or .npz: .npy is for fields of one axis"):
        cli.dispatch([*roll, str(tmp_path / "rolled.npy")])


def test_a_rollout_over_circles_is_a_file_of_the_well(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word about steps or the file: what suits the plane."""
    monkeypatch.chdir(tmp_path)
    u = drifting(3)
    channels = np.asarray(["density", "drift"])
    kinds = np.asarray(["periodic"] * 2)
    given = {"dt": 0.5, "dx": np.array([0.1, 0.2]), "boundaries": kinds, "channels": channels}
    np.savez("drift.npz", u=u, speed=np.arange(3.0), **given)
    folder = str(fitted.save(tmp_path / "emulator"))
    cli.dispatch(["pde", "roll", folder, "drift.npz", "--picture", "rolled.gif"])
    cli.dispatch(["pde", "roll", folder, "drift.npz", "--steps", "4", "--out", "rolled.npz"])
    long, short = read("rolled.h5"), read("rolled.npz")
    assert long.layout == "The Well" and long.shape == (3, 201, 2, *GRID)
    assert long.channels == short.channels == ("density", "drift")
    assert long.boundaries == ("periodic", "periodic")
    np.testing.assert_allclose(long.extent, [[0.8, 2.4]] * 3)
    np.testing.assert_array_equal(long.parameters["speed"], np.arange(3.0))
    assert short.array().dtype == u.dtype == np.float64, "as the fields it was rolled from"
    np.testing.assert_array_equal(long.array()[:, :5], short.array().astype(np.float32))
    np.testing.assert_array_equal(long.array()[:, 0], u[:, 0].astype(np.float32))
