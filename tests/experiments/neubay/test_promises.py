"""Promised against earned at smoke size: who is compared, on which clock, what is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay import promises
from jaxrl_rollouts.experiments.neubay.promises import EXPERIMENT
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


@pytest.mark.slow  # base runs in the test of ravl_mujoco, NEUBAY in that of neubay_quantiles
def test_all_methods_in_one_picture(made_data: Path, tmp_path: Path) -> None:
    cli.dispatch(["run", "promises", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    methods = [row["method"] for row in report.tables["results"]]
    assert methods == ["behaviour", "base", "neubay"]
    assert set(report.pictures) == {"training-hopper-random"}
    assert [row["arm"] for row in report.tables["clock"]] == ["base", "neubay"]
    assert not any(claim.holds for claim in report.claims), "too short for a verdict"


def test_everybody_learns_by_one_clock() -> None:
    check(CPU)
    ours, theirs = CPU.neubay.agent.agent, CPU.study
    assert ours.steps == theirs.epochs * theirs.rollouts.updates_per_epoch
    assert ours.steps * ours.polyak * (1 - ours.discount) >= 3
    assert ours.head == theirs.agent.hidden and theirs.seeds == CPU.neubay.worlds


def cell(promised: float, earned: float) -> Cell:
    history = History()
    for look in range(6):
        history.append(
            10_000 * (look + 1),
            {
                "estimated_value": np.array([promised, promised]),
                "discounted_return": np.array([earned, earned]),
                "return": np.array([10 * earned, 10 * earned]),
            },
        )
    return Cell(history=history, rate=2e-4, seeds=2)


def test_claims_are_what_is_said() -> None:
    report = Report("promises", "smoke", {}, "jaxrl-rollouts run promises", 2)
    cells = {("base",): cell(300, 50), ("ravl",): cell(40, 80), ("neubay",): cell(150, 100)}
    promises.add_claims(report, Grid(("arm",), cells))
    assert {claim.name: claim.holds for claim in report.claims} == {
        "base promises more than it earns": True,
        "ravl promises about what it earns, or less": True,
        "ravl earns more than base": True,
        "neubay promises about what it earns, or less": False,
        "neubay earns more than base": True,
    }


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"methods": ("edac",)}, "methods"),
        ({"study": replace(SMOKE.study, epochs=SMOKE.study.epochs + 1)}, "gradient steps"),
        ({"study": replace(SMOKE.study, agent=replace(SMOKE.study.agent, polyak=0.3))}, "polyak"),
    ],
)
def test_clocks_that_differ_are_refused(changes: dict, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        check(replace(SMOKE, **changes))
