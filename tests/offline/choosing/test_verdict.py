"""Verdicts on rows of numbers, in the order of their rules."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.offline.choosing.choice import Choice
from jaxrl_rollouts.offline.choosing.estimates import Estimate
from jaxrl_rollouts.offline.choosing.verdict import Check, Row, deciding, table_of, verdict_of

GOOD = Check(off=0.5, spread=1.0, allowed=2.0, parts=8)
FINE = {"doubt": "", "no_value": "", "against": ""}


def row(low: float, high: float, beyond: float = 0.0) -> Row:
    middle = (low + high) / 2
    ends = middle + 50, low + 50, high + 50, middle, low, high
    return Row("p/0", "", "", *ends, beyond, "6/6")


@pytest.mark.parametrize(
    ("given", "more", "verdict", "why"),
    [
        (row(1, 3), {}, "deploy", r"\+2 \[\+1, \+3\]"),
        (row(-1, 3), {}, "try first", "holds 0"),
        (row(-2, 2.8), {}, "undecided", "not clearly better"),
        (row(1, 3, 0.3), {}, "try first", "30% of its steps beyond"),
        (row(1, 3), {"against": "fqe below the data"}, "try first", "fqe below"),
        (row(-3, 1), {}, "undecided", "not clearly better"),
        (row(-3, -1), {}, "do not deploy", "worse"),
        (row(-3, 1), {"against": "critics diverged"}, "do not deploy", "diverged"),
        (row(1, 3, 0.6), {}, "undecided", "60% of its steps"),
        (row(1, 3), {"doubt": "models err"}, "undecided", "models err"),
        (row(-3, -1), {"no_value": "4 of 6 members"}, "undecided", "4 of 6"),
    ],
)
def test_the_rules(given: Row, more: dict[str, str], verdict: str, why: str) -> None:
    found, reason = verdict_of(given, 50.5, **FINE | more)
    assert found == verdict and re.search(why, reason)


def test_a_check_without_a_number_fails() -> None:
    assert GOOD.passed and not GOOD._replace(off=-2.5).passed
    assert not GOOD._replace(off=np.nan).passed


def estimate(off: float, value: float, beyond: float = np.nan, why: str = "") -> Estimate:
    """Of one policy and data worth 50, off by so much on each of 8 parts."""
    draws, data = np.full((1, 100), value), np.full(100, 50.0)
    more = np.full(8, off), [why], np.array([beyond])
    return Estimate(draws, draws[:, 0], data, 50.0, *more, members=("4/4",))


@pytest.mark.parametrize(
    ("models", "fqe", "by", "verdict"),
    [
        (estimate(0.1, 40.0), estimate(0.1, 60.0), "models", "do not deploy"),
        (estimate(-12.0, 40.0), estimate(0.1, 60.0), "fqe", "deploy"),
        # What models speak against is tried first: below the data without their error, or beyond.
        (estimate(9.0, 40.0), estimate(0.1, 60.0), "fqe", "try first"),
        (estimate(-12.0, 40.0, 0.3), estimate(0.1, 60.0), "fqe", "try first"),
        (estimate(-12.0, 40.0, 0.6), estimate(0.1, 60.0), "fqe", "undecided"),
        (estimate(9.0, np.nan, why="ran away"), estimate(0.1, 60.0), "fqe", "try first"),
        (estimate(np.nan, 40.0), estimate(0.1, 40.0), "fqe", "do not deploy"),
        (estimate(9.0, 40.0), estimate(9.0, 60.0), "models", "undecided"),
    ],
)
def test_fqe_decides_where_it_alone_passes_the_check(
    models: Estimate, fqe: Estimate, by: str, verdict: str
) -> None:
    """Returns of the log from 46 to 54: 9 off is not allowed, 0.1 is."""
    returns = np.linspace(46.0, 54.0, 40)
    log: Any = SimpleNamespace(returns=returns)
    found, note = deciding({"models": models, "fqe": fqe}, log, None)
    assert next(iter(found)) == by and bool(note) == (by == "fqe")
    entry: Any = SimpleNamespace(names=("p/0",))
    (only,), check, _ = table_of(log, [entry], found, {}, None, 0.9)
    assert only.verdict == verdict
    assert check.passed == (by == "fqe" or verdict != "undecided")


def choice(draws: np.ndarray, verdicts: list[str]) -> Choice:
    rows = [
        row(0, 1)._replace(policy=f"p/{i}", verdict=v, value=float(np.median(d)))
        for i, (v, d) in enumerate(zip(verdicts, draws, strict=True))
    ]
    return Choice(rows, "", (0.0, 0.0, 0.0), GOOD, 0.9, 0.9, "log", "models", draws)


def test_trials_prefer_policies_whose_errors_are_not_shared() -> None:
    """The second best has the best one's draws, less a little; the third is worse and apart."""
    rng = np.random.default_rng(0)
    first = 10 + rng.normal(size=1000)
    draws = np.stack([first, first - 0.1, 9.5 + rng.normal(size=1000), first + 5])
    found = choice(draws, ["deploy", "deploy", "try first", "do not deploy"])
    assert found.trials(1) == (("p/0",), pytest.approx(first.mean()))
    names, expected = found.trials(2)
    assert names == ("p/0", "p/2")
    assert expected == pytest.approx(np.maximum(draws[0], draws[2]).mean())
    assert set(found.trials(9)[0]) == {"p/0", "p/1", "p/2"}
    # The best one's value is not believed beyond the trust limit: it follows the others.
    far = replace(found, table=[found.table[0]._replace(beyond=0.6), *found.table[1:]])
    assert far.trials(1)[0] == ("p/1",) and far.trials(3)[0][-1] == "p/0"


def test_nothing_is_tried_of_which_nothing_is_known() -> None:
    found = choice(np.full((1, 100), np.nan), ["undecided"])
    assert found.trials(1)[0] == ()
