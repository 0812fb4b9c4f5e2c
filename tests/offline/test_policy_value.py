"""A policy's worth in world models: which rows are played where, for how long, and who cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import Bc
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.data.transitions import RewardScale
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.policy_value import model_value
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.result import TrainResult

BASE = recipe(
    "base",
    "small",
    steps=5,
    agent={"hidden_dims": (8,)},
    world={"hidden_dims": (16,), "max_epochs": 2},
    rollouts={"batch_size": 50, "every": 5},
)
BC = Bc(hidden_dims=(8,), batch_size=16, steps=4, per_iteration=2, actor_lr=1e-3)
LOOKS: dict[str, Any] = {"evaluations": 1, "episodes": 2}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


@pytest.fixture(scope="module")
def outcome(dataset: Dataset) -> TrainResult:
    return train(dataset, BASE, **LOOKS)


def with_bonus(outcome: TrainResult, member: int, bonus: float) -> Any:
    """The models of an outcome, one elite of which pays more for every step, in all seeds."""
    fitted = outcome.source.fitted
    elites = jax.tree.map(lambda x: x, fitted.worlds.elites)
    head = elites["MLP_0"]["Dense_1"]  # of the means, the reward last
    scaled = bonus / fitted.worlds.targets.std[:, -1]
    head["bias"] = head["bias"].at[:, member, -1].add(scaled)
    worlds = fitted.worlds._replace(elites=elites)
    return outcome.source._replace(fitted=fitted._replace(worlds=worlds))


@pytest.mark.parametrize(("discount", "steps"), [(0.99, 200), (0.9, 44), (0.0, 1)])
def test_a_member_that_pays_more_is_worth_that_for_all_steps(
    outcome: TrainResult, discount: float, steps: int
) -> None:
    """Two hundred steps are a whole episode of the pendulum; `0.9^44` is a hundredth."""
    played = outcome._replace(config=replace(outcome.config, discount=discount))
    plain = model_value(played)
    paid = model_value(played, with_bonus(outcome, 2, 0.5))
    assert plain.by_member.shape == (2, 5) and plain.value.shape == plain.spread.shape == (2,)
    gained = paid.by_member - plain.by_member
    want = 0.5 * (discount ** np.arange(steps)).sum()
    np.testing.assert_allclose(gained[:, 2], want, rtol=1e-3)
    np.testing.assert_array_equal(np.delete(gained, 2, 1), 0)
    np.testing.assert_array_equal(plain.value, np.median(plain.by_member, 1))
    away = model_value(played, with_bonus(outcome, 2, np.inf))
    others = np.delete(plain.by_member, 2, 1)
    np.testing.assert_array_equal(away.value, np.median(others, 1))
    # A hundred a step is finite, and more than six times the range of the data's rewards.
    for found, count in (
        (plain, 0),
        (away, 1),
        (model_value(played, with_bonus(outcome, 2, 100)), 1),
    ):
        np.testing.assert_array_equal(found.away, count)


def test_it_is_that_of_the_policy_and_the_world_of_the_seed(
    dataset: Dataset, outcome: TrainResult
) -> None:
    first = model_value(outcome)
    np.testing.assert_array_equal(model_value(outcome).by_member, first.by_member)
    assert (model_value(outcome, seed=1).by_member != first.by_member).all()
    same = jax.tree.map(lambda x: np.stack([x[0], x[0]]), outcome.source.fitted.worlds)
    one = outcome.source._replace(fitted=outcome.source.fitted._replace(worlds=same))
    found = model_value(outcome, one).by_member
    np.testing.assert_allclose(found[0], first.by_member[0], rtol=1e-4)
    assert (found[1] != first.by_member[1]).all()
    cloned = train(dataset, BC, **LOOKS)
    assert np.isfinite(model_value(cloned, outcome.source).value).all()


def test_what_cannot_be_played_there_is_named(dataset: Dataset, outcome: TrainResult) -> None:
    cloned = train(dataset, BC, **LOOKS)
    with pytest.raises(ConfigError, match="world: found 'Task', expected world models: bc has"):
        model_value(cloned)


def test_values_are_in_the_datasets_own_rewards(outcome: TrainResult) -> None:
    """Of models that predict twice the rewards less one: `(V' + sum_t gamma^t) / 2`."""
    plain = model_value(outcome).by_member
    view = outcome.source._replace(reward=RewardScale(2.0, -1.0))
    steps = (0.99 ** np.arange(200)).sum()
    np.testing.assert_allclose(model_value(outcome, view).by_member, (plain + steps) / 2, rtol=1e-5)
