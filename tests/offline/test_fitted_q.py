"""Fitted Q evaluation: known values of chains, of a policy's own actions, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import Bc
from jaxrl_rollouts.offline.choosing.fqe import evaluated, fqe
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.fitted_q import FqeConfig
from jaxrl_rollouts.offline.method import Agent
from jaxrl_rollouts.offline.result import TrainResult

QUICK = FqeConfig(members=3, hidden_dims=(16,), steps=2000, lr=5e-3, tau=0.05, discount=0.9)


def chain(length: int, episodes: int, *, ends: bool, reward: str = "one") -> Dataset:
    """Episodes of `length` steps whose observation is the step, one-hot."""
    rng = np.random.default_rng(0)
    seen = np.tile(np.eye(length + 1, dtype=np.float32), (episodes, 1, 1))
    actions = rng.uniform(-1, 1, (episodes * length, 1)).astype(np.float32)
    last = np.tile(np.arange(length) == length - 1, episodes)
    return offline.from_arrays(
        observations=seen[:, :-1].reshape(-1, length + 1),
        next_observations=seen[:, 1:].reshape(-1, length + 1),
        actions=actions,
        rewards=np.ones(len(actions), np.float32) if reward == "one" else 2 * actions[:, 0] + 1,
        terminals=last & ends,
        timeouts=last & (not ends),
        name="chain",
    )


def circle(reward: str = "one") -> Dataset:
    """One state for ever: episodes are cut, never ended."""
    made = chain(5, 40, ends=False, reward=reward)
    rows = made.transitions
    same = np.ones_like(rows.observations)
    return replace(made, transitions=rows._replace(observations=same, next_observations=same))


@pytest.fixture(scope="module")
def cloned() -> TrainResult:
    """Two policies that act 0.5, whatever they see."""
    data = circle()
    half = np.full_like(data.transitions.actions, 0.5)
    data = replace(data, transitions=data.transitions._replace(actions=half))
    method = Bc(hidden_dims=(8,), steps=600, per_iteration=200, batch_size=32, actor_lr=0.01)
    return offline.train(data, method, seeds=2, evaluations=1, episodes=1, environment="none")


def test_values_of_a_circle_and_of_a_chain_that_ends(cloned: TrainResult) -> None:
    found = fqe(cloned, circle(), QUICK)
    assert found.value.shape == (2,) and found.by_member.shape == (2, 3)
    np.testing.assert_allclose(found.value, 10.0, atol=0.1)
    assert (found.clipped < 0.2).all()
    # 1 + 0.9 + ... + 0.9^4 from the first of five states.
    found = fqe(cloned, chain(5, 40, ends=True), QUICK)
    np.testing.assert_allclose(found.value, 4.0951, atol=0.15)


def test_the_value_of_a_switch_of_two_states(cloned: TrainResult) -> None:
    """One state pays 1, the other nothing, and they take turns: `1 / (1 - gamma^2)`."""
    made = circle()
    one, rows = np.arange(len(made.transitions.rewards)) % 5 % 2 == 0, made.transitions
    seen = np.zeros_like(rows.observations)
    seen[:, 0] = one
    other = np.zeros_like(seen)
    other[:, 0] = ~one
    rows = rows._replace(observations=seen, next_observations=other, rewards=one.astype(np.float32))
    found = fqe(cloned, replace(made, transitions=rows), QUICK)
    np.testing.assert_allclose(found.value, 1 / (1 - 0.81), atol=0.2)


def test_it_is_the_value_of_the_policy_and_not_of_the_data(cloned: TrainResult) -> None:
    """Rewards `2 a + 1` of random actions: 1 on average, 2 of a policy that acts 0.5."""
    np.testing.assert_allclose(fqe(cloned, circle("action"), QUICK).value, 20.0, rtol=0.05)


def logged(episodes: int) -> tuple[Dataset, np.ndarray]:
    """Episodes of 3 to 8 steps of the policy `a = 0.5 - 0.4 s`, and the return of each.

    An observation is the state and the steps that are left, so the value is a function of it.
    """
    rng, rows, returns = np.random.default_rng(0), [], np.zeros(episodes)
    for i in range(episodes):
        s, length = rng.uniform(-1, 1), rng.integers(3, 9)
        for t in range(length):
            a, left = 0.5 - 0.4 * s, length - t
            after, reward = 0.7 * s + 0.5 * a, np.sin(3 * s) + a**2
            returns[i] += 0.9**t * reward
            rows.append((s, left / 8, a, reward, after, (left - 1) / 8))
            s = after
    columns = np.asarray(rows, np.float32)
    made = offline.from_arrays(
        observations=columns[:, :2],
        actions=columns[:, 2:3],
        rewards=columns[:, 3],
        next_observations=columns[:, 4:],
        terminals=columns[:, 5] == 0,
        timeouts=np.zeros(len(columns), bool),
        name="logged",
    )
    return made, returns


def test_of_the_policy_that_acted_it_is_the_monte_carlo_return() -> None:
    """The policy is deterministic, so that holds for every single episode."""
    data, returns = logged(150)

    def act(slope: Any, key: Any, seen: Any, memory: Any) -> tuple:
        return 0.5 - slope * seen[..., :1], memory

    none: Any = None
    agent = Agent(init=none, update=none, policy=act, greedy=act)
    found = evaluated(agent, jnp.array([0.4]), data, QUICK)
    np.testing.assert_allclose(found.value().value, returns.mean(), rtol=0.02)
    gaps = found.at(found.starts)[0].mean(0) - returns
    assert np.sqrt(np.square(gaps).mean()) < 0.1 * returns.std()


def test_a_second_call_gives_the_same_bits_and_compiles_nothing(
    cloned: TrainResult, programs: Callable[[], int]
) -> None:
    data, short = circle("action"), replace(QUICK, steps=600)
    both = fqe(cloned, data, short, seed=3)
    before = programs()
    again = fqe(cloned, data, short, seed=3)
    assert programs() == before
    np.testing.assert_array_equal(both.by_member, again.by_member)
    other = fqe(cloned, data, short, seed=4)
    assert (both.by_member != other.by_member).any()


def test_what_cannot_be_read_is_refused(cloned: TrainResult) -> None:
    with pytest.raises(ConfigError, match="steps: found 500, expected at least 600: three time"):
        fqe(cloned, circle(), replace(QUICK, steps=500))
    with pytest.raises(ConfigError, match="members"):
        fqe(cloned, circle(), replace(QUICK, members=0))
