"""Made datasets: what is drawn, what is kept, what stops a run, and how they are sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from fixtures import wrong

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DivergenceError
from jaxrl_rollouts.pde.equations import EQUATIONS
from jaxrl_rollouts.pde.fieldset import Fields, sample_windows
from jaxrl_rollouts.pde.generate import Simulation, Solved, generate, quality
from jaxrl_rollouts.pde.inspection import inspect
from jaxrl_rollouts.pde.starts import Domain, faint

SMALL = Simulation(
    trajectories=5,
    points=32,
    extent=(18.0, 26.0),
    dt=(0.18, 0.22),
    parameter_range=(0.5, 1.5),
    frames=6,
    burn_in=10,
    substeps=2,
    chunk=2,
)


def together(config: Simulation) -> Solved:
    return Solved(*(np.concatenate(column) for column in zip(*generate(config), strict=True)))


def test_everything_that_may_vary_does_and_within_its_range() -> None:
    solved = together(SMALL)
    assert solved.fields.shape == (5, 6, 1, 32) and solved.fields.dtype == np.float64
    for values, (low, high) in zip(
        solved[1:], (SMALL.extent, SMALL.dt, SMALL.parameter_range), strict=True
    ):
        assert values.shape == (5,) and values.dtype == np.float64
        assert low <= values.min() < values.max() <= high
        assert len(np.unique(values)) == 5


def test_frames_are_one_frame_apart() -> None:
    solved = together(SMALL)
    with jax.enable_x64(True):
        for i in (0, 4):
            solver = EQUATIONS["ks"].solver(
                32, solved.extent[i], solved.dt[i] / 2, solved.parameter[i]
            )
            for t in (0, 4):
                after = solver(solver(jnp.asarray(solved.fields[i, t])))
                np.testing.assert_allclose(solved.fields[i, t + 1], after, atol=1e-10)


@pytest.mark.parametrize("name", sorted(EQUATIONS))
def test_every_equation_can_be_generated(name: str) -> None:
    short = replace(SMALL, equation=name, trajectories=2, extent=(6.0, 8.0), burn_in=0)
    which = EQUATIONS[name]
    if which.axes > 1:
        short = replace(short, dt=(0.02, 0.02), parameter_range=(0.05, 0.1))
    solved = together(short)
    assert solved.fields.shape == (2, 6, len(which.channels), *(32,) * which.axes)
    change = np.abs(np.diff(solved.fields, axis=1)).max(tuple(range(1, solved.fields.ndim)))
    assert (change > 1e-4).all() and np.abs(solved.fields).max() < 20.0


@pytest.mark.parametrize("name", [n for n in sorted(EQUATIONS) if EQUATIONS[n].axes > 1])
def test_settings_that_nobody_chose_suit_the_equation(name: str) -> None:
    line, plane = Simulation(), Simulation(name, frames=7)
    assert plane.frames == 7 and plane.points == 64 and plane.extent != line.extent
    assert Simulation(name, points=line.points).points == line.points
    check(plane)


@pytest.mark.slow
def test_a_finer_grid_is_cut_off_and_not_strided() -> None:
    """Trajectories of twice the points, without the wavenumbers that the smaller grid has not."""
    fine = together(replace(SMALL, points=64))
    kept = together(replace(SMALL, oversampling=2))
    modes = np.fft.rfft(fine.fields)[..., :16]
    np.testing.assert_allclose(np.fft.rfft(kept.fields)[..., :16] * 2, modes, atol=1e-9)
    np.testing.assert_allclose(np.fft.rfft(kept.fields)[..., 16], 0.0, atol=1e-9)
    np.testing.assert_array_equal(kept.extent, fine.extent)


def test_burn_in_chunk_and_seed() -> None:
    whole = together(replace(SMALL, burn_in=0, frames=16))
    np.testing.assert_allclose(together(SMALL).fields, whole.fields[:, 10:], atol=1e-9)
    a, b = together(SMALL), together(replace(SMALL, chunk=5))
    np.testing.assert_allclose(a.fields, b.fields, atol=1e-9)
    np.testing.assert_array_equal(a.extent, b.extent)
    assert not np.isin(a.extent, together(replace(SMALL, seed=1)).extent).any()


def test_float32_is_left_as_it_was() -> None:
    next(generate(SMALL))
    assert jnp.ones(()).dtype == jnp.float32


def test_a_solution_that_blows_up_is_named() -> None:
    wild = replace(
        SMALL, equation="burgers", dt=(3.0, 3.0), parameter_range=(-1.0, -1.0), extent=(2, 2)
    )
    with pytest.raises(DivergenceError, match="trajectory 0 .*parameter -1.*not finite"):
        together(wild)


def test_quality_sees_what_stands_still_and_what_is_not_resolved() -> None:
    rng = np.random.default_rng(0)
    moving = rng.normal(size=(10, 8, 1, 64))
    moving[3] = moving[3, :1]
    found = quality(moving)
    assert found.steady == pytest.approx(0.1) and found.increment[3] == 0.0
    assert found.tail > 0.5  # white noise fills the spectrum
    smooth = np.broadcast_to(np.sin(np.arange(64) / 64 * 2 * np.pi), (2, 3, 1, 64))
    assert quality(smooth * np.array([1.0, 1.1, 1.2])[:, None, None]).tail < 1e-12


@pytest.mark.parametrize(
    ("change", "named"),
    wrong(
        dict(equation="heat", trajectories=0, frames=0, substeps=0, burn_in=-1, points=33),
        dict(extent=(2.0, 1.0), dt=(0.0, 0.1), parameter_range=(1.0, 0.0)),
    ),
)
def test_settings_are_checked(change: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        next(generate(replace(SMALL, **change)))


def test_windows_are_consecutive_and_from_one_trajectory() -> None:
    time = np.arange(10)[None, :, None, None] + 100 * np.arange(4)[:, None, None, None]
    data = Fields(
        jnp.asarray(np.broadcast_to(time, (4, 10, 1, 6)), jnp.float32), jnp.arange(4.0)[:, None]
    )
    windows, conditions = sample_windows(data, jax.random.key(0), 500, 3)
    begin = np.asarray(windows)[:, 0, 0, 0]
    np.testing.assert_array_equal(np.asarray(windows)[:, 1, 0, 0], begin + 1)
    np.testing.assert_array_equal(np.asarray(windows)[:, 2, 0, 0], begin + 2)
    np.testing.assert_array_equal(np.asarray(conditions)[:, 0], begin // 100)
    assert set((begin % 100).astype(int)) == set(range(8)) and set(begin // 100) == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="trajectories of 10"):
        sample_windows(data, jax.random.key(0), 2, 11)


def test_windows_may_skip_frames() -> None:
    time = jnp.broadcast_to(jnp.arange(10.0)[None, :, None, None], (2, 10, 1, 4))
    windows, _ = sample_windows(
        Fields(time, jnp.zeros((2, 0))), jax.random.key(0), 300, 3, stride=4
    )
    begin = np.asarray(windows)[:, 0, 0, 0]
    np.testing.assert_array_equal(np.asarray(windows)[:, :, 0, 0], begin[:, None] + [0, 4, 8])
    assert set(begin.astype(int)) == {0, 1}  # every phase is seen
    with pytest.raises(ValueError, match="trajectories of 10.*at least 11"):
        sample_windows(Fields(time, jnp.zeros((2, 0))), jax.random.key(0), 2, 3, stride=5)


def test_a_shift_moves_a_window_as_a_whole() -> None:
    ramp = jnp.broadcast_to(jnp.arange(6.0), (1, 4, 1, 6))
    data = Fields(ramp, jnp.zeros((1, 0)))
    moved = np.asarray(sample_windows(data, jax.random.key(0), 200, 2)[0])
    np.testing.assert_array_equal(moved[:, 0], moved[:, 1])
    assert set(moved[:, 0, 0, 0]) == set(range(6))
    still, _ = sample_windows(data, jax.random.key(0), 20, 2, random_shift=False)
    np.testing.assert_array_equal(still, np.broadcast_to(ramp[:, :2], (20, 2, 1, 6)))


def test_one_number_is_a_range_of_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    read = tyro.cli(Simulation, default=Simulation(), args=["--extent", "22", "--dt", "0.1", "0.2"])
    assert (read.extent, read.dt, read.parameter_range) == ((22.0, 22.0), (0.1, 0.2), (1.0, 1.0))
    with pytest.raises(SystemExit):
        tyro.cli(Simulation, default=Simulation(), args=["--extent", "1", "2", "3"])
    assert "extent" in capsys.readouterr().err


def test_small_waves_are_as_small_as_asked() -> None:
    keys = jax.random.split(jax.random.key(0), 400)
    fields = np.asarray(jax.vmap(lambda key: faint(key, Domain(32, 1.0)))(keys))
    assert fields.shape == (400, 1, 32)
    sizes = np.log(fields.std((1, 2)))
    low, high = np.log((0.01, 0.1))
    assert low - 1e-3 <= sizes.min() and sizes.max() <= high + 1e-3
    assert sizes.mean() == pytest.approx((low + high) / 2, abs=0.1)
    power = np.square(np.abs(np.fft.rfft(fields / fields.std((1, 2), keepdims=True)))).mean((0, 1))
    np.testing.assert_allclose(power[[0, *range(7, 17)]], 0.0, atol=1e-6)
    np.testing.assert_allclose(power[1:7], power[1:7].mean(), rtol=0.15)


def test_inspect_gives_one_domain_axis_by_axis(tmp_path: Path, capsys: Any) -> None:
    u = np.random.default_rng(0).normal(size=(3, 4, 1, 6, 8))
    np.savez(tmp_path / "one.npz", u=u, dx=(0.5, 0.25), dt=0.1)
    inspect(str(tmp_path / "one.npz"))
    printed = capsys.readouterr().out
    assert "extent       3 x 2\n" in printed and "frame time   0.1\n" in printed
    lengths = np.array([[0.5, 0.25], [0.6, 0.25], [0.7, 0.25]])
    np.savez(tmp_path / "many.npz", u=u, dx=lengths, nu=np.arange(3.0))
    inspect(str(tmp_path / "many.npz"))
    printed = capsys.readouterr().out
    assert "extent       3 to 4.2 x 2\n" in printed and "nu           0 to 2\n" in printed
