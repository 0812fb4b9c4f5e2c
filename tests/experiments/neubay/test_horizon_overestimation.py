"""The horizon experiment at smoke size, and what its arms are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay.horizon_overestimation import EXPERIMENT
from jaxrl_rollouts.experiments.neubay.horizon_overestimation_cells import Rollouts
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_smoke(tmp_path: Path) -> None:
    command = ["run", "horizon_overestimation", "--preset", "smoke", "--no-progress"]
    cli.dispatch([*command, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    rows = {row["rollouts"]: row for row in report.tables["values"]}
    assert list(rows) == ["H 1", "H 4", "adaptive 0.5", "adaptive 1", "adaptive 1, penalty 1"]
    # Fixed rollouts on the plane never end before their horizon; adaptive ones do.
    assert rows["H 1"]["mean length"].values == (1.0, 1.0)
    assert rows["H 4"]["mean length"].values == (4.0, 4.0)
    half, whole = (np.array(rows[f"adaptive {q}"]["mean length"].values) for q in ("0.5", "1"))
    assert (half >= 1).all() and (half < whole).all() and (whole <= 8).all()
    for row in rows.values():
        promised, earned = (np.array(row[name].values) for name in ("promised", "earned"))
        np.testing.assert_allclose(row["promised - earned"].values, promised - earned, rtol=1e-4)
        assert (earned >= 0).all()
    claims = {claim.name: claim for claim in report.claims}
    assert len(claims) == 10 and sum(name.startswith("runner: ") for name in claims) == 5
    gaps = claims["short rollouts promise more than they earn"].values
    assert np.array(gaps).shape == (2, 1)  # seeds, and the one short horizon above 1
    assert set(report.pictures) == {"values", "runner"}
    runner = {row["rollouts"]: row for row in report.tables["runner"]}
    assert list(runner) == ["adaptive 1", "adaptive 0.9", "H 1", "penalty 1"]
    assert runner["H 1"]["median length"].values == (1.0, 1.0)
    cost = claims["runner: a penalty of 1 costs 100 of return"].values
    returns = (np.array(runner[name]["return"].values) for name in ("adaptive 1", "penalty 1"))
    np.testing.assert_allclose(cost, np.subtract(*returns), rtol=1e-4, atol=1e-3)
    for row in runner.values():
        difference = np.subtract(row["promised"].values, row["earned"].values)
        np.testing.assert_allclose(row["promised - earned"].values, difference, rtol=1e-4)


def test_arms() -> None:
    arms = SMOKE.plane.arms()
    assert arms["H 1"] == Rollouts(1) and arms["adaptive 0.5"] == Rollouts(8, 0.5)
    assert arms["adaptive 1, penalty 1"] == Rollouts(8, 1.0, 1.0)
    cpu = EXPERIMENT.preset("cpu")
    assert len(cpu.plane.arms()) == 10
    updates, plane, runner = 50_000, cpu.plane.agent, cpu.runner.agent.agent
    assert cpu.plane.epochs * cpu.plane.updates_per_epoch == updates
    assert updates * plane.polyak * (1 - plane.discount) >= 3
    assert runner.steps * runner.polyak * (1 - runner.discount) >= 3


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tasks": ()}, "tasks"),
        ({"plane": replace(SMOKE.plane, fixed=())}, "fixed"),
        ({"plane": replace(SMOKE.plane, levels=(1.5,))}, "levels"),
        ({"plane": replace(SMOKE.plane, steps_per_epoch=7)}, "steps_per_epoch"),
        ({"plane": replace(SMOKE.plane, evaluations=3)}, "evaluations"),
        ({"plane": replace(SMOKE.plane, seeds=0)}, "seeds"),
        ({"runner": replace(SMOKE.runner, looks=3)}, "looks"),
        ({"runner": replace(SMOKE.runner, fixed=())}, "fixed, levels, penalties"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))
