"""Colours of pictures of rollouts, and evaluations with one set of programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.pde import pictures, rolling
from jaxrl_rollouts.pde.baselines import make_low_pass
from jaxrl_rollouts.pde.emulator import FieldShape, persistence
from jaxrl_rollouts.pde.evaluation import Holdout, evaluate
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import Refiner
from jaxrl_rollouts.pde.pictures import draw_rollouts, moving_frames
from jaxrl_rollouts.pde.report import measures_row, members_rows
from jaxrl_rollouts.pde.trained import TrainedEmulator

RED, BLUE = (103, 0, 31), (5, 48, 97)  # the ends of RdBu_r


def test_a_small_error_has_a_colour_scale_of_its_own() -> None:
    """A thousandth of the field is seen, from end to end of the colours, in the last panel only."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(-0.5, 0.5, (4, 8, 8))
    truth[0, 0, 0] = 1.0  # no other entry reaches the end of the scale
    error = np.zeros_like(truth)
    error[2, 3, 3], error[2, 4, 4] = 1e-3, -1e-3
    frames = moving_frames({"truth": truth, "rollout": truth + error, "error": error}, 1.0, "time")
    third = np.array_split(frames[2], 3, axis=1)
    for panel, expected in zip(third, (False, False, True), strict=True):
        seen = {tuple(colour) for colour in panel.reshape(-1, 3).tolist()}
        assert ({RED, BLUE} <= seen) == expected


@pytest.mark.parametrize("grid", [(16,), (8, 8)])
def test_a_report_draws_errors_on_their_own_scale(
    monkeypatch: pytest.MonkeyPatch, grid: tuple[int, ...]
) -> None:
    drawn: list[tuple[float, float]] = []

    class Report:
        def picture(self, name: str, figure: Any, caption: str) -> None:
            for ax in figure.axes:
                drawn.extend(image.get_clim() for image in ax.images)
            assert "scale of its own" in caption

        def animation(self, name: str, frames: Any, caption: str) -> None:
            assert "scale of its own" in caption

    u = np.random.default_rng(0).uniform(-1, 1, (1, 7, 1, *grid)).astype(np.float32)
    test: Any = Holdout(Fields(u, np.zeros((1, 0))), 6, extent=(2.0,) * len(grid))  # type: ignore[arg-type]
    truth = u[0, 1:, 0]
    report: Any = Report()
    draw_rollouts(report, test, {"mse": truth + 1e-3})
    limits = {round(high, 6) for _, high in drawn}
    assert limits == {round(float(np.abs(truth).max()), 6), 0.001}
    assert pictures.largest(np.zeros(3)) > 0


def test_a_rolled_picture_has_an_error_panel_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = []

    def saved(figure: Any, out: Path) -> None:
        limits.extend(image.get_clim()[1] for ax in figure.axes for image in ax.images)

    monkeypatch.setattr(rolling, "save_png", saved)
    own: Any = TrainedEmulator(None, None, 1.0, None, 1, 16)  # type: ignore[arg-type]
    truth = np.random.default_rng(0).uniform(-1, 1, (1, 5, 1, 16))
    fields = np.concatenate([truth[:, :1], truth + 1e-3], 1)
    rolling.compare(fields, truth, own, tmp_path / "a.png")
    assert limits[:3] == pytest.approx([np.abs(truth).max(), np.abs(truth).max(), 1e-3])


SEEDS = 2


def waves(phase: float) -> Holdout:
    """Three trajectories of six frames of waves that travel."""
    x = np.arange(8) * 2 * np.pi / 8
    u = np.sin(x + phase + np.arange(3)[:, None, None] + 0.1 * np.arange(6)[:, None])
    fields = Fields(jnp.asarray(u[:, :, None], jnp.float32), jnp.zeros((3, 0)))
    return Holdout(fields, 5, seeds=SEEDS, dt=0.1)


def test_other_trajectories_are_judged_by_the_same_programs(programs: Callable[[], int]) -> None:
    arms = persistence(1)
    first, before = evaluate("first", arms, (), waves(0.0)), programs()
    second = evaluate("second", arms, (), waves(1.0))
    assert programs() == before
    assert (first.rollout != second.rollout).any()


