"""The sliced Wasserstein distance against distances that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from jaxrl_rollouts.offline.synthetic.quality import sliced_wasserstein

ROWS = np.random.default_rng(0).normal(size=(400, 3))


def test_equal_rows_are_at_distance_zero_in_any_order_and_number() -> None:
    assert sliced_wasserstein(ROWS, ROWS) == 0
    assert sliced_wasserstein(ROWS, ROWS[::-1]) == 0
    assert sliced_wasserstein(ROWS, np.repeat(ROWS, 3, 0)) == pytest.approx(0, abs=1e-12)


def test_one_column_is_the_plain_distance() -> None:
    one, two = ROWS[:, :1], 0.5 * ROWS[:200, 1:2] + 0.3
    want = wasserstein_distance(one[:, 0], two[:, 0])
    assert sliced_wasserstein(one, two) == pytest.approx(want, rel=1e-6)
    assert sliced_wasserstein(two, one) == pytest.approx(want, rel=1e-6)


def test_moved_rows_are_as_far_as_directions_see_the_move() -> None:
    """Every direction sees `|u . move|`; over the sphere in three dimensions half its length."""
    found = sliced_wasserstein(ROWS, ROWS + np.array([2.0, 0.0, 0.0]), directions=4000)
    assert found == pytest.approx(1.0, rel=0.05)
