from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.reports.statistics import (
    aggregate,
    bootstrap_interval,
    iqm,
    summarize,
)

numbers = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # nothing to trim
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([100.0, 2.0, -50.0, 3.0, 4.0], 3.0),
        ([8, 1, 2, 3, 4, 5, 6, 1000], 4.5),  # trims 1, 2 and 8, 1000: mean of 3, 4, 5, 6
    ],
)
def test_iqm_by_hand(values: list[float], expected: float) -> None:
    assert iqm(values) == pytest.approx(expected)


@given(st.lists(numbers, min_size=1, max_size=40))
def test_iqm_is_scipys_trimmed_mean(values: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


def test_iqm_along_an_axis_and_of_what_diverged() -> None:
    table = np.arange(24.0).reshape(4, 6) ** 2
    np.testing.assert_allclose(iqm(table, axis=0), [iqm(column) for column in table.T])
    np.testing.assert_allclose(iqm(table, axis=1), [iqm(row) for row in table])
    assert iqm(table) == iqm(table.ravel())
    assert np.isnan(iqm([1.0, 2.0, 3.0, np.nan]))  # a diverged seed does not vanish
    summary = summarize([1.0, 2.0, 3.0, np.inf])
    assert summary.iqm == 2.5 and summary.mean == np.inf
    assert np.isnan(summary.interval).all()


def test_aggregates_over_tasks() -> None:
    # Two seeds of three tasks, whose means are 1, 10 and 100.
    table = np.array([[0.0, 9.0, 90.0], [2.0, 11.0, 110.0]])
    assert aggregate(table, "mean") == pytest.approx(37.0)
    assert aggregate(table, "median") == pytest.approx(10.0)
    assert aggregate(table, "iqm") == pytest.approx((2 + 9 + 11 + 90) / 4)
    assert aggregate([5.0, 1.0, 3.0], "median") == 3.0


@given(st.lists(numbers, min_size=2, max_size=12), st.sampled_from(["iqm", "mean", "median"]))
def test_interval_is_ordered_and_within_the_values(values: list[float], statistic: str) -> None:
    low, high = bootstrap_interval(values, statistic, resamples=200)
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= low <= high <= max(values) + slack


def test_interval_is_reproducible_and_uses_the_given_generator() -> None:
    values = np.random.default_rng(3).normal(size=15)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    one = bootstrap_interval(values, generator=np.random.default_rng(1))
    assert one == bootstrap_interval(values, generator=np.random.default_rng(1))
    assert one != bootstrap_interval(values, generator=np.random.default_rng(2))


def test_interval_of_the_mean_against_the_exact_distribution() -> None:
    # Resampling {0, 1} twice gives means 0, 0.5, 1 with chances 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0], "mean", level=0.9) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], "mean", level=0.4) == (0.5, 0.5)
    assert bootstrap_interval([4.0]) == (4.0, 4.0)


def test_seeds_are_resampled_within_each_task() -> None:
    # Seeds agree within a task, tasks differ: resampling tasks would widen the interval.
    table = np.tile([0.0, 50.0, 100.0], (5, 1))
    assert bootstrap_interval(table, "mean") == (50.0, 50.0)
    # And tasks are resampled independently of each other: seeds that are good in one task and
    # bad in the other would cancel exactly if whole rows were drawn.
    opposed = np.array([[0.0, 1.0], [1.0, 0.0]] * 4)
    low, high = bootstrap_interval(opposed, "mean")
    assert low < 0.5 < high


@pytest.mark.parametrize(("statistic", "truth"), [("mean", 1.0), ("median", np.log(2.0))])
def test_coverage_on_exponential_samples(statistic: str, truth: float) -> None:
    generator = np.random.default_rng(11)
    hits = 0
    for _ in range(300):
        values = generator.exponential(size=30)
        low, high = bootstrap_interval(
            values, statistic, generator=generator, resamples=300, level=0.9
        )
        hits += low <= truth <= high
    # Asked for 90 %; a percentile bootstrap of 30 skewed values has a few percent less.
    assert 0.82 <= hits / 300 <= 0.96


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 2, 2), ()])
def test_shapes_that_are_neither(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \[seeds\] or \[seeds, tasks\]"):
        aggregate(np.zeros(shape))


def test_summary_of_scalar_and_table() -> None:
    scalar = summarize(3.5, unit="s")
    assert (scalar.values, scalar.seeds, scalar.iqm, scalar.unit) == ((3.5,), 1, 3.5, "s")
    table = summarize(np.ones((4, 2)))
    assert table.seeds == 4 and table.values[0] == (1.0, 1.0)
    assert table == summarize([[1, 1]] * 4)
