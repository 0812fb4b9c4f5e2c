"""Emulators of fields with constant channels: `u' = -c(x) u`, whose solution is known; files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde import streaming
from jaxrl_rollouts.pde.fieldset import FieldSet, Scaling
from jaxrl_rollouts.pde.files import from_arrays, read, write_well
from jaxrl_rollouts.pde.fitting import Fitted, fit
from jaxrl_rollouts.pde.generate import Solved
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.reports.report import load_report

ALL = slice(None)
N, T, X, DT = 48, 6, 16, 0.2
NET = tiny(16, (1,))
TINY = tiny()
TRAINING = Training(lr=3e-3, warmup=20, average=0.98)


def decay(seed: int = 0, rows: int = N, frames: int = T) -> np.ndarray:
    """The coefficient `c` and `u = u0 exp(-c t)`, `[rows, frames, 2, X]`."""
    rng = np.random.default_rng(seed)
    c, start = rng.uniform(0.2, 2.0, (rows, 1, X)), rng.normal(1.0, 1.0, (rows, 1, X))
    u = start * np.exp(-c * DT * np.arange(frames)[:, None])
    return np.stack([np.broadcast_to(c, u.shape), u], 2).astype(np.float32)


def declared(u: np.ndarray) -> FieldSet:
    return from_arrays(u, dt=DT, names=("c", "u"))._replace(constant=(0,))


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit("mse", declared(decay()), network=NET, steps=300, training=TRAINING)


def test_what_is_constant_stays_to_the_bit_and_is_kept(fitted: Fitted, tmp_path: Path) -> None:
    own, u = fitted.emulator, decay(1)
    assert (own.channels, own.width, own.changing) == (1, 2, (1,))
    c = decay()[:, 0, 0]
    assert own.constant[0] == pytest.approx(Scaling(c.mean(), 1 / c.std()), rel=1e-5)
    assert isinstance(own.scale, float)
    rolled = fitted.roll(u[:, 0], 7)
    np.testing.assert_array_equal(rolled[:, :, 0], np.broadcast_to(u[:, 0, 0], (7, N, X)))
    again = load_emulator(fitted.save(tmp_path / "emulator"))
    assert again.constant == own.constant and again.names == ("c", "u")
    np.testing.assert_array_equal(again.roll(u[:, 0], 7), rolled)
    np.testing.assert_array_equal(fitted.roll(declared(u), 7), rolled)
    np.testing.assert_allclose(again.roll(u[0, 0], 7), rolled[:, 0], rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match=r"shape: found .48, 1, 16., expected .2, 16. or"):
        fitted.roll(u[:, 0, 1:], 1)


@pytest.mark.slow
def test_a_channel_that_never_changes_is_found_and_said(fitted: Fitted) -> None:
    """As if the file had said it: weights are the same to the bit, those of two seeds as well."""
    u = decay(rows=8)
    options: dict[str, Any] = {"network": TINY, "steps": 4, "seeds": 2}
    one = fit("refiner", declared(u), **options)
    with pytest.warns(UserWarning, match="array: c: the same in every frame: held constant"):
        other = fit("refiner", from_arrays(u, dt=DT, names=("c", "u")), **options)
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    assert one.emulator.constant == other.emulator.constant
    alone = [other.roll(u[:, 0], 2, seed=seed) for seed in range(2)]
    assert not np.array_equal(*alone) and np.isfinite(alone).all()
    with pytest.raises(DataError, match="u_0: found no change from step to step"):
        fit("mse", u[:, :1].repeat(3, 1), network=TINY, steps=1)
    with pytest.raises(DataError, match="c: found no change from step to step"):
        fit("mse", declared(u)._replace(constant=(0, 1)), network=TINY, steps=1)


def test_a_constant_that_is_the_same_everywhere_does_no_harm() -> None:
    u = decay(rows=8)
    u[:, :, 0] = 3.0
    own = fit("mse", declared(u), network=TINY, steps=2).emulator
    assert own.constant == {0: Scaling(3.0, 1.0)}
    assert np.isfinite(own.roll(u[:, 0], 2)).all()


def test_a_history_holds_one_constant() -> None:
    u = decay(rows=8)
    own = fit("mse", declared(u), network=TINY, steps=2, history=2).emulator
    rolled = own.roll(u[:, :2], 3)
    np.testing.assert_array_equal(rolled[:, :, 0], np.broadcast_to(u[:, 0, 0], (3, 8, X)))
    u[3, 1, 0, 2] += 1
    with pytest.raises(DataError, match="c: found a change in trajectory 3, frame 1"):
        own.roll(u[:, :2], 3)


@pytest.mark.slow
def test_from_the_disk_it_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "rows"))
    monkeypatch.setattr(streaming, "_AT_ONCE", 4 * T * X * 3)  # three trajectories
    u = from_arrays(decay(rows=8), dt=DT, names=("c", "u"))
    options: dict[str, Any] = {"network": TINY, "steps": 4}
    options["training"] = Training(batch=4, warmup=1)
    for found in (u._replace(constant=(0,)), u):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, other = (fit("mse", found, stream=s, **options) for s in ("never", "always"))
        assert one.emulator.constant == other.emulator.constant
        jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


def forced(path: Path, rows: int = 10) -> Path:
    """PDEBench's incompressible flow: velocity and particles drift, pushed by a constant force."""
    rng = np.random.default_rng(0)
    force = rng.normal(size=(rows, 8, 8, 2)).astype(np.float32)
    time = np.arange(5, dtype=np.float32)
    velocity = (
        rng.normal(size=(rows, 1, 8, 8, 2)) + 0.1 * time[:, None, None, None] * force[:, None]
    )
    with h5py.File(path, "w") as file:
        file["velocity"] = velocity.astype(np.float32)
        file["particles"] = (velocity.sum(-1, keepdims=True) + 1).astype(np.float32)
        file["force"], file["t"] = force, time * np.ones((rows, 1), np.float32)
    return path


