"""Noises from training fields, settings that are refused, and the smoke preset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.flows_refiner import EXPERIMENT
from jaxrl_rollouts.experiments.pde.flows_refiner_cells import ARMS, FLOWS, noise_variances
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE = EXPERIMENT.preset("smoke")


def fields(noise: float) -> np.ndarray:
    """A wave whose amplitude changes, and white noise in every frame, `[4, 6, 1, 24, 24]`."""
    draw, x = np.random.default_rng(0), np.arange(24) * 2 * np.pi / 24
    wave = np.sin(x)[:, None] * np.arange(6)[None, :, None, None, None]
    return wave + noise * draw.normal(size=(4, 6, 1, 24, 24))


def test_the_coarser_noise_is_as_loud_as_a_change_in_the_top_third() -> None:
    """Two frames' white noise of deviation s changes by white noise of variance 2 s^2."""
    u = fields(0.1)
    finest, coarser = noise_variances(u, 10.0)
    change = np.diff(u, axis=1)
    assert coarser == pytest.approx(2 * 0.1**2 / change.var(), rel=0.1)
    assert finest == pytest.approx(coarser / 100)


def test_a_quieter_tail_asks_for_less_noise() -> None:
    assert noise_variances(fields(0.01), 10.0)[1] < 0.02 * noise_variances(fields(0.1), 10.0)[1]
    assert noise_variances(fields(100.0), 10.0)[1] == 0.5


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"samples": 1}, "samples"),
        ({"quieter": 1.0}, "quieter"),
        ({"flows": ()}, "flows"),
        ({"flows": ("smooth", "laminar")}, "flows"),
        ({"refiner": RefinerConfig(steps=3)}, "refiner.steps"),
        ({"smooth": replace(SMOKE.smooth, equation="ks_2d")}, "smooth.equation"),
    ],
)
def test_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        check(replace(SMOKE, **change))


@pytest.mark.parametrize("flow", FLOWS)
def test_the_solver_steps_finely_enough_for_the_first_vortices(flow: str) -> None:
    """At steps of 0.04 a training trajectory of the smooth flow is not finite."""
    made = getattr(EXPERIMENT.preset("cpu"), flow)
    assert made.dt[1] / made.substeps <= 0.025


@pytest.mark.slow
def test_one_flow_alone(tmp_path: Path) -> None:
    run = ["run", "flows_refiner", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch([*run, "--flows", "turbulent"])
    report = load_report(*tmp_path.iterdir())
    assert [row["flow"] for row in report.tables["flows"]] == ["turbulent"]
    assert not any("smooth" in claim.name for claim in report.claims)


@pytest.mark.slow
def test_the_smoke_preset_reports_both_flows(tmp_path: Path) -> None:
    run = ["run", "flows_refiner", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(run)
    (folder,) = tmp_path.iterdir()
    report = load_report(folder)
    assert [row["flow"] for row in report.tables["flows"]] == list(FLOWS)
    assert [(row["flow"], row["arm"]) for row in report.tables["arms"]] == [
        (flow, arm) for flow in FLOWS for arm in ARMS
    ]
    assert {"shells", "correlation", "rollouts", "samples"} <= set(report.pictures)
    assert len(report.claims) == 8
