"""Bounds of actions: declared, checked, and undone without loss."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data.bounds import from_unit, is_unit, read_bounds, to_unit


def test_one_number_stands_for_every_column():
    low, high = read_bounds(-2, [1.0, 2.0, 3.0], 3) or (None, None)
    np.testing.assert_array_equal(low, [-2, -2, -2])
    np.testing.assert_array_equal(high, [1, 2, 3])
    assert read_bounds(None, None, 3) is None
    assert is_unit(*(read_bounds(-1, 1, 2) or ())) and not is_unit(low, high)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-1, None, "action_high: found None"),
        ([-1, -1], 1, "action_low: found .*one finite number, or 3"),
        (-np.inf, 1, "action_low"),
        ("low", 1, "action_low: found 'low'"),
        (1, [2, 1, 2], "below action_high"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(low, high, says):
    with pytest.raises(ConfigError, match=says):
        read_bounds(low, high, 3)


def test_rescaling_and_back():
    low, high = np.float32([-2, 0]), np.float32([2, 0.3])
    own = np.float32([[-2, 0.3], [1, 0.15]])
    unit = to_unit("mine", "actions", own, low, high)
    np.testing.assert_allclose(unit, [[-1, 1], [0.5, 0]], atol=1e-6)
    np.testing.assert_allclose(from_unit(unit, low, high), own, rtol=1e-6)
    np.testing.assert_array_equal(from_unit(np.float32([3, -0.5]), None, None), [1, -0.5])


def test_actions_outside_their_declared_bounds_are_refused():
    with pytest.raises(DataError, match=r"mine: actions: found 3 in row 1, column 0 \(1 such"):
        to_unit(
            "mine",
            "actions",
            np.float32([[0, 0], [3, 0]]),
            np.float32([-2, -2]),
            np.float32([2, 2]),
        )
