"""The dynamic-programming reference of the bandits against published, exact and sampled play."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.studies.bandit_beliefs import (
    Beliefs,
    Optimum,
    play_optimum,
    stopping_boundary,
)
from jaxrl_rollouts.experiments.studies.bandit_task import TEST_ARMS

# Measured once by an independent program with 4000 sampled episodes per cell.
TABLE = {
    0.0: (0.490, 0.489, 0.488, 0.489, 0.527, 0.674, 0.842, 0.990),
    0.1: (0.490, 0.490, 0.490, 0.493, 0.520, 0.664, 0.840, 0.990),
    0.5: (0.495, 0.495, 0.496, 0.498, 0.504, 0.585, 0.785, 0.985),
    2.5: (0.500,) * 8,
}
PULLS = {0.0: (2.1, 6.2, 54, 100), 0.1: (2.0, 4.9, 41, 100), 0.5: (1.0, 2.1, 9, 99)}


@functools.cache
def played(penalty: float = 0.0, discount: float = 1.0) -> Optimum:
    return play_optimum(Beliefs(penalty=penalty, discount=discount), TEST_ARMS)


@pytest.mark.parametrize("penalty", TABLE)
def test_the_table(penalty: float) -> None:
    np.testing.assert_allclose(played(penalty).returns, TABLE[penalty], atol=0.01)


@pytest.mark.parametrize("penalty", PULLS)
def test_pulls_of_the_unknown_arm(penalty: float) -> None:
    found = played(penalty).pulls[[0, 2, 4, 7]]
    np.testing.assert_allclose(found, PULLS[penalty], atol=0.3, rtol=0.06)


def test_conservatism_costs_a_fifth_of_the_mean() -> None:
    assert played(2.5).returns.mean() == 0.5 and not played(2.5).pulls.any()
    assert played().returns.mean() == pytest.approx(0.624, abs=0.005)


def test_a_short_sight_is_conservative() -> None:
    """With a discount of 0.95 exploring hardly pays, with 0.9 and below not at all."""
    near = played(discount=0.95).returns
    np.testing.assert_allclose(near[[4, 5]], [0.514, 0.618], atol=0.01)
    np.testing.assert_array_equal(played(discount=0.9).returns, 0.5)
    np.testing.assert_allclose(played(discount=0.99).returns, played().returns, atol=0.012)


def test_the_boundary_is_the_exhaustive_plan_s() -> None:
    """Three pulls, all plans under the beliefs, by brute force on a fine grid of rewards."""
    beliefs = Beliefs(pulls=3, mean=0.4, std=0.5)
    boundary = stopping_boundary(beliefs)
    e = np.linspace(-7, 7, 801)
    weight = np.exp(-0.5 * e**2) / np.exp(-0.5 * e**2).sum()

    def worth(t: int, mean: np.ndarray) -> np.ndarray:
        """Of going on now and stopping or not later, minus that of stopping now."""
        if t == 2:
            return mean - beliefs.known
        variance = 1 / (1 / beliefs.std**2 + t / beliefs.noise**2)
        move = variance / np.sqrt(variance + beliefs.noise**2)
        later = np.maximum(worth(t + 1, mean[..., None] + move * e), 0.0) @ weight
        return mean - beliefs.known + later

    for t in range(3):
        low = worth(t, np.array([boundary[t] - 0.002, boundary[t] + 0.002]))
        assert low[0] < 0 < low[1]
    assert (np.diff(boundary) > 0).all() and boundary[2] == pytest.approx(beliefs.known, abs=1e-6)


def test_exact_play_is_the_mean_of_sampled_play() -> None:
    beliefs = Beliefs(pulls=30, penalty=0.1)
    boundary, rng = stopping_boundary(beliefs), np.random.default_rng(0)
    for arm in (0.3, 0.6):
        wins, going = np.zeros(20_000), np.ones(20_000, bool)
        pulls, rewarded = np.zeros(20_000), np.zeros(20_000)
        for t in range(30):
            precision = 1 / beliefs.std**2 + t / beliefs.noise**2
            mean = (beliefs.mean / beliefs.std**2 + wins / beliefs.noise**2) / precision
            going &= mean > boundary[t]
            reward = rng.random(20_000) < np.where(going, arm, 0.5)
            wins += reward * going
            pulls += going
            rewarded += reward
        exact = play_optimum(beliefs, (arm,), boundary=boundary)
        np.testing.assert_allclose(exact.returns, rewarded.mean() / 30, atol=0.003)
        np.testing.assert_allclose(exact.pulls, pulls.mean(), rtol=0.03)


def test_arms_that_are_always_or_never_worth_it() -> None:
    assert np.isinf(stopping_boundary(Beliefs(penalty=100.0))).all()
    sure = play_optimum(Beliefs(mean=5.0, std=0.01), (0.7,))
    np.testing.assert_allclose((sure.returns[0], sure.pulls[0]), (0.7, 100))


def test_beliefs_are_checked() -> None:
    for change in ({"std": 0.0}, {"noise": -1.0}, {"pulls": 0}, {"discount": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            stopping_boundary(Beliefs(**change))  # type: ignore[arg-type]
