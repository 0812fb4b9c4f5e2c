"""Ensemble scores against closed forms, enumeration and plain numpy."""

from __future__ import annotations

import itertools
from math import pi, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.scores import coverage, crps, energy_score, rank_histogram, spread_skill

LEVELS = (0.2, 0.4, 0.8)  # of nine members, whole ranks


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_pairs(samples: np.ndarray, truth: np.ndarray, weight: float) -> np.ndarray:
    """The definition of the score, in double precision, by loops over pairs."""
    x, y = samples.astype(np.float64), truth.astype(np.float64)
    pairs = sum(np.abs(a - b) for a in x for b in x)
    return np.abs(x - y).mean(0) - weight / 2 * pairs


def test_two_members_by_hand() -> None:
    samples, truth = jnp.array([0.0, 2.0]), jnp.array(1.0)
    for alpha, expected in ((1.0, 0.0), (0.0, 0.5), (0.95, 0.025)):
        assert float(crps(samples, truth, alpha=alpha)) == pytest.approx(expected, abs=1e-6)
    pair = jnp.array([[[0.0, 0.0]], [[2.0, 0.0]]])
    found = energy_score(pair, jnp.array([[1.0, 1.0]]), batch_dims=1)
    assert found.shape == (1,) and float(found[0]) == pytest.approx(sqrt(2) - 1, abs=1e-6)


@pytest.mark.parametrize("members", [2, 3, 8])
def test_scores_are_the_sums_over_pairs(members: int) -> None:
    samples, truth = normal(0, members, 3, 2, 5), normal(1, 3, 2, 5)
    for alpha, weight in ((0.0, 1 / members**2), (1.0, 1 / (members * (members - 1)))):
        expected = by_pairs(samples, truth, weight)
        np.testing.assert_allclose(crps(samples, truth, alpha=alpha), expected, atol=2e-6)
    half = (by_pairs(samples, truth, 1 / members**2) + expected) / 2  # linear in alpha
    np.testing.assert_allclose(crps(samples, truth, alpha=0.5), half, atol=2e-6)
    x, y = samples.astype(np.float64), truth.astype(np.float64)
    pairs = sum(np.linalg.norm((a - b).reshape(3, -1), axis=1) for a in x for b in x)
    error = np.mean([np.linalg.norm((a - y).reshape(3, -1), axis=1) for a in x], 0)
    expected = error - pairs / (2 * members * (members - 1))
    np.testing.assert_allclose(energy_score(samples, truth, batch_dims=1), expected, rtol=1e-5)
    # Of single numbers the energy score is the CRPS.
    line = samples[:, 0, 0, :, None], truth[0, 0, :, None]
    np.testing.assert_allclose(energy_score(*line, batch_dims=1), crps(*line)[:, 0], atol=2e-6)


def test_many_normal_members_have_the_score_of_a_normal_forecast() -> None:
    # CRPS(N(0, 1), y) = y (2 Phi(y) - 1) + 2 phi(y) - 1 / sqrt(pi)  (Gneiting & Raftery, (21))
    quantiles = stats.norm.ppf((np.arange(4000) + 0.5) / 4000).astype(np.float32)
    y = np.linspace(-3, 3, 13).astype(np.float32)
    samples = np.repeat(quantiles[:, None], len(y), 1)
    expected = y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / sqrt(pi)
    np.testing.assert_allclose(crps(samples, y), expected, atol=1e-3)


@pytest.mark.parametrize("members", [2, 3, 4])
def test_the_fair_score_does_not_depend_on_the_number_of_members(members: int) -> None:
    # All draws of `members` from three equally likely values, the truth from the same: the mean is
    # E|x - y| - E|x - x'| / 2 exactly, and of the empirical score more by E|x - x'| / (2 M).
    values = np.array([0.0, 1.0, 4.0], np.float32)
    draws = np.array(list(itertools.product(values, repeat=members)), np.float32).T
    apart = np.abs(values[:, None] - values).mean()
    for alpha, extra in ((1.0, 0.0), (0.0, apart / (2 * members))):
        scores = [crps(draws, np.full(draws.shape[1], y, np.float32), alpha=alpha) for y in values]
        assert float(np.mean(scores)) == pytest.approx(apart / 2 + extra, abs=1e-5)


