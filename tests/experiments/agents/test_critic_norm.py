"""Layer-normalised critics: what an arm is, what swings, what is claimed, from file to report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.agents.critic_norm import (
    EXPERIMENT,
    NORMED,
    PLAIN,
    add_claims,
)
from jaxrl_rollouts.offline.study.page import late, swing
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


def test_arms_differ_in_nothing_but_critics_and_targets() -> None:
    plain, normed = (CPU.arm("td3_bc", 0.025, critics).of("td3_bc") for critics in (PLAIN, NORMED))
    assert normed.critic_norm and not plain.critic_norm and plain.polyak == 0.025
    assert replace(normed, critic_norm=False) == plain
    assert replace(plain, polyak=0.005) == CPU.arm("td3_bc", 0.005, PLAIN).of("td3_bc")
    iql = replace(CPU.free.agents.iql, polyak=0.005, critic_norm=True)
    others = replace(CPU.free.agents, iql=iql)
    assert CPU.arm("iql", 0.005, NORMED) == replace(CPU.free, agents=others)
    # As the comparison that the question comes from.
    assert plain.hidden == (64, 64) and plain.critic_rate == plain.actor_rate == 1e-3


def learned(returns: list[list[float]]) -> Cell:
    """Looks by seeds."""
    history = History()
    for iteration, seeds in enumerate(returns, 1):
        history.append(iteration, {"return": np.array(seeds)})
    return Cell(history, seeds=2, rate=1.0)


def test_looks_before_the_last_five_do_not_count() -> None:
    cell = learned([[1000.0, -1000.0], *([[10.0, 2.0], [10.0, 4.0]] * 2), [10.0, 3.0]])
    np.testing.assert_allclose(late(cell), [10.0, 3.0])
    np.testing.assert_allclose(swing(cell), [0.0, np.std([2, 4, 2, 4, 3])], rtol=1e-6)
    assert np.isnan(swing(Cell(seeds=2, diverged=True))).all()


def test_claims_are_seed_by_seed_and_name_the_arm() -> None:
    looks = {PLAIN: [[10.0, 20.0]] * 5, NORMED: [[15.0, 18.0], *[[15.0, 26.0]] * 4]}
    cells = {("hopper-random", "td3_bc", 0.025, c): learned(rows) for c, rows in looks.items()}
    report = Report("critic_norm", "smoke", {}, "jaxrl-rollouts run critic_norm", 2)
    add_claims(report, Grid(("dataset", "agent", "polyak", "critics"), cells), SMOKE)
    earns, swings = report.claims
    assert "TD3+BC" in earns.name and "hopper-random, targets at 0.025" in earns.name
    np.testing.assert_allclose(earns.values, [5.0, 24.4 - 20.0], rtol=1e-6)
    assert earns.holds
    np.testing.assert_allclose(swings.values, [0.0, 3.2], rtol=1e-6)
    assert not swings.holds


@pytest.mark.slow
def test_from_file_to_report(made_data: Path, tmp_path: Path) -> None:
    args = ["critic_norm", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(["run", *args])
    report = load_report(next(tmp_path.iterdir()))
    arms = [(row["polyak"], row["critics"]) for row in report.tables["arms"]]
    assert arms == [(p, c) for p in SMOKE.polyaks for c in (PLAIN, NORMED)]
    values = [tuple(row["promised"].values) for row in report.tables["arms"]]
    assert len(set(values)) == 2, "every arm is another training"
    assert set(report.pictures) == {"returns"} and len(report.claims) == 2
    assert {row["gradient steps"] for row in report.tables["clock"]} == {20}
    assert not any(claim.converged for claim in report.claims)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"agents": ("bc",)}, "agents"),
        ({"agents": ()}, "agents"),
        ({"datasets": ()}, "datasets, polyaks"),
        ({"polyaks": (0.0,)}, "polyaks"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(SMOKE, **change))
    assert caught.value.setting == setting
