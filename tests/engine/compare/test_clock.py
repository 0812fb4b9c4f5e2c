"""Claims in two lines, and values that are read before 3 time constants."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.compare.claims import add_clock, claims, clock_rows
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.claims import Claim, counted
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.text import report_table_markdown

TAU, GAMMA, REWARD = 0.02, 0.99, 2.0
RATE = TAU * (1 - GAMMA)


def trained(
    iterations: int, per_iteration: int = 100, rate: float | None = RATE, name: str = "target_mean"
) -> Cell:
    """A critic that fits its target at once, stepped one gradient step at a time; two seeds."""
    history, slow = History(), np.zeros(2)
    for iteration in range(1, iterations + 1):
        for _ in range(per_iteration):
            target = np.array([1.0, -1.0]) * REWARD + GAMMA * slow
            slow += TAU * (target - slow)
        metrics = {name: target, "critic_loss": np.array([4.0, 9.0])}
        history.append(iteration, metrics)
    return Cell(history, per_iteration=per_iteration, rate=rate, seeds=2)


@pytest.mark.parametrize("iterations", [50, 150, 500])
def test_the_clock_says_how_far_values_have_come(iterations: int) -> None:
    cell = trained(iterations)
    clock = cell.time_constants
    assert clock == pytest.approx(iterations * 100 * RATE)
    share = cell["target_mean"] * (1 - GAMMA) / [REWARD, -REWARD]
    np.testing.assert_allclose(share, 1 - np.exp(-clock), atol=0.02)


def test_rows_say_when_slope_and_residual() -> None:
    cells = {"early": trained(75), "late": trained(400), "cloned": trained(5, rate=None)}
    early, late = clock_rows(cells, dataset="d")
    assert (early["dataset"], early["arm"], early["gradient steps"]) == ("d", "early", 7500)
    # dQ/dc = Q* - Q: per time constant values still go exp(-c) of the way, which ends at 1.5.
    clock = np.linspace(0.8, 1, 16) * 1.5
    expected = np.exp(-clock).mean() / (1 - np.exp(-clock)).mean()
    np.testing.assert_allclose(early["slope"], [expected, -expected], rtol=0.05)
    assert abs(late["slope"]).max() < 0.002
    np.testing.assert_allclose(late["residual"], [2.0, 3.0])
    assert late["time constants"] == pytest.approx(8.0)


def test_the_value_on_the_data_stands_in_for_a_target_that_nobody_recorded() -> None:
    cells = {
        "target": trained(150),
        "value": trained(150, name="q_real"),
        "none": trained(9, name="q"),
    }
    target, value = clock_rows(cells)
    np.testing.assert_array_equal(value["slope"], target["slope"])


def test_one_record_has_no_slope() -> None:
    (row,) = clock_rows({"a": trained(1)})
    assert np.isnan(row["slope"]).all()


def test_claims_read_too_early_are_neither_kept_nor_broken() -> None:
    report = Report("e", "smoke", {}, "jaxrl-rollouts run e", 2)
    early, late = trained(50), trained(400)
    claim = claims(report, "a paper", [early, late])
    claim("the earliest counts", [1.0, 1.0], at_least=0, means="m")
    claim("late enough", [1.0, 1.0], at_least=0, means="m", cells=[late])
    claim("fails", [-1.0, -1.0], at_least=0, means="m", cells=[late])
    claim("no critics", [1.0], at_least=0, means="m", cells=())
    assert [c.verdict for c in report.claims] == ["not converged", "yes", "no", "yes"]
    assert [c.holds for c in report.claims] == [False, True, False, True]
    assert counted(report.claims) == "2 of 4 hold, 1 not converged"
    table = report_table_markdown(report, "claims")
    assert table.count("**not converged**") == 1 and table.count("**no**") == 1
    for one in report.claims:
        assert Claim.from_json(one.to_json(), "here") == one
    assert "time_constants" not in report.claims[-1].to_json()


def test_what_diverged_has_no_clock() -> None:
    assert Cell(rate=RATE, diverged=True, seeds=2).time_constants is None


def test_a_note_where_values_came_too_early() -> None:
    report = Report("e", "smoke", {}, "jaxrl-rollouts run e", 2)
    add_clock(report, [])
    add_clock(report, clock_rows({"a": trained(400)}))
    assert list(report.tables) == ["clock"] and not report.notes
    add_clock(report, clock_rows({"a": trained(50)}), "clock of b")
    (note,) = report.notes
    assert note.startswith("Clock of b: values were read after 1 time constants") and "63 %" in note


def test_each_bound_is_the_engines() -> None:
    report = Report("e", "smoke", {}, "jaxrl-rollouts run e", 3)
    claim, values = claims(report, "a paper"), np.array([1.0, 2.0, 4.0])
    claim("low", values, at_least=1, means="m")
    claim("high", values, at_most=1, means="m", statistic="max")
    claim("both", 2.0, between=(1, 3), means="m", source="another paper")
    expected = [
        Claim.of("low", values=values, at_least=1, source="a paper", expected="m"),
        Claim.of("high", values=values, at_most=1, source="a paper", expected="m", statistic="max"),
        Claim.of("both", values=2.0, between=(1, 3), source="another paper", expected="m"),
    ]
    for one, other in zip(report.claims, expected, strict=True):
        assert one.to_json() | {"command": ""} == other.to_json()
    assert [one.holds for one in report.claims] == [True, False, True]


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "at_most": 2}])
def test_there_is_exactly_one_bound(bounds: dict) -> None:
    claim = claims(Report("e", "smoke", {}, "", 3), "a paper")
    with pytest.raises(ValueError, match="one of at_least"):
        claim("none", [1.0], means="m", **bounds)
