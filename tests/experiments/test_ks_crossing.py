"""Ways to spend a budget, at smoke size, and how an arm's noise is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ks_crossing import ARMS, EXPERIMENT, First, half, refiner_of
from jaxrl_rollouts.history import History
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.report import load_report

pytest.importorskip("exponax")
SMOKE = EXPERIMENT.preset("smoke")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_crossing", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


def test_every_arm_costs_the_same_number_of_updates(finished: Path) -> None:
    spent = {
        folder.name: History(folder / "history.jsonl", upto=10**9).records[-1].iteration
        for folder in finished.iterdir()
        if (folder / "history.jsonl").exists()
    }
    assert spent == {"mse": 2, "refiner": 2, "mse_half": 1, "warm": 1, "own_2": 1}


def test_the_table_and_its_claims(finished: Path) -> None:
    report = load_report(finished)
    rows = {row["arm"]: row for row in report.tables["arms"]}
    assert list(rows) == ["mse", "refiner", "warm", "own_2"]
    assert [row["calls"] for row in rows.values()] == [1, 4, 2, 3]
    np.testing.assert_allclose(rows["mse"]["over MSE"].values, 1.0)
    for claim in report.claims:
        arm = claim.name.removesuffix(" crosses")
        np.testing.assert_allclose(claim.values, rows[arm]["over MSE"].values)
    assert set(report.pictures) == {"correlation", "spectra"}


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
    for error in (1.0, 0.2):  # a first model that knows nothing: still a valid schedule
        refiner_of(SMOKE, ARMS["own_2"], first(error)).validate()
    paper = refiner_of(SMOKE, ARMS["refiner"], None)
    assert (paper.steps, paper.min_noise_variance) == (3, 1e-6)
    assert paper.residual_scale == SMOKE.study.residual_scale


def test_half_a_budget_keeps_the_schedules_shape() -> None:
    training = half(SMOKE.study.training)
    assert (training.updates, training.warmup) == (10, 1)
    assert training.rate == SMOKE.study.training.rate


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"arms": ("refiner",)}, "arms"),
        ({"arms": ("mse", "best")}, "arms"),
        ({"over_error": 0.0}, "over_error"),
        ({"between": 1.0}, "between"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(SMOKE, **wrong).validate()


def test_a_budget_that_cannot_be_halved_is_refused() -> None:
    training = replace(SMOKE.study.training, updates=30)
    with pytest.raises(ConfigError, match="study.training.updates"):
        replace(SMOKE, study=replace(SMOKE.study, training=training)).validate()
