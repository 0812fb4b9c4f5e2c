"""Promises of a saved emulator's rollouts: members, calibration, its range, and the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde import Training, calibrated, fit, from_arrays, read, trusted
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.operators import Resnet
from jaxrl_rollouts.pde.promises import Trusted, group_of
from jaxrl_rollouts.pde.trained import TrainedEmulator

POINTS, COUNT, FRAMES = 16, 12, 24
X = np.arange(POINTS) / POINTS * 2 * np.pi
SMALL = Resnet(width=8, blocks=1, dilations=(1,), embedding=8)


class Turning:
    """Members turn a wave by angles of their own; only what `trusted` reads of an emulator.

    Member 0 follows the truth, which turns by `0.1`, for `acos(0.8) / slip` steps.
    """

    history, stride, changing, facts = 1, 1, (0,), {}

    def __init__(self, slips: Any) -> None:
        self.params = {"slip": jnp.asarray(slips)}

    def start(self, fields: FieldSet, stride: int | None = None) -> tuple:
        return fields.read(slice(None), slice(0, 1))[:, 0], {}

    def roll(self, start: Any, steps: int, key: Any = 0, *, conditions: Any, seed: int) -> Any:
        by = 0.1 + float(self.params["slip"][seed])
        return turned(start, by * np.arange(1, steps + 1))


def turned(start: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Waves `[B, 1, X]` moved by angles `[T]`."""
    waves = np.fft.rfft(start)
    moved = waves * np.exp(-1j * angles[:, None, None, None] * np.arange(waves.shape[-1]))
    return np.fft.irfft(moved, n=start.shape[-1]).astype(np.float32)


def waves(count: int = COUNT, frames: int = FRAMES, size: float = 1.0, **known: Any) -> FieldSet:
    phases = np.random.default_rng(0).uniform(0, 6, (count, 1))
    start = (size * np.cos(X - phases))[:, None]
    u = np.swapaxes(turned(start, 0.1 * np.arange(frames)), 0, 1)
    return from_arrays(u[:, :, 0], **({"dt": 0.5, "dx": 0.1, "boundaries": "periodic"} | known))


def of(slips: Any) -> TrainedEmulator:
    return cast(TrainedEmulator, Turning(slips))


def test_times_are_those_of_waves_that_turn_apart() -> None:
    """Members slip by 0.05 and 0.15 a step: the first is right while `0.05 t < acos(0.8)`, and
    they agree above a level while `0.1 t < acos(level)`."""
    own, fields = of([0.05, 0.15]), waves()
    found = calibrated(own, fields, miss=0.2)
    valid = int(np.arccos(0.8) / 0.05)  # 12 steps
    assert found.trust.trajectories == COUNT and found.trust.steps == FRAMES - 1
    # Every trajectory is alike, and the level is the agreement where they stop being valid.
    assert found.trust.level == pytest.approx(np.cos(0.1 * (valid + 1)), abs=1e-4)
    agreeing = int(np.arccos(0.8) / 0.1)
    assert found.trust.factor == pytest.approx(valid / agreeing)
    start, truth = own.start(fields)[0], fields.read(slice(None), slice(1, None))
    cast_ = trusted(own, found, start, {}, truth, 30)
    assert cast_.true is not None and (cast_.true == valid).all()
    # Equal up to rounding, by which two of twelve may miss.
    assert (cast_.promised == valid).mean() >= 1 - 2 / COUNT
    assert np.isin(cast_.promised, [valid, valid + 1]).all()
    np.testing.assert_allclose(cast_.followed, valid)
    steps = np.arange(1, 31)
    np.testing.assert_allclose(cast_.agreement[3], np.cos(0.1 * steps), atol=1e-4)
    assert cast_.lines(0.2)[0] == "trajectory 0: followed until 12 (with 80%: until 12)"
    zeros = np.zeros(30)
    assert len(Trusted(zeros, zeros, zeros, None).lines(0.1)) == 21


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"size": 1.5}, "energy of the starts: found 1.125 to 1.125, expected 0.5 to 0.5"),
        ({"dt": 0.6}, "dt: found 0.6 to 0.6, expected 0.5 to 0.5"),
        ({"dx": 0.2}, "extent of axis 0: found 3.2 to 3.2, expected 1.6 to 1.6"),
        ({"speed": 3.0}, "speed: found 3 to 3, expected 1 to 2"),
    ],
)
def test_what_leaves_the_calibrations_range_is_named(other: dict[str, Any], match: str) -> None:
    own, speeds = of([0.05, 0.15]), {"speed": np.linspace(1, 2, COUNT)}
    found = calibrated(own, waves()._replace(parameters=speeds), miss=0.2)
    inside = waves()._replace(parameters={"speed": np.full(COUNT, 1.5)})
    assert found.outside(inside, own.start(inside)[0]) == []
    speed = other.pop("speed", 1.5)
    strange = waves(**other)._replace(parameters={"speed": np.full(COUNT, speed)})
    (said,) = found.outside(strange, own.start(strange)[0])
    assert match in said and "promised times do not hold" in said


