"""The sliced Wasserstein distance against distances that are known."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from jaxrl_rollouts.experiments.kit.quality import dynamics_error, sliced_wasserstein
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.environments.plane import PLANE

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


def test_dynamics_are_judged_by_the_simulator() -> None:
    data = collect(PLANE, random_policy(2), None, jax.random.key(0), steps=60)
    exact = dynamics_error(PLANE, data, data, jax.random.key(0))
    assert exact.next_observation.max() < 1e-9 and exact.reward.max() < 1e-9
    assert not exact.terminations.any()
    unit = np.asarray(data.next_observations).std(0)
    wrong = data._replace(
        next_observations=data.next_observations + np.array([0.5, 0.0], np.float32) * unit,
        terminations=np.arange(len(data.rewards)) == 4,
    )
    found = dynamics_error(PLANE, wrong, data, jax.random.key(0))
    np.testing.assert_allclose(found.next_observation, 0.125, rtol=1e-3)
    np.testing.assert_array_equal(np.flatnonzero(found.terminations), [4])
