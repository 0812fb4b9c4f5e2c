"""Start states of a dataset and of a simulator: order and units of columns without names."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from helpers_environments import HIGH, LOW, Cart  # noqa: E402

from jaxrl_rollouts.errors import DataError  # noqa: E402
from jaxrl_rollouts.offline.data import Dataset, from_arrays  # noqa: E402
from jaxrl_rollouts.offline.environments import from_gymnasium  # noqa: E402
from jaxrl_rollouts.offline.matching import environment_of, is_simulator  # noqa: E402


class Apart(Cart):
    """Speed first, and both parts of its state begin in places of their own."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.state = np.array([9.0, -5.0]) + 0.1 * self.state
        return self.state.copy(), {}


def begun(first: list[float]) -> Dataset:
    rng = np.random.default_rng(0)
    states = np.tile(np.float32(first), (60, 1)) + rng.normal(0, 0.05, (60, 2))
    rows = {"observations": states, "actions": np.zeros((60, 1)), "rewards": np.ones(60)}
    ends = np.arange(60) % 10 == 9
    rows |= {"terminals": ends, "timeouts": np.zeros(60)}
    return from_arrays(**rows, action_low=LOW, action_high=HIGH, name="begun")


def test_start_states_are_compared_column_by_column() -> None:
    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(Apart(), 10)

    assert is_simulator(environment_of(begun([9.0, -5.0]), make))
    with pytest.raises(DataError, match=r"0 as its 1, 1 as its 0, by where episodes.*order of"):
        environment_of(begun([-5.0, 9.0]), make)
    with pytest.warns(UserWarning, match=r"in column\(s\) 1 \(medians 40"):
        environment_of(begun([9.0, 40.0]), make)


class Goal(Cart):
    """A place, and a goal that stays; both begin in the same range."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.goal = self.np_random.uniform(-0.5, 0.5)
        return self.shown(), {}

    def shown(self) -> np.ndarray:
        return np.array([self.state[0], self.goal])

    def step(self, action: np.ndarray) -> tuple:
        _, *rest = super().step(action)
        return self.shown(), *rest


def test_start_states_of_other_units_are_named() -> None:
    """Both columns begin around 0: the medians are alike, the spreads 1000 times apart."""

    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(Cart(), 10)

    env = from_gymnasium(make)
    assert env.starts is not None
    ends = np.arange(160) % 10 == 9
    rows = {"actions": np.zeros((160, 1)), "rewards": np.ones(160), "terminals": np.zeros(160)}
    rows |= {"timeouts": ends, "action_low": LOW, "action_high": HIGH}
    first = np.repeat(env.starts(16)[0], 10, 0) + 0.01 * np.arange(160)[:, None] % 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environment_of(from_arrays(first, **rows), make)
    moving = int(first.std(0).argmax())
    first[:, moving] *= 1000.0
    with pytest.warns(UserWarning, match=rf"differ in spread in column\(s\) {moving} .*same units"):
        environment_of(from_arrays(first, **rows), make)


def test_a_column_that_stays_is_not_taken_for_one_that_moves() -> None:
    rng, ends = np.random.default_rng(0), np.arange(60) % 10 == 9
    place = rng.uniform(-0.5, 0.5, 60)
    goal = np.repeat(rng.uniform(-0.5, 0.5, 6), 10)
    rows = {"actions": np.zeros((60, 1)), "rewards": np.ones(60), "terminals": np.zeros(60)}
    rows |= {"timeouts": ends, "action_low": LOW, "action_high": HIGH}

    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(Goal(), 10)

    right = from_arrays(observations=np.stack([place, goal], 1), **rows)
    assert is_simulator(environment_of(right, make))
    turned = from_arrays(observations=np.stack([goal, place], 1), **rows)
    with pytest.raises(DataError, match="0 as its 1, 1 as its 0, by where .* what moves"):
        environment_of(turned, make)
