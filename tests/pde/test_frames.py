"""Frames that are no measurement, and what float32 loses of fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.frames import LOST, narrowed, odd_frames, rounding
from jaxrl_rollouts.pde.inspection import inspect
from jaxrl_rollouts.pde.streaming import all_fields
from jaxrl_rollouts.pde.train_command import TrainConfig, split

POINTS = np.arange(32) / 32 * 2 * np.pi


def waves(rows: int = 8, frames: int = 20, speed: float = 0.3) -> np.ndarray:
    """`[N, T, X]` of sines that travel, float64."""
    phase = np.linspace(0, 5, rows)[:, None, None]
    return np.sin(POINTS + phase + speed * np.arange(frames)[:, None])


def spoilt(kind: str) -> np.ndarray:
    u = waves()
    if kind == "zeros":
        u[2, 12:] = 0
    elif kind == "alone":
        u[2, 12] = 0
    elif kind == "part":
        u[2, 12:, 16:] = 0  # of a chunk that was not written
    elif kind == "repeat":
        u[2, 13] = u[2, 12]
    elif kind == "jump":
        u[5, 7] += 40
    elif kind == "left out":
        return np.delete(waves(frames=23), [7, 8, 9], 1)
    elif kind == "one left out":
        longer = waves(frames=21)
        u[2] = np.delete(longer[2], 12, 0)
    elif kind == "exchanged":
        u[2, [12, 13]] = u[2, [13, 12]]
    elif kind == "missing":
        u[:, :, 5] = -9999
    return u


ODD = {
    "zeros": "zero from the frame after on: trajectory 2, frame 11, trajectory 2, frame 12",
    "alone": "zero from the frame after on: trajectory 2, frame 11",
    "part": "zero in part of the frame after: trajectory 2, frame 11",
    "repeat": "the frame after is the same: trajectory 2, frame 12",
    "jump": "a jump into the frame after: trajectory 5, frame 6, trajectory 5, frame 7",
    "left out": "in most trajectories: frames left out?: trajectory 0, frame 6, trajectory 1, ",
    "one left out": "a change of two steps into the frame after, a frame left out?: trajectory 2, "
    "frame 11\n",
    "exchanged": "a step back into the frame after, frames out of order?: trajectory 2, frame 12\n",
    "missing": "-9999 occurs 160 times, far from all others, first in trajectory 0, frame 0",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_frames_are_named_by_inspect(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "u.npz", u=spoilt(kind), dt=0.1, dx=0.2)
    inspect(str(tmp_path / "u.npz"))
    line = capsys.readouterr().out.split("look at      ")[1]
    assert ODD[kind] in line


def test_a_training_names_odd_frames_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "u.npz", u=spoilt("jump"), dt=0.1, dx=0.2)
    network = pde.Resnet(width=4, blocks=1, dilations=(1,))
    with pytest.warns(UserWarning, match=r"u\.npz: ") as caught:
        pde.fit("mse", tmp_path / "u.npz", network=network, steps=1)
    assert any(ODD["jump"] in str(one.message) for one in caught)


def test_the_channel_is_named_and_sound_frames_are_not() -> None:
    both = np.stack([waves(), spoilt("zeros")], 2)
    (line,) = odd_frames(both, ("height", "speed"))
    assert line.startswith("speed: zero from the frame after on: trajectory 2, frame 11")
    assert odd_frames(np.stack([waves(), waves(speed=0.1)], 2)) == []
    decay = np.exp(-0.5 * np.arange(20))[:, None] * waves()  # changes fall by a factor of 10,000
    assert odd_frames(decay[:, :, None]) == []


def test_a_frame_left_out_of_a_nonlinear_field_is_named() -> None:
    """Burgers' waves that steepen, `u_t = -u u_x + 0.05 u_xx` by small explicit steps."""
    dx, dt = POINTS[1] - POINTS[0], 0.002
    u = np.sin(POINTS + np.linspace(0, 5, 6)[:, None])
    frames = []
    for step in range(41 * 20):
        frames += [u] * (step % 20 == 0)
        left, right = np.roll(u, 1, -1), np.roll(u, -1, -1)
        u = u + dt * (0.05 * (left - 2 * u + right) / dx**2 - u * (right - left) / (2 * dx))
    sound = np.stack(frames, 1)
    assert odd_frames(sound[:, :, None]) == []
    spoilt_one = sound[:, :-1].copy()
    spoilt_one[4] = np.delete(sound[4], 25, 0)
    (line,) = odd_frames(spoilt_one[:, :, None])
    assert line == ODD["one left out"].replace("2, frame 11\n", "4, frame 24")


