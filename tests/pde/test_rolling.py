"""`pde roll` from a file that is not as the emulator's own, and what is said of it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import CheckpointError, DataError
from jaxrl_rollouts.pde.fieldset import take_frames
from jaxrl_rollouts.pde.files import from_arrays, read
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.operators import Fno, Poseidon, Resnet
from jaxrl_rollouts.pde.rolling import check_domain, frames_per_step, on_points_of, starts
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.pde.trained import TrainedEmulator

N = 16
NET = Resnet(width=8, blocks=1, dilations=(1, 2), embedding=8)
TINY = fixtures.tiny()


def waves(frames: int, speed: float = 1.0) -> np.ndarray:
    """`[6, frames, 1, N]` of waves that move `speed` points a frame."""
    return fixtures.waves(6, frames, (N,), speed, modes=(1, 1))[0][:, :, None]


@pytest.fixture(scope="module")
def trained() -> TrainedEmulator:
    """Of steps of 0.5, every second frame of its file, on a circle of 1.6."""
    fields = from_arrays(waves(12, 0.5), dt=0.25, dx=0.1)
    return fit("mse", fields, network=NET, stride=2, steps=300, seeds=1).emulator


def test_as_many_frames_are_taken_as_make_a_step(trained: TrainedEmulator) -> None:
    assert trained.stride == 2 and trained.dt == 0.5
    assert frames_per_step(trained, from_arrays(waves(6), dt=0.25)) == 2
    assert frames_per_step(trained, from_arrays(waves(6))) == 2  # nobody knows better
    with pytest.warns(UserWarning, match="frames 0.1 apart, expected 0.5.*one frame in 5 is taken"):
        assert frames_per_step(trained, from_arrays(waves(6), dt=0.1)) == 5
    with pytest.warns(UserWarning, match="not compared with its rollouts"):
        assert frames_per_step(trained, from_arrays(waves(6), dt=0.33)) is None
    two = fit("mse", waves(12), network=TINY, history=2, steps=1).emulator
    assert two.dt is None and frames_per_step(two, from_arrays(waves(6), dt=9.0)) == 1
    known = from_arrays(waves(12), dt=0.5)
    two = fit("mse", known, network=TINY, history=2, steps=1).emulator
    with pytest.raises(DataError, match="frames 0.33 apart, expected 0.5.*it sees 2 frames"):
        frames_per_step(two, from_arrays(waves(6), dt=0.33))


def test_frames_that_were_left_out_of_an_untimed_file_are_again() -> None:
    """Else rollouts are compared with frames of another time, in silence."""
    fields = take_frames(from_arrays(waves(12)), slice(None, None, 3))
    own = fit("mse", fields, network=TINY, stride=2, steps=1).emulator
    assert own.every == 3 and frames_per_step(own, from_arrays(waves(12))) == 6
    assert frames_per_step(own, fields) == 2
    timed = replace(own, dt=0.6)
    assert frames_per_step(timed, from_arrays(waves(12))) == 6
    assert frames_per_step(timed, from_arrays(waves(12), dt=0.3)) == 2


def test_a_file_on_other_points_is_rolled_where_the_network_can(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = Fno(width=4, layers=1, modes=3, embedding=4)
    own = fit("mse", from_arrays(waves(6), dt=1.0, dx=0.1), network=net, steps=3).emulator
    fine = fixtures.waves(6, 6, (2 * N,), 2.0, modes=(1, 1))[0][:, :, None]
    np.savez("fine.npz", u=fine, dt=1.0, dx=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        command = ["pde", "roll", str(own.save("emulator")), "fine.npz", "--steps", "2"]
        cli.dispatch([*command, "--every", "1", "--channels", "u"])
    line = "32 points, 16 in training: the network takes the domain to be the same"
    assert line in capsys.readouterr().out
    rolled = read("rolled.h5").array()[:, 1:].swapaxes(0, 1)
    np.testing.assert_allclose(rolled, own.on_grid(2 * N).roll(fine[:, 0], 2), rtol=1e-6)
    with pytest.raises(DataError, match="channels: found 1 on 32 points, expected 1 on 16 points"):
        on_points_of(replace(own, network=Poseidon()), read("fine.npz"))
    with pytest.raises(DataError, match="channels: found 2 on 32 points"):
        on_points_of(own, from_arrays(np.repeat(fine, 2, 2)))


def test_other_ends_and_other_lengths_are_said(trained: TrainedEmulator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_domain(trained, from_arrays(waves(6), dx=0.1))
        check_domain(trained, from_arrays(waves(6), boundaries=""))
    with pytest.warns(UserWarning, match="boundaries: found wall, expected periodic"):
        check_domain(trained, from_arrays(waves(6), boundaries="wall"))
    with pytest.warns(UserWarning, match=r"extent: found \[3.2\], expected \[1.6\]"):
        check_domain(trained, from_arrays(waves(6), dx=0.2))


def test_a_finer_file_is_compared_where_frames_meet(
    trained: TrainedEmulator, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = str(trained.save("emulator"))
    # A step of 0.5 moves a wave by one point; so do five of these frames.
    np.savez("fine.npz", u=waves(21, 0.2), dt=0.1, dx=0.1, boundaries=np.asarray("periodic"))
    np.savez("odd.npz", u=waves(21, 0.2), dt=0.33, dx=0.1, boundaries=np.asarray("periodic"))
    with pytest.warns(UserWarning, match="one frame in 5 is taken"):
        cli.dispatch(["pde", "roll", folder, "fine.npz", "--steps", "8", "--picture", "fine.png"])
    told = capsys.readouterr().out
    assert "above 0.8 for 2 (" in told and "ends at 2, to where 6 of 6 hold" in told
    assert Path("fine.png").stat().st_size
    np.testing.assert_allclose(read("rolled.h5").dt, 0.5, rtol=1e-6)
    with pytest.warns(UserWarning, match="not compared"):
        cli.dispatch(["pde", "roll", folder, "odd.npz", "--steps", "3", "--out", "odd.npy"])
    assert "above 0.8" not in capsys.readouterr().out
    with pytest.warns(UserWarning), pytest.raises(CheckpointError, match="training seed: found 1"):
        cli.dispatch(["pde", "roll", folder, "fine.npz", "--training-seed", "1"])
    # The same from the library: trajectories are taken as they are.
    own = load_emulator(folder)
    found = from_arrays(waves(3, 0.5), dt=0.25)
    np.testing.assert_array_equal(own.roll(found, 2), own.roll(waves(1)[:, 0], 2))


def test_in_a_plane_with_walls_the_name_of_what_comes_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    u = np.random.default_rng(0).normal(size=(3, 4, 1, 8, 8)).cumsum(1)
    kinds = np.asarray(["periodic", "wall"])
    np.savez("plane.npz", u=u, boundaries=kinds)
    own = fit("mse", "plane.npz", network=TINY, steps=1).emulator
    cli.dispatch(["pde", "roll", str(own.save("emulator")), "plane.npz", "--steps", "2"])
    assert read("rolled.npz").boundaries == tuple(kinds)


def test_of_a_file_with_further_channels_the_emulators_are_taken(
    trained: TrainedEmulator, tmp_path: Path
) -> None:
    facts, path = {**trained.facts, "channel_names": ["v"]}, tmp_path / "a.npz"
    own = replace(trained, facts=facts)
    u = np.concatenate([waves(5), 2 * waves(5)], 2)
    np.savez(path, u=u, dt=0.25, dx=0.1, channels=["u", "v"])
    np.testing.assert_array_equal(starts(str(path), None, own).array(), u[:, :, 1:])
    other = replace(trained, facts={**facts, "channel_names": ["w"]})
    assert starts(str(path), None, other).shape[2] == 2


def test_parameters_that_did_not_vary_are_kept_and_compared(tmp_path: Path) -> None:
    """An emulator of diffusivity 0.01 on a file of 0.03, or of none."""
    fields = from_arrays(waves(6), conditions={"D": 0.01, "nu": np.linspace(1, 2, 6)})
    own = fit("mse", fields, network=TINY, steps=1).emulator
    assert own.parameters == {"D": (0.01, 0.01), "nu": (1.0, 2.0)} and list(own.conditions) == [
        "nu"
    ]
    own = load_emulator(own.save(tmp_path / "emulator"))
    assert own.parameters == {"D": (0.01, 0.01), "nu": (1.0, 2.0)}
    nu = np.linspace(1, 2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.roll(fields, 1)
    with pytest.warns(UserWarning, match="D: found 0.03, expected 0.01: the emulator was trained"):
        own.roll(from_arrays(waves(6), conditions={"D": 0.03, "nu": nu}), 1)
    with pytest.warns(UserWarning, match="array: D: not in the file, so not checked"):
        own.roll(from_arrays(waves(6), conditions={"nu": nu}), 1)
    with pytest.warns(UserWarning, match="conditions.nu: found 1 to 3"):
        own.roll(from_arrays(waves(6), conditions={"D": 0.01, "nu": np.linspace(1, 3, 6)}), 1)


def test_a_rolled_file_is_compared_by_parameters_and_by_nrmse(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = fit("mse", from_arrays(waves(6), dt=1.0, conditions={"D": 0.01}), network=TINY, steps=1)
    folder = str(own.save("emulator"))
    np.savez("other.npz", u=waves(6), dt=1.0, D=0.03)
    with pytest.warns(UserWarning, match="D: found 0.03, expected 0.01"):
        cli.dispatch(["pde", "roll", folder, "other.npz", "--steps", "3"])
    found = own.roll(waves(1)[:, 0], 3)
    truth = np.swapaxes(waves(6)[:, 1:4], 0, 1)
    last = np.sqrt(np.square(found - truth).mean((2, 3)) / np.square(truth).mean((2, 3)))[-1].mean()
    assert f"{last:.4g} at the end of the comparison" in capsys.readouterr().out