@pytest.mark.slow
def test_pdebench_from_the_file_to_a_report_and_a_rollout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = forced(tmp_path / "ns.h5"), tmp_path / "runs"
    found = read(file)
    assert [found.channels[i] for i in found.constant] == ["force_x", "force_y"]
    cli.dispatch(["pde", "inspect", str(file), "--out", str(tmp_path / "ns.png")])
    said = capsys.readouterr().out
    assert "5 channel(s)" in said and "constant     force_x, force_y: in the file once" in said
    moving = found.array()[:, :, :3].std()
    assert f"spread       {moving:.4g} (of 10" in said  # of those that change
    sizes = (
        "--network fno --network.width 4 --network.layers 1 --network.modes 2 --steps 4 --batch 4"
    )
    options = ["--out", str(out), "--no-progress", "--objective", "mse"]
    cli.dispatch(["pde", "train", str(file), *options, *sizes.split()])
    assert "constant, not predicted: force_x, force_y" in capsys.readouterr().err
    (folder,) = out.iterdir()
    report = load_report(folder)
    rows = {row[""]: row for row in report.tables["on trajectories it has not seen"]}
    # What drifts by a constant force, a linear map that is told the force has at once.
    error = {name: row["one-step MSE"].mean for name, row in rows.items()}
    assert error["linear"] < 1e-2 * error["persistence"]
    assert any(note.startswith("Constant in time: force_x, force_y.") for note in report.notes)
    saved = load_emulator(folder / "emulator")
    assert list(saved.constant) == [3, 4] and len(saved.units) == 3
    rolled = tmp_path / "rolled.h5"
    roll = ["pde", "roll", str(folder), str(file), "--steps", "3", "--rows", "2", "--out"]
    cli.dispatch([*roll, str(rolled), "--picture", str(tmp_path / "rolled.png")])
    assert "constant, as in the file: force_x, force_y" in capsys.readouterr().out
    again = read(rolled)
    order = [again.channels.index(name) for name in found.channels]  # vectors come last there
    assert [again.channels[i] for i in again.constant] == ["force_x", "force_y"]
    force = found.read(slice(0, 2), [0] * 4)[:, :, 3:]
    np.testing.assert_array_equal(again.array()[:, :, order[3:]], force)
    cli.dispatch([*roll, str(tmp_path / "rolled.npz"), "--picture", str(tmp_path / "rolled.gif")])
    plain = read(tmp_path / "rolled.npz")
    assert plain.channels == found.channels
    np.testing.assert_array_equal(plain.array(), again.array()[:, :, order])


