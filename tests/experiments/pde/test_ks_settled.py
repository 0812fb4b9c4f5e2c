"""Regimes matched in all but one thing, what refinement can do at best, and the smoke preset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.ks_settled import EXPERIMENT
from jaxrl_rollouts.experiments.pde.ks_settled_cells import (
    COARSEST,
    REGIMES,
    case_of,
    noise_amplitude,
    refined_error,
    worth,
)
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_settled", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


@pytest.mark.slow
def test_arms_cost_what_they_say(finished: Path) -> None:
    spent = {
        folder.name: History(folder / "history.jsonl", upto=10**9).records[-1].iteration
        for folder in finished.iterdir()
        if (folder / "history.jsonl").exists()
    }
    arms = ("mse", "refiner", "weight", "own")
    assert {f"transient-{arm}": 2 for arm in arms}.items() <= spent.items()
    assert spent["few-0.2-mse"] == 3 and spent["0.8-mse"] == 2


@pytest.mark.slow
def test_tables_and_claims(finished: Path) -> None:
    report = load_report(finished)
    regimes = {row["regime"]: row for row in report.tables["regimes"]}
    assert list(regimes) == list(SMOKE.regimes) and regimes["transient"]["refiners trained"]
    assert regimes["few 0.2"]["training trajectories"] == SMOKE.few
    trained = [name for name, row in regimes.items() if row["refiners trained"]]
    rows = {(row["regime"], row["arm"]): row for row in report.tables["refiners"]}
    assert list(rows) == [(name, arm) for name in trained for arm in ("refiner", "weight", "own")]
    for claim in report.claims:
        if claim.name.endswith("pays"):
            row = rows[tuple(claim.name.removesuffix(" pays").split(": "))]
            both = [
                row[f"over MSE + low-pass, {t}"].values for t in ("mean curve", "per trajectory")
            ]
            np.testing.assert_allclose(claim.values, np.minimum(*both))
    # The best possible never lowers an error.
    assert all(
        min(row["of the best possible"].values) >= 1
        for row in report.tables["one step by wavenumber"]
    )
    assert set(report.pictures) == {"ratios", "bound", "wavenumbers"}


def test_step_sizes_differ_in_nothing_else(tmp_path: Path) -> None:
    context = RunContext(RunFolder.at(tmp_path / "run", "ks"), progress=False)
    fine, coarse = case_of("0.1", SMOKE, context), case_of("0.8", SMOKE, context)
    few = case_of("few 0.8", SMOKE, context)
    starts = SMOKE.study.train.frames - COARSEST
    for case, every in ((fine, 1), (coarse, COARSEST)):
        assert case.data.train.fields.shape[1] == starts + every
        assert case.config.study.steps * every == SMOKE.study.steps
        assert case.data.dt == pytest.approx(0.1 * every)
        check(case.config)
    a, b = (np.asarray(case.data.train.fields[:, :starts]) for case in (fine, coarse))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fine.data.test.fields[:, ::COARSEST], coarse.data.test.fields)
    np.testing.assert_array_equal(few.data.train.fields, coarse.data.train.fields[: SMOKE.few])
    scales = [case.config.study.residual_scale for case in (fine, coarse)]
    change = np.asarray(coarse.data.train.fields)
    assert scales[1] == pytest.approx((change[:, COARSEST:] - change[:, :-COARSEST]).std(), rel=0.1)
    assert scales[0] < scales[1] / 2
    assert few.config.study.training.updates == 1.5 * coarse.config.study.training.updates


def test_the_transient_begins_small_and_grows(tmp_path: Path) -> None:
    context = RunContext(RunFolder.at(tmp_path / "run", "ks"), progress=False)
    case = case_of("transient", SMOKE, context)
    sizes = np.asarray(case.data.train.fields).std(axis=(0, 2, 3))
    assert sizes[0] < 0.1 and case.data.train.fields.shape[1] == SMOKE.transient_frames - 4
    assert sizes[-1] > sizes[10]


def test_the_best_possible_denoiser_leaves_what_the_formula_says() -> None:
    """Truth y = m + r: from y + s e and m it is m + R / (R + s^2) (.); given m + s e instead."""
    rng, R, s = np.random.default_rng(0), np.array([1e-4, 1e-2, 1.0]), 0.1
    r, e = rng.normal(size=(2, 400_000, 3))
    truth, gain = np.sqrt(R) * r, R / (R + s**2)
    # That gain is the best for noised truths, on which networks are trained.
    for other in (0.9 * gain, 1.1 * gain):
        kept = (np.square(g * (truth + s * e) - truth).mean(0) for g in (gain, other))
        assert np.less(*kept).all()
    left = np.square(gain * s * e - truth).mean(0)
    np.testing.assert_allclose(refined_error(np.sqrt(R), s), np.sqrt(left), rtol=0.01)
    assert (refined_error(np.sqrt(R), s) >= np.sqrt(R)).all()
    # Nothing is lost where noise is far from the error; most, a quarter, where it is equal.
    worst = np.square(refined_error(np.array([0.1]), 0.1)) / 0.01
    np.testing.assert_allclose(worst, 1.25)
    np.testing.assert_allclose(refined_error(np.array([0.1]), 1e-4), 0.1, rtol=1e-5)


def test_the_noises_amplitude_is_that_of_white_noise() -> None:
    refiner = RefinerConfig(steps=1, min_noise_variance=1e-4, residual_scale=0.3)
    noise = np.random.default_rng(0).normal(size=(20_000, 32)) * 1e-2 * 0.3
    measured = np.abs(np.fft.rfft(noise))[:, 1:-1].mean()
    found = noise_amplitude(Cell(extra={"refiner": refiner}), CPU.study)
    assert found == pytest.approx(measured, rel=0.01)


def test_refiners_are_trained_where_the_bound_says_and_in_the_transient() -> None:
    time = np.full(2, 10.0)

    def mse(gain: float) -> Cell:
        return Cell(extra={"time_curve": time, "time_solved": {6: gain * time, 8: time}}, seeds=2)

    assert not worth("0.8", CPU, mse(1.05)) and worth("0.8", CPU, mse(1.2))
    assert worth("transient", CPU, mse(1.0))
    assert not worth("few 0.2", CPU, Cell(diverged=True, seeds=2))


def test_every_regime_can_be_run_at_the_cpu_preset() -> None:
    check(CPU)
    assert {"0.8", "0.4", "0.2", "0.1"} == set(CPU.regimes) < set(REGIMES)
    assert CPU.study.seeds == 6
    assert CPU.study.test.trajectories == 256


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"regimes": ("0.3",)}, "regimes"),
        ({"regimes": ()}, "regimes"),
        ({"screen_from": 3}, "screen_from"),
        ({"few": 17}, "few"),
        ({"few_updates": 0.3}, "study.training.updates"),
        ({"transient_frames": 8}, "study.train.frames"),
        ({"study": replace(SMOKE.study, every=2)}, "study.every"),
        ({"study": replace(SMOKE.study, steps=12)}, "study.steps"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(SMOKE, **wrong).validate()
