"""Ways to spend a budget, at smoke size, and how an arm's noise is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.ks_crossing import EXPERIMENT
from jaxrl_rollouts.experiments.pde.ks_crossing_cells import (
    ARMS,
    First,
    following,
    part,
    refiner_of,
)
from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.pde.study.look import solved_from
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE = EXPERIMENT.preset("smoke")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_crossing", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


@pytest.mark.slow
def test_every_arm_costs_the_same_number_of_updates(finished: Path) -> None:
    spent = {
        folder.name: History(folder / "history.jsonl", upto=10**9).records[-1].iteration
        for folder in finished.iterdir()
        if (folder / "history.jsonl").exists()
    }
    assert spent == {
        "mse": 2,
        "refiner": 2,
        "mse_0.5": 1,
        "warm": 1,
        "own_2": 1,
        "refiner_0.5": 1,
    }


@pytest.mark.slow
def test_the_table_and_its_claims(finished: Path) -> None:
    report = load_report(finished)
    rows = {row["arm"]: row for row in report.tables["arms"]}
    assert list(rows) == ["mse", "refiner", "warm", "own_2"]
    assert [row["calls"] for row in rows.values()] == [1, 4, 2, 3]
    np.testing.assert_allclose(rows["mse"]["over MSE"].values, 1.0)
    for claim in report.claims:
        arm = claim.name.removesuffix(" crosses")
        np.testing.assert_allclose(claim.values, rows[arm]["over MSE"].values)
    assert set(report.pictures) == {"arms", "correlation", "bottleneck"}


@pytest.mark.slow
def test_smaller_budgets_and_the_bottleneck_have_tables(finished: Path) -> None:
    report = load_report(finished)
    budgets = report.tables["budget"]
    assert [row["updates"] for row in budgets] == [10, 20]
    arms = {row["arm"]: row for row in report.tables["arms"]}
    np.testing.assert_allclose(
        budgets[-1]["refiner over MSE"].values, arms["refiner"]["over MSE"].values
    )
    solved, helped = report.tables["which wavenumbers end rollouts"]
    assert (solved["solver from wavenumber"], helped["solver from wavenumber"]) == (0, 4)
    # The solver alone follows the truth to the end of the rollout.
    end = SMOKE.study.steps * SMOKE.study.test.dt[0]
    np.testing.assert_allclose(solved["T(0.8), mean curve"].values, end)


def test_wavenumbers_below_the_bound_are_the_emulators_and_the_others_the_solvers() -> None:
    study, points = SMOKE.study, 64
    net = make_resnet(ResnetConfig(width=4, blocks=1, dilations=(1,), embedding=4), 1, points)
    plain = make_one_step(net, OneStepConfig())
    params = plain.init(jax.random.key(0))
    x = 2 * np.pi * np.arange(points) / points
    field = jnp.asarray(2.0 * np.sin(2 * x) + np.cos(3 * x) + 0.3 * np.sin(5 * x))[None]
    given, key = jnp.zeros(0), jax.random.key(1)

    def after(lowest: int) -> np.ndarray:
        step = solved_from(plain, study, lowest).step
        return np.fft.rfft(np.asarray(step(params, key, field, given)))[0]

    theirs = np.fft.rfft(np.asarray(plain.step(params, key, field, given)))[0]
    solved, mixed = after(0), after(4)
    np.testing.assert_allclose(mixed[:4], theirs[:4], atol=1e-3)
    np.testing.assert_allclose(mixed[4:], solved[4:], atol=1e-3)
    np.testing.assert_allclose(after(points), theirs, atol=1e-3)
    assert np.abs(solved - theirs).max() > 1.0
    fine = equation("ks").solver(128, 22.0, 0.01, 1.0)
    doubled = 2.0 * jnp.fft.irfft(jnp.fft.rfft(field), 128)
    exact = jax.lax.fori_loop(0, 80, lambda _, u: fine(u), doubled)[0, ::2]
    np.testing.assert_allclose(np.fft.rfft(np.asarray(exact)), solved, atol=2e-2)


def first(error: float) -> First:
    net = make_resnet(ResnetConfig(width=4, blocks=1, dilations=(1,), embedding=4), 1, 16)
    return First(make_one_step(net, OneStepConfig()), None, error)


def test_noise_is_chosen_from_the_first_models_error() -> None:
    one = refiner_of(SMOKE, ARMS["own_1"], first(1e-4))
    assert (one.steps, one.max_noise_variance) == (1, None)
    assert one.min_noise_variance == pytest.approx(3e-4)
    two = refiner_of(SMOKE, ARMS["own_2"], first(1e-4))
    assert (two.steps, two.min_noise_variance) == (2, pytest.approx(3e-4))
    assert two.max_noise_variance == pytest.approx(3e-3)
    tail = refiner_of(SMOKE, ARMS["tail"], first(1e-4))
    assert (tail.steps, tail.min_noise_variance) == (1, pytest.approx(1e-5))
    for error in (1.0, 0.2):  # a first model that knows nothing: still a valid schedule
        check(refiner_of(SMOKE, ARMS["own_2"], first(error)))
    paper = refiner_of(SMOKE, ARMS["refiner"], None)
    assert (paper.steps, paper.min_noise_variance) == (3, 1e-6)
    assert paper.residual_scale == SMOKE.study.residual_scale


def test_half_a_budget_keeps_the_schedules_shape() -> None:
    training = part(SMOKE.study.training, 0.5)
    assert (training.updates, training.warmup) == (10, 1)
    assert training.rate == SMOKE.study.training.rate


def test_a_warm_start_goes_on_at_the_rate_its_first_phase_ended_with() -> None:
    training = SMOKE.study.training
    warm, own = following(ARMS["warm"], training), following(ARMS["own_1"], training)
    assert (warm.updates, warm.warmup) == (10, 0)
    assert warm.rate == warm.final_rate == training.final_rate
    assert own == part(training, 0.5) and own.rate > warm.rate
    assert following(ARMS["own_1"]._replace(before=1.0, after=1.0), training) == training


def test_first_models_and_what_follows_share_one_budget() -> None:
    study = EXPERIMENT.preset("cpu-long").study
    for name in ("warm", "own_1", "own_2", "tail"):
        before = ARMS[name].before
        both = (part(study.training, share).updates for share in (before, 1.0 - before))
        assert sum(both) == study.training.updates


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"arms": ("refiner",)}, "arms"),
        ({"arms": ("mse", "best")}, "arms"),
        ({"over_error": 0.0}, "over_error"),
        ({"between": 1.0}, "between"),
        ({"budgets": (1.0,)}, "budgets"),
        ({"budgets": (0.3,)}, "study.training.updates"),
        ({"solved_from": (-1,)}, "solved_from"),
        ({"study": replace(SMOKE.study, history=2, steps=SMOKE.study.steps - 1)}, "solved_from"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))


def test_a_budget_that_cannot_be_halved_is_refused() -> None:
    training = replace(SMOKE.study.training, updates=30)
    with pytest.raises(ConfigError, match="study.training.updates"):
        check(replace(SMOKE, study=replace(SMOKE.study, training=training)))