def test_a_rollout_from_a_file_whose_constant_changes_is_refused(
    fitted: Fitted, tmp_path: Path
) -> None:
    u, folder = decay(2, rows=4), str(fitted.save(tmp_path / "emulator"))
    np.savez(tmp_path / "a.npz", u=u, dt=DT, channels=["c", "u"])
    roll = ["pde", "roll", folder, str(tmp_path / "a.npz"), "--steps", "2", "--out"]
    cli.dispatch([*roll, str(tmp_path / "out.h5")])
    assert read(tmp_path / "out.h5").constant == (0,)
    u[1, 3, 0] += 1
    np.savez(tmp_path / "a.npz", u=u, dt=DT, channels=["c", "u"])
    with pytest.raises(DataError, match="c: found a change in trajectory 1, frame 3"):
        cli.dispatch([*roll, str(tmp_path / "other.h5")])
    assert not (tmp_path / "other.h5").exists()


def test_a_test_file_whose_constant_changes_is_refused(tmp_path: Path) -> None:
    u = decay(rows=6)
    np.savez(tmp_path / "train.npz", u=u, channels=["c", "u"])
    u[2, 2:, 0] += 1
    np.savez(tmp_path / "test.npz", u=u, channels=["c", "u"])
    command = ["pde", "train", str(tmp_path / "train.npz"), "--test", str(tmp_path / "test.npz")]
    sizes = "--network.width 4 --network.blocks 1 --network.dilations 1 --steps 2 --seeds 1"
    with (
        pytest.warns(UserWarning, match="train.npz: c: the same in every frame"),
        pytest.raises(DataError, match="c: found a change in trajectory 2, frame 2"),
    ):
        cli.dispatch([*command, "--out", str(tmp_path / "runs"), "--no-progress", *sizes.split()])


def test_the_well_keeps_static_fields_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scalars and whole vectors, over chunks; half a vector is repeated, as the layout has it."""
    rng = np.random.default_rng(0)
    fields = rng.normal(size=(5, 4, 4, 3, 2)).astype(np.float32)
    fields[:, :, 1:] = fields[:, :1, 1:]
    names = ("u", "mask", "force_x", "force_y")
    ones = np.ones(5)
    chunks = [Solved(fields[p], ones[p], ones[p], ones[p]) for p in (slice(0, 3), slice(3, 5))]
    path = write_well(tmp_path / "a.hdf5", chunks, channels=names, constant=(1, 2, 3))
    found = read(path)
    assert {found.channels[i] for i in found.constant} == {"mask", "force_x", "force_y"}
    order = [names.index(name) for name in found.channels]
    np.testing.assert_array_equal(found.array(), fields[:, :, order])
    with h5py.File(path) as file:
        assert file["t0_fields/mask"].shape == (5, 3, 2)
        assert file["t1_fields/force"].shape == (5, 3, 2, 2)
        assert not file["t1_fields/force"].attrs["time_varying"]
        assert file["t0_fields/u"].attrs["time_varying"]
    half = read(write_well(tmp_path / "b.hdf5", chunks, channels=names, constant=(2,)))
    assert half.constant == ()
    cli.dispatch(["pde", "inspect", str(tmp_path / "b.hdf5")])
    assert "unchanged    mask, force_x, force_y: the same" in capsys.readouterr().out
    own = fit("mse", found, network=TINY, steps=2).emulator
    assert own.changing == (0,) and own.names == found.channels
    with pytest.raises(DataError, match="u: found a change in trajectory 0, frame 1"):
        write_well(tmp_path / "c.hdf5", chunks, channels=names, constant=(0,))
    assert not (tmp_path / "c.hdf5").exists()


def test_a_solver_is_refused_with_the_way_to_do_without(tmp_path: Path) -> None:
    u = decay(rows=6)
    np.savez(tmp_path / "a.npz", u=u, dt=DT, dx=1.0, channels=["c", "u"])
    command = ["pde", "train", str(tmp_path / "a.npz"), "--equation", "advection", "--out"]
    with pytest.raises((DataError, ConfigError), match="leave the solver out"):
        cli.dispatch([*command, str(tmp_path / "runs"), "--no-progress"])