def test_what_cannot_be_promised_is_refused() -> None:
    with pytest.raises(ConfigError, match="members: found 'one training seed'"):
        calibrated(of([0.05]), waves(), miss=0.2)
    with pytest.raises(ConfigError, match="trajectories: found 12, expected at least 20"):
        calibrated(of([0.05, 0.1]), waves(), miss=0.1)
    with pytest.raises(ConfigError, match="calibration: found '1 frames'"):
        calibrated(of([0.05, 0.1]), waves(frames=1), miss=0.2)


def test_seeds_at_other_strides_are_further_members(tmp_path: Path) -> None:
    """A member of stride 2 sees twice the time step and takes half as many."""
    fitted = fit(
        "mse",
        waves(),
        network=SMALL,
        strides=(1, 2),
        seeds=2,
        training=Training(batch=8, steps=4, warmup=1, per_iteration=2),
    )
    own = fitted.emulator
    assert own.dt == 0.5 and "dt" in own.conditions and own.facts["strides"] == [1, 2]
    start, conditions = own.start(waves())
    members, strides = group_of(own, conditions, seed=1)
    assert strides == (1, 1, 2, 2) and [m.options["seed"] for m in members] == [1, 0, 1, 0]
    np.testing.assert_array_equal(members[2].options["conditions"]["dt"], 1.0)
    found = calibrated(own, waves(), miss=0.2)
    assert found.stride == 2 and found.trust.steps == (FRAMES - 1) // 2
    truth = waves().read(slice(None), slice(1, None))
    cast_ = trusted(own, found, start, conditions, truth, 9)
    assert cast_.agreement.shape == (COUNT, 8) and (cast_.promised % 2 == 0).all()
    with pytest.raises(ConfigError, match="strides: found \\[2, 1\\]"):
        fit("mse", waves(), strides=(2, 1))
    with pytest.raises(ConfigError, match="dt among them"):
        fit("mse", waves(), strides=(1, 2), conditions=())


def test_the_command_prints_writes_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = fit("mse", waves(), network=SMALL, seeds=2, steps=4).emulator
    folder = str(replace(own, facts={**own.facts}).save("emulator"))
    np.savez("other.npz", u=waves().array(), dt=0.5, dx=0.1, boundaries=np.asarray("periodic"))
    given = ["pde", "roll", folder, "other.npz", "--steps", "9", "--rows", "3", "--members"]
    more = ["--calibration", "other.npz", "--miss", "0.2"]
    cli.dispatch([*given, *more, "--picture", "a.png"])
    printed = capsys.readouterr().out
    assert "calibrated on 12 trajectories of 23 steps" in printed
    assert "trajectory 2: followed until" in printed and "(with 80%: until" in printed
    assert Path("a-trust.png").stat().st_size and Path("a.png").stat().st_size
    file: Any
    with h5py.File("rolled.h5") as file:
        assert file["forecast/agreement"].shape == (3, 9)
        assert file["forecast/promised_time"].shape == file["forecast/valid_time"].shape == (3,)
    assert read("rolled.h5").shape == (3, 10, 1, POINTS)
    cli.dispatch([*given, *more, "--out", "rolled.npz"])
    with np.load("rolled.npz") as file:
        assert file["agreement"].shape == (3, 9) and file["u"].shape[:2] == (3, 10)
    with pytest.raises(ConfigError, match="--calibration: found '', expected a file"):
        cli.dispatch(given)
    with pytest.raises(ConfigError, match="--miss: found 2"):
        cli.dispatch([*given, "--miss", "2"])
    with pytest.raises(ConfigError, match="--out"):
        cli.dispatch([*given, "--out", "a.npy"])
