"""Views of a dataset's rewards: what is learned from, and values in the dataset's own rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.agents.iql import Iql
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3Bc, Td3BcConfig
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.data.transitions import (
    RewardScale,
    discounted_steps,
    reward_scale,
    steps_of_data,
)
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.task import Task
from jaxrl_rollouts.offline.training import evaluator, value_evaluator

REWARDS = np.array([1.0, 2.0, 3.0, -1.0, 5.0, 0.0], np.float32)


def dataset(rewards: Any = REWARDS) -> Dataset:
    """Two episodes of three rows; the first terminates, the second is cut."""
    states = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    rows = Transitions(
        states,
        np.zeros((6, 1), np.float32),
        np.asarray(rewards, np.float32),
        states,
        np.arange(6) == 2,
        np.arange(6) == 5,
    )
    return Dataset("toy", rows, "pendulum", Path("(made)"), "")


@pytest.mark.parametrize(
    ("view", "want"),
    [
        ("raw", REWARDS),
        ("iql", REWARDS * 1000 / (6.0 - 4.0)),  # the episodes' returns are 6 and 4
        ("minus_one", REWARDS - 1),
        ("standard", (REWARDS - REWARDS.mean()) / REWARDS.std()),
        ((0.5, 2.0), 0.5 * REWARDS + 2.0),
    ],
)
def test_a_view_is_its_formula(view: Any, want: np.ndarray) -> None:
    seen = reward_scale(dataset(), view).of(dataset().transitions)
    np.testing.assert_allclose(seen.rewards, want, rtol=1e-6, atol=1e-6)
    assert seen.rewards.dtype == np.float32
    task = Task(dataset(), make("pendulum"))
    made = Td3Bc(hidden_dims=(4,), reward=view, steps=2).prepare(task, Job())
    np.testing.assert_allclose(made.data.rewards, want, rtol=1e-6, atol=1e-6)
    assert made.reward == reward_scale(dataset(), view)


def test_nothing_is_divided_by_zero() -> None:
    with pytest.raises(DataError, match="a spread of 0, by which reward="):
        reward_scale(dataset(np.zeros(6)), "standard")
    with pytest.warns(UserWarning, match="toy: all returns are equal: .* leaves rewards as they"):
        assert reward_scale(dataset(np.ones(6)), "iql") == RewardScale()


def test_values_are_undone_by_the_discounted_sum_of_the_shift() -> None:
    """An episode that terminates after three steps, and one that is cut there."""
    discount, scale, shift = 0.9, 4.0, -1.0
    weights = discounted_steps(np.array([3, 3]), np.array([True, False]), discount)
    np.testing.assert_allclose(weights, [1 + 0.9 + 0.81, 10.0])
    np.testing.assert_allclose(discounted_steps(np.array([3]), np.array([True]), 1.0), [3.0])
    assert steps_of_data(dataset(), discount) == pytest.approx(weights.mean())
    rewards = REWARDS[:3].astype(float)
    powers = discount ** np.arange(3)
    own, seen = powers @ rewards, powers @ (scale * rewards + shift)
    undone = RewardScale(scale, shift).undo(np.array([seen]), weights[0])
    np.testing.assert_allclose(undone, [own], rtol=1e-6)
    untouched = np.array([1.25], np.float32)
    assert RewardScale().undo(untouched, np.nan) is untouched or untouched == 1.25


def test_evaluations_report_values_in_the_datasets_own_rewards() -> None:
    """A pendulum's episodes are cut, so a shift counts `1 / (1 - gamma)`."""
    env = make("pendulum")
    learner = make_model_free(Td3BcConfig(hidden_dims=(4,)), 3, 1)
    keys = jax.random.split(jax.random.key(0), 2)
    data = jax.tree.map(np.asarray, dataset().transitions)
    state = jax.vmap(learner.init, (0, None))(keys, data)
    raw = evaluator(learner, env, jax.random.key(1), 2)(state, 0)["estimated_value"]
    view = RewardScale(5.0, 0.2)
    seen = evaluator(learner, env, jax.random.key(1), 2, reward=view)(state, 0)
    np.testing.assert_allclose(seen["estimated_value"], (raw - 0.2 * 100) / 5, rtol=1e-4)
    starts = np.zeros((4, 3), np.float32)
    plain = value_evaluator(learner, starts)(state, 0)["estimated_value"]
    undone = value_evaluator(learner, starts, view, 7.0)(state, 0)["estimated_value"]
    np.testing.assert_allclose(undone, (plain - 0.2 * 7.0) / 5, rtol=1e-5)


@pytest.mark.parametrize("preset", ["small", "long", "paper"])
def test_iql_learns_from_its_papers_view_in_every_preset_but_smoke(preset: Any) -> None:
    made = recipe("iql", preset)
    assert isinstance(made, Iql) and made.reward == "iql"
