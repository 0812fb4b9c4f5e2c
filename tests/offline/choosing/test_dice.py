"""Corrections of a small decision process, whose visits are known; values of a linear system."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from test_choose import DISCOUNT, constant, log

from jaxrl_rollouts.offline.choosing.dice import by_corrections, corrections
from jaxrl_rollouts.offline.choosing.policies import entries_of

GAMMA = 0.9
# Three states, two actions; in the third state half of what happens ends the episode.
MOVES = np.array(
    [
        [[0.1, 0.9, 0.0], [0.6, 0.2, 0.2]],
        [[0.3, 0.3, 0.4], [0.0, 0.5, 0.5]],
        [[0.5, 0.0, 0.0], [0.2, 0.1, 0.2]],
    ]
)
BEGIN = np.array([0.7, 0.3, 0.0])
POLICY = np.array([[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]])
LOGGED = np.array([[0.1, 0.2], [0.25, 0.1], [0.2, 0.15]])  # shares of the log


def visits() -> np.ndarray:
    """`(1 - gamma) sum_t gamma^t P(s_t, a_t)` of the policy, `[3, 2]`."""
    moves = np.einsum("sa,sat->st", POLICY, MOVES)
    states = (1 - GAMMA) * np.linalg.solve(np.eye(3) - GAMMA * moves.T, BEGIN)
    return states[:, None] * POLICY


def test_corrections_of_a_table_are_the_ratio_of_visits() -> None:
    """20,000 rows in the log's shares, with the expected feature of what follows."""
    counts = (20_000 * LOGGED).astype(int).reshape(-1)
    seen = np.repeat(np.eye(6), counts, 0)
    after = np.einsum("sat,tb->satb", MOVES, POLICY).reshape(6, 6)
    begun = (BEGIN[:, None] * POLICY).reshape(1, 6)
    found = corrections(seen, np.repeat(after, counts, 0), begun, GAMMA, ridge=0.0)
    np.testing.assert_allclose(found, np.repeat((visits() / LOGGED).reshape(-1), counts), rtol=1e-9)
    reward = np.arange(1.0, 7.0)
    value = (found * np.repeat(reward, counts)).mean() / (1 - GAMMA)
    assert value == pytest.approx((visits().reshape(-1) * reward).sum() / (1 - GAMMA), rel=1e-9)


def test_values_of_a_linear_system() -> None:
    """Its rewards go on for ever: a constant 0.5 tends to `0.5 / (1 - 0.9)` less what the way there
    costs, `0.5 / (1 - 0.72)`; the other way it is as far below."""
    policies: Any = [("up", constant(0.5)), ("same", constant(0.0)), ("down", constant(-0.5))]
    data = log()
    entries = entries_of(policies, data, sampled=False, best=False)
    starts = np.asarray(data.transitions.observations).reshape(-1, 20, 1)[:, 0]
    of: Any = SimpleNamespace(dataset=data, discount=DISCOUNT, starts=starts)
    up, same, down = by_corrections(of, entries, 0)
    for value, sign in ((up, 1), (down, -1)):
        assert value - same == pytest.approx(sign * 0.5 * (10 - 1 / 0.28), rel=0.1)
    memory = [entries[0]._replace(remembers=True)]
    assert np.isnan(by_corrections(of, memory, 0)).all() and jnp.isfinite(up)
