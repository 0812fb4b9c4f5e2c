"""Optimism at the edge of reach: the closed form, its published values and the learned one."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers_bootstrap_bias import bootstrap_bias, learned_bias

from jaxrl_rollouts.errors import ConfigError

RANGES = {
    (1, 0.99): (47.07, 49.00),
    (5, 0.99): (45.22, 47.07),
    (20, 0.99): (38.89, 40.49),
    (50, 0.99): (28.77, 29.95),
    (100, 0.99): (17.41, 18.12),
    (200, 0.99): (6.37, 6.63),
    (400, 0.99): (0.854, 0.889),
    (1, 0.95): (7.35, 9.03),
    (20, 0.95): (2.77, 3.41),
    (100, 0.95): (0.046, 0.056),
}


@pytest.mark.parametrize(("horizon", "discount"), RANGES)
def test_published_ranges(horizon: int, discount: float) -> None:
    low, high = RANGES[horizon, discount]
    found = bootstrap_bias(horizon, discount)
    digits = 0.0006 if high < 1 else 0.006
    np.testing.assert_allclose((found.min(), found.max()), (low, high), atol=digits)


@pytest.mark.parametrize(("horizon", "discount"), [(1, 0.99), (5, 0.99), (100, 0.99), (20, 0.95)])
def test_temporal_differences_end_at_the_closed_form(horizon: int, discount: float) -> None:
    learned = jax.jit(learned_bias, static_argnums=(0, 1))(horizon, discount)
    np.testing.assert_allclose(learned, bootstrap_bias(horizon, discount), atol=1e-3)
    more = jax.jit(lambda: learned_bias(horizon, discount, sweeps=2 * horizon + 20))()
    np.testing.assert_allclose(more, learned, atol=1e-3)  # it is a fixed point


def test_too_few_sweeps_are_more_optimistic() -> None:
    assert (learned_bias(20, 0.99, sweeps=5) > bootstrap_bias(20, 0.99) + 1.0).all()


def test_bias_falls_with_the_horizon_and_grows_towards_the_edge() -> None:
    by_horizon = np.stack([bootstrap_bias(h, 0.99) for h in (1, 2, 10, 100)])
    assert (np.diff(by_horizon, axis=0) < 0).all() and (np.diff(by_horizon, axis=1) > 0).all()
    np.testing.assert_allclose(bootstrap_bias(7, 0.9, reward=1.0), 0.0, atol=1e-6)


def test_arguments_of_the_bias_are_checked() -> None:
    for change in ({"horizon": 0}, {"covered": 0}, {"discount": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            bootstrap_bias(**{"horizon": 5, "discount": 0.99, **change})