@pytest.mark.parametrize(
    ("offset", "stream"), [(0.0, "always"), (101_325.0, "never"), (1e6, "always")]
)
def test_an_offset_is_subtracted_before_rounding(offset: float, stream: pde.Stream) -> None:
    """Waves of 0.01 on a large offset train and roll as the waves alone do."""
    waves_alone = 0.01 * waves(rows=12)
    u = offset + waves_alone
    fields = pde.from_arrays(u, dt=0.1, dx=0.2)
    assert all_fields(fields, stream).dtype == (np.float64 if offset else np.float32)
    network = pde.Resnet(width=8, blocks=1, dilations=(1, 2))
    own = pde.fit("mse", fields, network=network, steps=60, stream=stream)
    rolled = own.roll(u[:4, 0], 1)
    assert rolled.dtype == np.float64 and own.roll(np.float32(u[:4, 0]), 1).dtype == np.float32
    with pytest.raises(DataError, match="fields: found lists of several lengths"):
        own.roll([[1.0, 2.0], [3.0]], 1)
    plain = pde.fit("mse", waves_alone, network=network, steps=60)
    expected = plain.roll(waves_alone[:4, 0], 1)
    np.testing.assert_allclose(rolled - offset, expected, atol=1e-3 * 0.01)
    scaled = own.emulator.units[0]
    np.testing.assert_allclose(scaled.shift, offset + waves_alone.mean(), rtol=1e-9, atol=1e-12)


def test_float64_is_kept_where_it_is_needed_only() -> None:
    u = waves()[:, :, None]
    assert narrowed(u).dtype == narrowed(u.astype("f4")).dtype == np.float32
    loss = rounding(1e4 + u)[0]
    change = np.median(np.abs(np.diff(u, axis=1)))
    step = np.spacing(np.float32(1e4)) / 2  # of rounding, at most
    assert LOST < 0.5 * step / change < loss <= 1.01 * step / change
    assert narrowed(1e4 + u).dtype == np.float64
    assert rounding(np.float32(1e4 + u))[0] == 0, "what is lost already cannot be seen"


def test_a_single_trajectory_is_tested_on_its_last_frames(tmp_path: Path) -> None:
    u = waves(rows=1, frames=50)
    np.savez(tmp_path / "one.npz", u=u, dt=0.1)
    train, test = split(TrainConfig(file=str(tmp_path / "one.npz"), test_share=0.2))
    np.testing.assert_array_equal(train.array()[0, :, 0], u[0, :40])
    np.testing.assert_array_equal(test.array()[0, :, 0], u[0, 40:])
    np.testing.assert_array_equal(test.read(0, slice(2, 8, 3))[0, :, 0], u[0, 42:48:3])
    np.savez(tmp_path / "one.npz", u=u[:, :1])
    with pytest.raises(DataError, match="frames: found 1, expected at least 2"):
        split(TrainConfig(file=str(tmp_path / "one.npz")))


def test_fields_that_are_zero_by_nature_are_not_named() -> None:
    """A front in a field that is zero elsewhere, and a block that travels."""
    x, time = np.arange(64) / 64, np.arange(20)[:, None]
    phase = np.arange(8)[:, None, None] / 8
    front = np.clip(np.sin(2 * np.pi * (x - 0.02 * time - phase)), 0, None)
    block = 1.0 * (np.abs((x - 0.3 * time - phase) % 1 - 0.5) < 0.3)
    assert odd_frames(front[:, :, None]) == odd_frames(block[:, :, None]) == []
