"""The Well's table on a small set in its layout: a file for each parameter, three splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.experiments.benchmarks.the_well import NETWORKS, main, persistence, scores
from jaxrl_rollouts.pde.files.well_writer import write_well
from jaxrl_rollouts.pde.generate import Solved

CHANNELS = ("density", "pressure", "velocity_x", "velocity_y")


def written(folder: Path, frames: int = 8) -> Path:
    """Waves that go around, a cell in each frame; [trajectory, frame, channel, 16, 32]."""
    random = np.random.default_rng(0)
    x = 2 * np.pi * np.arange(32) / 32
    for split, count in (("train", 3), ("valid", 1), ("test", 2)):
        for tcool in (0.03, 0.1):
            phase = random.uniform(0, 6, (count, 1, 4, 16, 1))
            u = np.sin(x + phase - np.arange(frames)[:, None, None, None] * 2 * np.pi / 32)
            extent = np.tile([1.0, 3.0], (count, 1))
            solved = Solved(u, extent, np.full(count, 1.5), np.full(count, tcool))
            path = folder / "data" / split / f"layer_tcool_{tcool}.hdf5"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_well(path, [solved], split=split, parameter="tcool", channels=CHANNELS)
    return folder


def test_a_table_is_printed_and_emulators_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "turbulent_radiative_layer_2D")
    small = {"fno": pde.Fno(width=8, modes=(2, 3), layers=1, lifting=8, embedding=0)}
    kept = tmp_path / "kept"
    options = ["--steps", "60", "--batch", "4", "--lr", "1e-2", "--save", str(kept)]
    main([str(folder), *options], small)
    head, _, still, fno = capsys.readouterr().out.splitlines()
    assert head == "| VRMSE | a step | a step, printed |"
    step = 2 * np.sin(np.pi / 32)  # of a sine of deviation 1 / sqrt 2
    expected = step / np.sqrt(2) / np.sqrt(0.5 * 512 / 511)
    assert still.split(" | ")[:2] == ["| persistence", f"{expected:.4f}"]
    name, error, printed = fno.strip("| ").split(" | ")
    assert (name, printed) == ("fno", "0.5001") and float(error) < expected
    emulator = pde.load_emulator(kept / "fno")
    assert emulator.history == 4 and not emulator.conditions


def test_windows_of_a_rollout_are_the_wells() -> None:
    """Predictions of steps 6 to 11 and 13 to 29, counted from 0, as `rollout[6:12]` is."""
    u = np.random.default_rng(0).normal(size=(2, 40, 1, 8, 8))

    def predict(frames: np.ndarray, steps: int) -> np.ndarray:
        if steps == 1:
            return persistence(frames, 1)
        wrong = np.isin(np.arange(steps), (6, 11, 13, 29))[:, None, None, None, None]
        return np.swapaxes(u[:, 4:34], 0, 1) + 3.0 * wrong

    found = scores(predict, u)
    deviation = u[:, 4:34].std((-1, -2), ddof=1)[..., 0]
    np.testing.assert_allclose(found["6:12"], (3 / deviation[:, [6, 11]]).mean() / 3, rtol=1e-4)
    np.testing.assert_allclose(
        found["13:30"], 2 * (3 / deviation[:, [13, 29]]).mean() / 17, rtol=1e-4
    )


def test_networks_fit_the_sets_grid() -> None:
    shape = pde.FieldShape(4, (128, 384), history=4, boundaries=("periodic", "open"))
    for network in NETWORKS.values():
        assert network.make(shape).history == 4
