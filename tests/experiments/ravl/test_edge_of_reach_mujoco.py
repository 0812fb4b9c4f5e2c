"""Rollouts of several lengths in a perfect model: how arms differ, and what is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl import edge_of_reach_mujoco as experiment
from jaxrl_rollouts.experiments.ravl.edge_of_reach_mujoco import EXPERIMENT, Config
from jaxrl_rollouts.experiments.ravl.ravl_mujoco import in_simulator
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")


def test_arms_differ_in_how_long_rollouts_are_and_imagine_as_many_rows() -> None:
    study = EXPERIMENT.preset("cpu").study
    assert experiment.rows_of(study) == 20_000
    for horizon, count in ((5, 4000), (20, 1000), (100, 200)):
        at = experiment.in_lengths_of(study, horizon)
        assert (at.rollouts.horizon, at.rollouts.rollouts_per_epoch) == (horizon, count)
        same = {"horizon": 5, "rollouts_per_epoch": 4000}
        assert replace(at, rollouts=replace(at.rollouts, **same)) == study


@pytest.mark.parametrize(
    ("horizons", "expected"),
    [((5,), "rising"), ((20, 5), "rising"), ((5, 5), "rising"), ((5, 7), "divisors of the 120")],
)
def test_horizons_rise_and_divide_the_rows(horizons: tuple[int, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check(replace(SMOKE, horizons=horizons))


def test_a_perfect_model_is_rolled_as_far_as_is_said() -> None:
    """Rows of a training are the simulator's own steps, and follow each other up to the horizon."""
    dataset, study = load_dataset("pendulum-mixed"), experiment.in_lengths_of(SMOKE.study, 12)
    setting = Setting(dataset, environment_of(dataset))
    outcome = in_simulator("base", setting, replace(study, epochs=1), None, "anywhere")
    rows = jax.tree.map(lambda x: x[:, :120], outcome.trained.state.imagined.rows)
    set_observation = PENDULUM.set_observation
    assert set_observation is not None
    for seed in range(study.seeds):
        mine = jax.tree.map(lambda x, seed=seed: np.asarray(x[seed]), rows)
        begun = set_observation(mine.observations)
        state, out = PENDULUM.step(jax.random.key(0), begun, mine.actions)
        np.testing.assert_allclose(PENDULUM.observe(state), mine.next_observations, atol=1e-4)
        np.testing.assert_allclose(out.reward, mine.rewards, atol=1e-4)
        # Of 120 rows ten are last steps: every other state that is reached is acted from, too.
        acted = {row.tobytes() for row in mine.observations}
        assert sum(row.tobytes() not in acted for row in mine.next_observations) == 10


def cell(returns: float, promised: float) -> Cell:
    history = History()
    for step in range(1, 6):
        measured = {"return": returns, "discounted_return": returns / 4}
        measured |= {"estimated_value": promised, "imagined_length": 3.0}
        history.append(step, {name: np.full(2, value) for name, value in measured.items()})
    return Cell(history, seeds=2)


@pytest.mark.parametrize("explodes", [True, False])
def test_claims_are_of_the_shortest_and_the_longest(explodes: bool) -> None:
    dataset = load_dataset("pendulum-mixed")
    setting = Setting(dataset, environment_of(dataset))
    report = Report("edge_of_reach_mujoco", "smoke", {}, "jaxrl-rollouts run x", 2)
    short, long = cell(-2000.0, 1e5), cell(40.0, 12.0)
    first, last = (short, long) if explodes else (long, short)
    cells = {"3 steps": first, "6 steps": cell(0.0, 0.0), "12 steps": last}
    config = Config("pendulum-mixed", horizons=(3, 6, 12), study=SMOKE.study)
    experiment.add_claims(report, setting, config, cells)
    assert [claim.holds for claim in report.claims] == [explodes] * 4
    assert {claim.name.split(" ")[2] for claim in report.claims} == {"3", "12"}
    rows = experiment.result_rows(setting, cells, 0.99)
    assert rows[1]["mean of the last looks"].tolist() == first["return"].tolist()
    assert "imagined steps" not in rows[0] and rows[3]["imagined steps"].tolist() == [3.0, 3.0]


def test_a_report_from_one_command(tmp_path: Path) -> None:
    args = ["edge_of_reach_mujoco", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(["run", *args])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["results"]
    assert [row["method"] for row in rows] == ["behaviour", "3 steps", "12 steps"]
    assert list(rows[1]["imagined steps"].values) == [3.0] * 2
    assert list(rows[2]["imagined steps"].values) == [12.0] * 2
    assert [row["arm"] for row in report.tables["clock"]] == ["3 steps", "12 steps"]
    assert len(report.claims) == 4 and "training-pendulum-mixed" in report.pictures
    assert any("120 rows at every horizon" in note for note in report.notes)