def test_all_seeds_are_one_forecast_by_hand() -> None:
    """Still fields, to which one seed adds 1 a step and the other 3."""
    still = waves(0.0)
    u = jnp.broadcast_to(still.fields.fields[:, :1], still.fields.fields.shape)
    test = still._replace(fields=still.fields._replace(fields=u))
    arms = persistence(1)._replace(step=lambda by, key, field, given: field + by)
    params = jnp.array([1.0, 3.0])
    found = evaluate("adds", arms, params, test)
    np.testing.assert_array_equal(found.leads, [1, 2, 5])
    np.testing.assert_allclose(found.crps, found.leads, rtol=1e-5)  # 2 k - k
    np.testing.assert_allclose(found.energy_score, 8**0.5 * found.leads, rtol=1e-5)
    np.testing.assert_allclose(found.spread_skill, (2 / 3) ** 0.5, rtol=1e-5)  # 2 k^2 over 3 k^2
    np.testing.assert_array_equal(found.ranks, [[3 * 8, 0, 0]] * 3)  # the truth is below both
    rows = members_rows("adds", found)
    assert rows[1]["after steps"] == 2 and rows[1]["CRPS"] == pytest.approx(2)
    assert rows[0]["members"] == 2 and rows[0]["ranks, %"] == "100 0 0"
    # A seed that diverged is no member, and one alone is no ensemble.
    lost = evaluate("lost", arms, jnp.array([1.0, 3.0, jnp.nan]), test._replace(seeds=3))
    np.testing.assert_allclose(lost.crps, found.crps)
    alone = evaluate("alone", arms, jnp.array([1.0, jnp.nan]), test)
    assert alone.leads.size == 0 and members_rows("alone", alone) == []


@pytest.mark.parametrize(("steps", "windows"), [(11, 0), (12, 1), (29, 1), (30, 2)])
def test_a_window_of_the_wells_is_reported_from_its_last_step_on(steps: int, windows: int) -> None:
    """`rollout[6:12]` takes twelve steps; errors of fields that halve at each step are known."""
    u = np.random.default_rng(0).normal(size=(3, 1, 1, 64)) * 0.5 ** np.arange(31.0)[:, None, None]
    fields = Fields(jnp.asarray(u + np.sin(np.arange(64)), jnp.float32), jnp.zeros((3, 0)))
    found = evaluate("still", persistence(1), (), Holdout(fields, steps))
    row = measures_row("still", found, 1.0)
    named = [name for name in row if name.startswith("VRMSE, steps")]
    assert named == ["VRMSE, steps 6 to 12", "VRMSE, steps 13 to 30"][:windows]
    if windows:
        error, truth = u[:, :1] - u[:, 7:13], fields.fields[:, 7:13]
        want = np.sqrt(np.square(error).mean(-1) / truth.var(-1, ddof=1)).mean()
        assert row[named[0]].values[0] == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_stochastic_emulator_is_a_forecast_by_its_samples(seeds: int) -> None:
    """Still fields with unit white noise after each step: of variance k after k steps."""
    u = jnp.broadcast_to(jnp.sin(jnp.arange(2048.0)), (3, 6, 1, 2048))
    test = Holdout(Fields(u, jnp.zeros((3, 0))), 5, seeds=seeds)

    def step(params: Any, key: jax.Array, field: jax.Array, given: Any) -> jax.Array:
        return field + params * jax.random.normal(key, field.shape)

    arms = persistence(1)._replace(step=step, random=True)
    found = evaluate("noise", arms, jnp.ones(seeds), test)
    std = np.sqrt([1, 2, 5])
    # E|x| - E|x - x'| / 2 of normals, and four rollouts of every seed.
    np.testing.assert_allclose(found.crps, std * (2**0.5 - 1) / np.pi**0.5, rtol=0.05)
    assert found.ranks.shape == (3, 4 * seeds + 1)
    # The truth is the median: all members on one side have the probability 2^-M.
    np.testing.assert_allclose(found.ranks[:, 0] / (3 * 2048), 0.5 ** (4 * seeds), atol=0.01)
    still = evaluate("still", arms._replace(random=False), jnp.ones(seeds), test)
    assert still.ranks.shape == ((3, 3) if seeds == 2 else (0, 0))


@pytest.mark.slow
def test_single_steps_are_judged_after_each_refinement_as_if_it_were_the_last() -> None:
    config = Refiner(refinements=2)
    net = tiny(4, (1, 2)).make(FieldShape(1, 8))
    emulator = config.make(net, 0.3)
    params = jax.vmap(net.init)(jax.random.split(jax.random.key(3), SEEDS))
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # its last layer is zero at first
    whole = evaluate("whole", emulator, params, waves(0.0))
    assert whole.one_step.shape == (SEEDS, 3)
    for count in range(3):
        stopped = replace(config, applied=count).make(net, 0.3)
        alone = evaluate("alone", stopped, params, waves(0.0))
        for name in ("one_step", "first_error"):
            found, last = getattr(whole, name)[:, count], getattr(alone, name)[:, -1]
            np.testing.assert_allclose(found, last, rtol=1e-5)
    low = make_low_pass(emulator, 1)
    kept = (params, jnp.ones((SEEDS, 5)))
    same = evaluate("low", low, kept, waves(0.0))
    np.testing.assert_allclose(same.one_step, whole.one_step, rtol=1e-4)
