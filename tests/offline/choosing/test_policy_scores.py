"""Metrics of estimates, against known values of small tables."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.choosing.scores import (
    absolute_error,
    bandit_curve,
    interval_coverage,
    left_out,
    rank_correlation,
    regret,
    sharpe_ratio,
    width_factor,
    winkler_score,
)

TRUE = [10.0, 8.0, 6.0, 4.0, 0.0]
SAID = [7.0, 9.0, 8.0, 1.0, 2.0]


def test_errors_of_a_table_of_five() -> None:
    assert absolute_error(TRUE, SAID) == pytest.approx((3 + 1 + 2 + 3 + 2) / 5)
    assert absolute_error(TRUE, SAID, relative=True) == pytest.approx(2.2 / 10)


def test_ranks_share_their_mean_where_they_tie() -> None:
    # Ranks 5 4 3 2 1 against 3 5 4 1 2: 1 - 6 (4 + 1 + 1 + 1 + 1) / (5 (25 - 1)).
    assert rank_correlation(TRUE, SAID) == pytest.approx(1 - 6 * 8 / 120)
    assert rank_correlation([1, 2, 3], [1, 1, 1]) != rank_correlation([1, 2, 3], [1, 1, 1])
    # Ranks 1.5 1.5 3 4 against 1 2 3 4.
    assert rank_correlation([5, 5, 6, 7], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    # Pearson's correlation of these is 0.73.
    assert rank_correlation([0, 1, 100], [0, 1, 2]) == 1.0


def test_regret_is_of_the_best_among_the_favourites() -> None:
    assert regret(TRUE, SAID, 1) == pytest.approx((10 - 8) / 10)
    assert regret(TRUE, SAID, 2) == pytest.approx(0.2)
    assert regret(TRUE, SAID, 3) == 0.0
    with pytest.raises(ConfigError, match="k: found 6, expected from 1 to the 5 policies"):
        regret(TRUE, SAID, 6)


def test_sharpe_ratio_of_two_values() -> None:
    """`(3 - 1) / std([3, 2])` with one degree of freedom."""
    assert sharpe_ratio([3, 2, 1], [3, 2, 1], 1.0, 2) == pytest.approx(2 / np.sqrt(0.5))
    assert sharpe_ratio([3, 2, 1], [3, 2, 1], 4.0, 2) == 0.0
    assert sharpe_ratio([3, 2, 1], [1, 2, 3], 1.0, 2) == pytest.approx(1 / np.sqrt(0.5))
    with pytest.raises(ConfigError, match="k: found 1"):
        sharpe_ratio([3, 2, 1], [3, 2, 1], 1.0, 1)


def test_the_width_factor_covers_its_level_of_normal_errors() -> None:
    """Errors of 3 deviations of the interval's normal: the factor is 3 at every level."""
    rng = np.random.default_rng(0)
    half = rng.uniform(1, 5, 20_000)
    error = 3 * half / 1.6449 * rng.standard_normal(20_000)
    found = width_factor(error, np.zeros(20_000), -half, half, 0.9)
    assert found == pytest.approx(3, rel=0.03)
    assert interval_coverage(error, -found * half, found * half) == pytest.approx(0.9, abs=1e-3)
    assert width_factor([3.0], [1.0], [0.5], [1.5]) == 4.0


def test_a_width_factor_is_of_the_other_datasets() -> None:
    """Off by 1, 2 and 8 half-widths: at the level 1 the largest of the others, which covers or
    does not."""
    one = np.ones(4)
    sets = {str(k): (k * one, 0 * one, -one, one) for k in (1, 2, 8)}
    assert left_out(sets, 1.0) == {"1": (8, 1), "2": (8, 1), "8": (2, 0)}
    with pytest.raises(ConfigError, match="sets: found 1, expected at least 2"):
        left_out({"1": sets["1"]})


def test_intervals() -> None:
    low, high = [9.0, 8.5, 0.0, 3.0, 1.0], [11.0, 9.0, 7.0, 5.0, 2.0]
    assert interval_coverage(TRUE, low, high) == pytest.approx(3 / 5)
    widths = 2 + 0.5 + 7 + 2 + 1
    assert winkler_score(TRUE, low, high, 0.9) == pytest.approx((widths + 20 * (0.5 + 1)) / 5)


def test_an_arm_that_was_never_tried_is_not_picked() -> None:
    """All returns are negative: an untried arm of mean 0 would win, whatever it is worth."""
    returns = -np.array([[100.0], [1.0], [50.0], [70.0]])
    curve = bandit_curve(returns, [1, 4, 200], policies=4, repeats=400)
    assert curve[0] == pytest.approx(returns.mean(), abs=5.0)  # the one that was tried
    np.testing.assert_allclose(curve[1:], -1.0)  # noiseless: all four were tried once


def test_the_bound_explores_on_the_scale_of_the_returns() -> None:
    """An arm that pays 0 or 1,000 beside one that pays 400: the published bound of a few points
    keeps to what the first pulls said."""
    rng = np.random.default_rng(0)
    returns = np.stack([rng.integers(0, 2, 500) * 1000.0, np.full(500, 400.0)])
    ranged = bandit_curve(returns, 100, policies=2, repeats=500)
    published = bandit_curve(returns, 100, policies=2, repeats=500, scale="published")
    assert published[0] < 470 < ranged[0] <= returns.mean(1).max()
    with pytest.raises(ConfigError, match="pulls"):
        bandit_curve(returns, 0)
