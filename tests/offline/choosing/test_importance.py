"""Importance sampling and doubly robust estimates: identities and unbiasedness on small chains."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.offline.choosing.importance import (
    LEAST,
    clipped,
    doubly_robust,
    effective,
    effective_at_horizon,
    per_decision,
    products,
)

DISCOUNT = 0.9


def log(episodes: int, steps: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Actions 0 or 1 (0 with probability 0.7), reward equal to the action; episodes of one state.

    The policy takes action 1 with probability 0.5, so a step is worth 0.5.
    No product of ratios reaches the clip.
    """
    rng = np.random.default_rng(seed)
    actions = (rng.random((episodes, steps)) < 0.3).astype(float)
    ratios = np.log(np.where(actions == 1, 0.5 / 0.3, 0.5 / 0.7))
    return ratios, actions


def test_a_policy_that_is_the_behaviour_is_worth_the_mean_return() -> None:
    rng = np.random.default_rng(0)
    played = np.arange(12) < rng.integers(1, 13, (50, 1))
    rewards = np.where(played, rng.normal(size=(50, 12)), 0.0)
    logs = products(np.zeros((50, 12)), played)
    rho = clipped(logs)
    found = per_decision(rho, rewards, np.ones((1, 50)), DISCOUNT)
    want = (rewards @ DISCOUNT ** np.arange(12)).mean()
    np.testing.assert_allclose(found, want, rtol=1e-6)
    np.testing.assert_allclose(effective(logs), 50.0)


def test_it_finds_the_value_of_another_policy() -> None:
    ratios, rewards = log(20_000, 3)
    logs = products(ratios, np.ones_like(ratios, bool))
    rho = clipped(logs)
    found = per_decision(rho, rewards, np.ones((1, len(rho))), DISCOUNT)[0]
    want = 0.5 * (DISCOUNT ** np.arange(3)).sum()
    assert found == pytest.approx(want, rel=0.02)
    # E[rho]^2 / E[rho^2] after one step, of ratios 5/3 and 5/7.
    share = 1 / (0.3 * (5 / 3) ** 2 + 0.7 * (5 / 7) ** 2)
    assert effective(logs)[0] / len(rho) == pytest.approx(share, rel=0.02)
    assert effective_at_horizon(logs, 0.9) == effective(logs)[-1]


def test_an_exact_q_leaves_nothing_to_correct_in_the_mean() -> None:
    ratios, rewards = log(4000, 3)
    rho = clipped(products(ratios, np.ones_like(ratios, bool)))
    left = 0.5 * np.array([(DISCOUNT ** np.arange(3 - t)).sum() if t < 3 else 0 for t in range(4)])
    q = rewards + DISCOUNT * left[1:]
    v = np.broadcast_to(left, (len(rho), 4))
    found = doubly_robust(rho, rewards, q, v, np.ones((1, len(rho))), DISCOUNT)
    np.testing.assert_allclose(found, left[0], rtol=1e-6)


def test_a_wrong_q_does_not_bias_it() -> None:
    """The mean over a thousand logs of twenty episodes, of critics that say 5 everywhere."""
    want = 0.5 * (DISCOUNT ** np.arange(3)).sum()
    found = []
    for seed in range(1000):
        ratios, rewards = log(20, 3, seed)
        rho = clipped(products(ratios, np.ones_like(ratios, bool)))
        v = np.full((20, 4), 5.0) * (np.arange(4) < 3)
        q, once = np.full((20, 3), 5.0), np.ones((1, 20))
        more = {"steps": None, "normalised": False}
        found.append(doubly_robust(rho, rewards, q, v, once, DISCOUNT, **more)[0])  # type: ignore[arg-type]
    assert np.mean(found) == pytest.approx(want, abs=3 * np.std(found) / np.sqrt(1000))
    assert np.std(found) / np.sqrt(1000) < 0.1


def test_products_are_clipped() -> None:
    rho = clipped(products(np.full((1, 10), 1.0), np.ones((1, 10), bool)))
    np.testing.assert_allclose(rho[0, [0, 9]], np.exp([1.0, 2.0]))


def test_a_policy_far_from_the_log_is_not_worth_what_the_log_is() -> None:
    """Action 1 always, where the log has it in 0.3 of 200 steps: a step is worth 1, not 0.3.

    Every product is at the lower end of the clip: the weights are equal and give the log's value,
    0.3 of a step. Of the products themselves one episode has nearly all the weight.
    """
    rng = np.random.default_rng(0)
    actions = (rng.random((100, 200)) < 0.3).astype(float)
    logs = products(np.where(actions == 1, np.log(0.99 / 0.3), np.log(0.01 / 0.7)), actions > -1)
    rho = clipped(logs)
    share = per_decision(rho, actions, np.ones((1, 100)), 0.99)[0] / (0.99 ** np.arange(200)).sum()
    assert share == pytest.approx(0.3, abs=0.08)
    assert (rho[:, 50:].max(0) / rho[:, 50:].min(0) == 1).all()
    assert effective_at_horizon(logs, 0.99) < LEAST
