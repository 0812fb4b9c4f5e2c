from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.collect import collect, random_policy, write_rows
from jaxrl_rollouts.offline.data.d4rl import load_d4rl
from jaxrl_rollouts.offline.data.transitions import Transitions, episode_returns, episodes
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM, SwingUp, swing_up_policy
from jaxrl_rollouts.offline.environments.plane import PLANE


def check_conventions(rows: Transitions, limit: int) -> None:
    """What every D4RL-like set must satisfy."""
    count = len(rows.rewards)
    assert [column.dtype.name for column in rows] == ["float32"] * 4 + ["bool"] * 2
    assert all(isinstance(column, np.ndarray) and len(column) == count for column in rows)
    ended = rows.terminations | rows.truncations
    assert ended[-1] and not (rows.terminations & rows.truncations).any()
    inside = np.flatnonzero(~ended)
    np.testing.assert_array_equal(rows.next_observations[inside], rows.observations[inside + 1])
    assert episodes(rows).lengths.max() <= limit
    assert np.abs(rows.actions).max() <= 1


def assert_same(left: Transitions, right: Transitions) -> None:
    for mine, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_whole_episodes() -> None:
    rows = collect(PENDULUM, random_policy(1), None, jax.random.key(0), episodes=7)
    check_conventions(rows, 200)
    assert len(rows.rewards) == 1400 and not rows.terminations.any()
    assert np.flatnonzero(rows.truncations).tolist() == list(range(199, 1400, 200))
    # the successor of the last row is true: the environment's own step gives it
    last = PENDULUM.set_observation(jnp.asarray(rows.observations[199::200]))
    expected, out = PENDULUM.step(jax.random.key(0), last, jnp.asarray(rows.actions[199::200]))
    np.testing.assert_allclose(rows.next_observations[199::200], expected.observation, atol=1e-4)
    np.testing.assert_allclose(rows.rewards[199::200], out.reward, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 29, 30, 31, 1000, 256 * 30 + 5])
def test_exact_number_of_steps(steps: int) -> None:
    rows = collect(PLANE, random_policy(2), None, jax.random.key(0), steps=steps)
    check_conventions(rows, 30)
    assert len(rows.rewards) == steps
    lengths = episodes(rows).lengths
    assert (lengths[:-1] == 30).all() and lengths[-1] == (steps - 1) % 30 + 1
    assert len(np.unique(rows.observations[:, 0])) == steps  # no round repeats another


def test_terminating_episodes_are_kept_apart() -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    env = make("mujoco/Hopper-v4")
    rows = collect(env, random_policy(3), None, jax.random.key(0), steps=700)
    check_conventions(rows, 1000)
    assert len(rows.rewards) == 700 and rows.terminations.sum() > 10
    assert rows.truncations.sum() <= 1
    known = env.termination(None, None, jnp.asarray(rows.next_observations))
    np.testing.assert_array_equal(known, rows.terminations)
    starts = rows.observations[episodes(rows).starts]
    np.testing.assert_allclose(starts[:, 0], 1.25, atol=0.01)


def test_recorded_actions_are_the_applied_ones() -> None:
    def wild(params: None, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        return 3.0 * jax.random.normal(key, (observation.shape[0], 2)), memory

    rows = collect(PLANE, wild, None, jax.random.key(0), episodes=20)
    np.testing.assert_allclose(
        rows.next_observations, rows.observations + rows.actions, rtol=1e-6, atol=1e-5
    )
    assert np.abs(rows.actions).max() == 1


def test_pendulum_mixed_has_every_quality() -> None:
    rows = pendulum_mixed(jax.random.key(0))
    check_conventions(rows, 200)
    assert len(rows.rewards) == 20_000
    returns = episode_returns(rows)
    assert len(returns) == 100 and -1000 < returns.mean() < -600
    assert (returns > -300).sum() >= 8 and (returns < -1000).sum() >= 20


def test_random_actions_on_the_plane_stay_around_the_origin() -> None:
    rows = collect(PLANE, random_policy(2), None, jax.random.key(0), steps=20_000)
    check_conventions(rows, 30)
    assert len(rows.rewards) == 20_000
    assert 0.3 < episode_returns(rows).mean() < 1.5  # the optimum is about 26
    assert np.percentile(np.abs(rows.observations), 99) < 9


def test_a_file_gives_the_rows_back(tmp_path: Path) -> None:
    path = tmp_path / "pendulum.hdf5"
    rows = collect(PENDULUM, swing_up_policy, SwingUp(noise=0.1), jax.random.key(0), steps=450)
    write_rows(path, PENDULUM, rows, {"behaviour": "swing-up"})
    dataset = load_d4rl(path)
    assert_same(dataset.transitions, rows)
    assert dataset.environment == "pendulum" and make(dataset.environment) is PENDULUM
    assert dataset.attributes["behaviour"] == "swing-up"
    assert dataset.attributes["max_episode_steps"] == 200
    expected = episode_returns(rows).mean()
    assert dataset.attributes["mean_return"] == pytest.approx(expected)


def test_nothing_is_traced_on_the_second_call() -> None:
    traces = []

    def policy(params: jax.Array, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        traces.append(1)
        return params * jnp.ones((observation.shape[0], 2)), memory

    collect(PLANE, policy, jnp.float32(0.1), jax.random.key(0), steps=60)
    first = len(traces)
    collect(PLANE, policy, jnp.float32(0.2), jax.random.key(1), steps=55)
    assert 0 < first == len(traces)
    assert random_policy(2) is random_policy(2)


@pytest.mark.parametrize(
    "arguments", [{}, {"episodes": 1, "steps": 1}, {"steps": 0}, {"episodes": 2.0}]
)
def test_bad_counts_are_refused(arguments: dict) -> None:
    with pytest.raises(ConfigError, match="found"):
        collect(PLANE, random_policy(2), None, jax.random.key(0), **arguments)