@pytest.mark.parametrize("members", [2, 5])
def test_spread_is_skill_where_the_truth_might_be_a_member(members: int) -> None:
    # Two times, the second at another scale; an unknown centre per point.
    centre, scale = normal(4, 2, 40_000), np.array([[1.0], [3.0]], np.float32)
    samples = centre + scale * normal(5, members, 2, 40_000)
    truth = centre + scale * normal(6, 2, 40_000)
    np.testing.assert_allclose(spread_skill(samples, truth), 1.0, atol=0.05)
    mean = samples.mean(0)
    narrow = spread_skill(mean + (samples - mean) / 2, truth)
    # Halved members have a quarter of the variance: 0.25 / (1 + 0.75 / M) before the root.
    np.testing.assert_allclose(narrow, sqrt(0.25 / (1 + 0.75 / members)), atol=0.03)
    assert np.isnan(spread_skill(samples, mean)).all()  # no error at all


def test_exchangeable_members_have_flat_ranks_and_their_coverage() -> None:
    members, points = 9, 60_000
    samples, truth = normal(7, members, 2, points), normal(8, 2, points)
    counts = rank_histogram(samples, truth, jax.random.key(0), batch_dims=1)
    assert counts.shape == (2, members + 1) and (counts.sum(1) == points).all()
    assert stats.chisquare(counts.sum(0)).pvalue > 1e-3
    found = coverage(samples, truth, LEVELS, batch_dims=1)
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found, np.array(LEVELS)[:, None] * np.ones(2), atol=0.01)
    # A truth of twice the deviation has the outer ranks too often, and is covered too rarely.
    wide = rank_histogram(samples, 2 * truth, jax.random.key(0))
    assert int(wide[0]) > 2 * points / 10 * 1.5 and int(wide[-1]) > 2 * points / 10 * 1.5
    assert (coverage(samples, 2 * truth, LEVELS) < np.array(LEVELS) - 0.05).all()


def test_ranks_by_hand_and_ties_at_random() -> None:
    samples = jnp.array([[0.0, 5.0, 1.0], [1.0, 6.0, 1.0]])
    truth = jnp.array([0.5, 7.0, 0.0])
    assert rank_histogram(samples, truth, jax.random.key(0)).tolist() == [1, 1, 1]
    zeros = jnp.zeros((3, 40_000))
    counts = rank_histogram(zeros, zeros[0], jax.random.key(1))
    assert stats.chisquare(counts).pvalue > 1e-3
    again = rank_histogram(zeros, zeros[0], jax.random.key(1))
    np.testing.assert_array_equal(counts, again)
    samples, truth = normal(9, 7, 500), 0.8 * normal(10, 500)
    for level in (0.3, 0.75):
        shares = ((1 - level) / 2, (1 + level) / 2)
        low, high = np.quantile(samples, shares, axis=0, method="weibull")
        expected = ((low <= truth) & (truth <= high)).mean()
        assert float(coverage(samples, truth, [level])[0]) == pytest.approx(expected, abs=1e-6)


def test_what_cannot_be_scored_is_refused() -> None:
    samples, truth = normal(0, 4, 3), normal(1, 3)
    for levels in ((0.61,), (0.0, 0.5), ()):  # four members cover 3 / 5 at most
        with pytest.raises(ConfigError, match="0.6, which 4 members can cover"):
            coverage(samples, truth, levels)
    with pytest.raises(ConfigError, match="alpha"):
        crps(samples, truth, alpha=1.5)
    for function in (crps, energy_score, spread_skill):
        with pytest.raises(ValueError, match="expected at least 2"):
            function(samples[:1], truth)
        with pytest.raises(ValueError, match="found shape"):
            function(samples, truth[:2])


def test_they_compile_and_have_gradients() -> None:
    samples, truth = normal(0, 4, 2, 3, 1, 8), normal(1, 2, 3, 1, 8)
    compiled = jax.jit(energy_score)(samples, truth)
    assert compiled.shape == (2, 3)
    slope = jax.grad(lambda x: crps(x, truth, alpha=0.95).mean())(jnp.asarray(samples))
    step = 1e-2 * slope / jnp.abs(slope).max()
    assert jnp.isfinite(slope).all() and (slope != 0).any()
    lower = crps(samples - step, truth, alpha=0.95).mean()
    assert float(lower) < float(crps(samples, truth, alpha=0.95).mean())
