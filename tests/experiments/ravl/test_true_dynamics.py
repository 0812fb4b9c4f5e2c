"""The dial between learned and true dynamics as an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl.true_dynamics import EXPERIMENT, best_below_one, make_report
from jaxrl_rollouts.experiments.ravl.true_dynamics_cells import (
    Config,
    DialConfig,
    complete,
    open_domain,
    part,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report


def cells(arm: str, scores: dict[float, list[float]], value: float = 50.0) -> dict:
    """Finished cells of a method by w with these final `[seeds]`, after a first zero."""
    made = {}
    for w, last in scores.items():
        history = History()
        for iteration, values in ((1, np.zeros(2)), (2, np.array(last, float))):
            other = {m: np.full(2, value) for m in ("estimated_value", "imagined_uncertainty")}
            history.append(iteration, {"score": values, **other})
        made[arm, w] = Cell(history, seeds=2)
    return made


GRID = Grid(
    ("method", "w"),
    {
        **cells("base", {0.0: [50, 52], 0.5: [40, 42], 1.0: [20, 24]}, 500.0),
        **cells("mopo 1", {0.0: [60, 62], 0.5: [90, 94]}),
        **cells("mopo 5", {0.0: [5, 7], 0.5: [70, 71]}),
        **cells("mobile", {0.0: [30, 32], 0.5: [26, 26]}),
        **cells("ravl", {0.0: [95, 97], 1.0: [94, 98]}),
    },
)


def test_base_stands_in_for_the_penalised_methods_at_one_and_for_no_other() -> None:
    full = complete(GRID)
    for arm in ("mopo 1", "mopo 5", "mobile"):
        assert list(full.at(method=arm)) == [0.0, 0.5, 1.0]
        np.testing.assert_array_equal(full[arm, 1.0]["score"], [20, 24])
        np.testing.assert_array_equal(full[arm, 0.5]["score"], GRID[arm, 0.5]["score"])
        np.testing.assert_array_equal(full[arm, 1.0]["estimated_value"], 500.0)
    for own in (("ravl", 1.0), ("base", 1.0)):
        np.testing.assert_array_equal(full[own]["score"], GRID[own]["score"])


def test_the_best_cell_is_over_lambdas_and_qualities_below_one() -> None:
    best = best_below_one(complete(GRID), "mopo")
    assert best.point == {"method": "mopo 1", "w": 0.5}
    np.testing.assert_array_equal(best["score"], [90, 94])
    assert best_below_one(complete(GRID), "ravl").point["w"] == 0.0  # at one it is not below one


def test_a_part_of_a_cell_is_the_seeds_of_one_weight_with_their_score() -> None:
    domain = open_domain(DialConfig(rows=100), jax.random.key(0))
    history = History()
    history.append(3, {"loss": np.arange(4.0)})
    history.append(6, {"return": domain.hundred * np.array([0.0, 0.25, 0.5, 1.0])})
    cell = part(domain, Cell(history, updates=10, seeds=2), slice(2, 4))
    np.testing.assert_allclose(cell["score"], [50.0, 100.0])
    np.testing.assert_array_equal(cell.curve("loss")[1][:, 0], [2.0, 3.0])
    assert cell.curve("score")[0] == [60]
    lost = Cell(seeds=2, diverged=True)
    assert np.isnan(part(domain, lost, slice(2, 4))["score"]).all()


def test_claims_are_computed_from_the_scores(tmp_path: Path) -> None:
    domain = open_domain(DialConfig(rows=200, episodes=4), jax.random.key(0))
    report = Report("true_dynamics", "smoke", {}, "command", 2)
    make_report(report, {"plane": (domain, complete(GRID))})
    holds = {claim.name: claim.holds for claim in report.claims}
    measured = {claim.name: claim.measured for claim in report.claims}
    assert holds["plane: MOPO is worse with true dynamics"]
    assert measured["plane: MOPO is worse with true dynamics"] == pytest.approx(-70.0)
    assert not holds["plane: MOBILE is worse with true dynamics"]  # by 9 points only
    assert measured["plane: MOBILE is worse with true dynamics"] == pytest.approx(-9.0)
    assert holds["plane: RAVL does not get worse with true dynamics"]
    assert holds["plane: RAVL beats the penalties with true dynamics"]
    assert holds["plane: base promises the impossible with true dynamics"]  # 500 above 100
    report.save(tmp_path)
    assert (tmp_path / "model_quality.png").stat().st_size > 5000
    row = load_report(tmp_path).tables["score on plane"][1]
    assert row["method"] == "mopo 1" and row["w = 1"].mean == 22.0


def test_a_control_without_an_edge_makes_no_claim() -> None:
    plane = open_domain(DialConfig(rows=200, episodes=4), jax.random.key(0))
    report = Report("true_dynamics", "smoke", {}, "command", 2)
    make_report(report, {"control": (plane._replace(edge=False), complete(GRID))})
    assert not report.claims and "score on control" in report.tables
    assert any("no claim is made of it" in note for note in report.notes)


def test_score_runs_from_its_zero_to_its_hundred() -> None:
    domain = open_domain(DialConfig(environment="pendulum", rows=400), jax.random.key(0))
    np.testing.assert_allclose(domain.score(np.array([domain.zero, domain.hundred])), [0, 100])
    assert -1400 < domain.zero < -1000 < -250 < domain.hundred < -100
    assert domain.value_limit == 0.0 and len(domain.data.rewards) == 400 and not domain.edge
    plane = open_domain(DialConfig(rows=100), jax.random.key(0))
    assert plane.zero == 0.0 and 25 < plane.hundred < 28 and plane.value_limit == pytest.approx(100)
    assert plane.data.observations.shape == (100, 2)


@pytest.mark.parametrize("truths", [(0.0, 0.5), (0.5, 1.0), (1.0, 0.0), (0.0, 0.0, 1.0), ()])
def test_the_dial_has_both_ends_in_order(truths: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="truths"):
        check(Config(truths=truths))
    with pytest.raises(ConfigError, match="ravl_truths"):
        check(Config(ravl_truths=truths))


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"evaluations": 7}, {"mopo_penalties": ()}, {"mopo_penalties": (-1.0,)}]
)
def test_settings_are_checked(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        check(replace(DialConfig(), **wrong))


def test_presets_are_valid_and_sweep_lambda() -> None:
    for preset in EXPERIMENT.presets.values():
        for domain in (preset, preset.plane, preset.standard):
            if domain is not None:
                check(domain)
    cpu = EXPERIMENT.preset("cpu")
    for domain in (cpu.plane, cpu.standard):
        updates = domain.epochs * domain.rollouts.updates_per_epoch
        assert updates * domain.agent.polyak * (1.0 - domain.agent.discount) >= 3.0
    assert cpu.seeds >= 5 and len(cpu.plane.mopo_penalties) > 1
    assert cpu.of_method()["mopo"] == cpu.truths[:-1]


@pytest.mark.slow
def test_smoke_run_reports_and_redraws(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, EXPERIMENT.name, "smoke", config, "command")
    context = RunContext(folder, progress=False)
    report = EXPERIMENT.run(config, context)
    report.save(folder.path)
    loaded = load_report(folder.path)
    assert set(loaded.pictures) == {"model_quality", "training"}
    rows = loaded.tables["score on plane"]
    assert [row["method"] for row in rows] == ["base", "mopo 1", "mobile", "ravl"]
    base, mopo = rows[:2]
    assert mopo["w = 1"].values == base["w = 1"].values
    assert mopo["w = 0"].values != base["w = 0"].values
    again = EXPERIMENT.run(config, context)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]
