"""Disagreement measures against loops written from the papers' formulas."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts import ensemble as disagreement

N, B, O = 4, 5, 3  # noqa: E741
RNG = np.random.default_rng(0)
MEANS = RNG.normal(size=(N, B, O)).astype(np.float32)
STDS = RNG.uniform(0.1, 2.0, size=(N, B, O)).astype(np.float32)


def max_aleatoric(row: int) -> float:
    """MOPO, equation 8 with the Frobenius norm of the diagonal covariance's root."""
    return max(np.sqrt(sum(STDS[i, row, o] ** 2 for o in range(O))) for i in range(N))


def max_pairwise(row: int) -> float:
    """MOReL, definition 1: the largest distance between two members."""
    return max(
        np.sqrt(sum((MEANS[i, row] - MEANS[j, row]) ** 2)) for i in range(N) for j in range(N)
    )


def spread_of_means(row: int) -> float:
    """Root of the variance over members, averaged over outputs."""
    centre = sum(MEANS[:, row]) / N
    return np.sqrt(sum(((MEANS[i, row] - centre) ** 2).sum() for i in range(N)) / (N * O))


def total_spread(row: int) -> float:
    """Root of the mixture's variance E[x^2] - E[x]^2, averaged over outputs."""
    second = (STDS[:, row] ** 2 + MEANS[:, row] ** 2).mean(0)
    return np.sqrt((second - MEANS[:, row].mean(0) ** 2).mean())


@pytest.mark.parametrize("formula", [max_aleatoric, max_pairwise, spread_of_means, total_spread])
def test_formula(formula: object) -> None:
    got = getattr(disagreement, formula.__name__)(MEANS, STDS)
    np.testing.assert_allclose(got, [formula(row) for row in range(B)], rtol=1e-5)


def test_bellman_spread() -> None:
    estimates = MEANS[..., 0]
    want = np.sqrt(((estimates - estimates.mean(0)) ** 2).sum(0) / (N - 1))
    np.testing.assert_allclose(disagreement.bellman_spread(estimates), want, rtol=1e-5)
