from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnax = pytest.importorskip("gymnax")

from jaxrl_rollouts.errors import ConfigError  # noqa: E402
from jaxrl_rollouts.offline.collect import random_policy  # noqa: E402
from jaxrl_rollouts.offline.environments import as_model, make, true_model  # noqa: E402
from jaxrl_rollouts.offline.environments.gymnax_ import continuous_ids  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.rollouts import Trajectory, rollout  # noqa: E402


def play(env: Any, batch: int, horizon: int, policy: Any = None) -> Trajectory:
    policy = policy or random_policy(env.action_size)

    @jax.jit
    def run(key: jax.Array) -> Trajectory:
        start = env.reset(key, batch)
        return rollout(as_model(env), None, start, key, horizon=horizon, policy=policy)

    return run(jax.random.key(0))


def test_pendulum_is_our_embedded_one() -> None:
    env = make("gymnax/Pendulum-v1")
    assert (env.observation_size, env.action_size, env.max_episode_steps) == (3, 1, 200)
    assert "gymnax 1." in env.version
    steps = play(env, 16, 200).steps
    ours = PENDULUM.set_observation(steps.observations.reshape(-1, 3))
    following, out = PENDULUM.step(jax.random.key(0), ours, steps.actions.reshape(-1, 1))
    expected = steps.next_observations.reshape(-1, 3)
    np.testing.assert_allclose(following.observation, expected, atol=1e-4)
    np.testing.assert_allclose(out.reward, steps.rewards.reshape(-1), rtol=1e-3, atol=1e-3)


def test_time_limit_truncates_and_the_last_successor_is_true() -> None:
    played = play(make("gymnax/Pendulum-v1"), 8, 260)
    assert played.lengths.tolist() == [200] * 8
    steps = played.steps
    assert not steps.terminations.any() and steps.truncations[199].all()
    # a leaked reset would jump: angle and speed change little in a step of 0.05 s
    speed = steps.next_observations[..., 2] - steps.observations[..., 2]
    assert jnp.abs(speed[199]).max() < 1.06
    np.testing.assert_array_equal(steps.next_observations[:199], steps.observations[1:200])


def test_mountain_car_terminates_with_its_true_successor() -> None:
    env = make("gymnax/MountainCarContinuous-v0")

    def push(params: None, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        return jnp.where(observation[:, 1:] >= 0, 1.0, -1.0), memory

    played = play(env, 8, 400, push)
    steps, last = played.steps, played.lengths - 1
    assert (played.lengths < 200).all()
    rows = jnp.arange(8)
    assert steps.terminations[last, rows].all() and steps.terminations.sum() == 8
    assert not steps.truncations.any()
    assert (steps.next_observations[last, rows, 0] >= 0.45).all()
    assert (steps.rewards[last, rows] > 99).all()
    arguments = steps.observations, steps.actions, steps.next_observations
    valid = np.asarray(played.valid)
    np.testing.assert_array_equal(
        np.asarray(env.termination(*arguments))[valid], np.asarray(steps.terminations)[valid]
    )
    np.testing.assert_allclose(
        np.asarray(env.reward(*arguments))[valid], np.asarray(steps.rewards)[valid], atol=1e-5
    )


@pytest.mark.parametrize("name", ["gymnax/Pendulum-v1", "gymnax/MountainCarContinuous-v0"])
def test_true_model_follows_the_environment(name: str) -> None:
    env = make(name)
    start = env.reset(jax.random.key(3), 8)
    arguments = {"horizon": 20, "policy": random_policy(1)}
    own = rollout(as_model(env), None, start, jax.random.key(4), **arguments)
    model = rollout(true_model(env), None, start.observation, jax.random.key(4), **arguments)
    np.testing.assert_allclose(
        model.steps.next_observations, own.steps.next_observations, atol=1e-3
    )


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match="continuous actions"):
        make("gymnax/CartPole-v1")


def test_an_older_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(gymnax.make("Pendulum-v1")[0])
    step = kind.step

    def five(self: Any, *arguments: Any) -> tuple:
        values = step(self, *arguments)
        return (*values[:3], values[3] | values[4], values[5])

    monkeypatch.setattr(kind, "step", five)
    with pytest.raises(ConfigError, match=r"gymnax: .*5 values.*gymnax>=1\.0\.1"):
        make("gymnax/Pendulum-v1")


def test_every_continuous_one_is_found_without_its_prefix() -> None:
    ids = continuous_ids()
    assert {"Pendulum-v1", "MountainCarContinuous-v0", "PointRobot-misc", "Reacher-misc"} <= set(
        ids
    )
    for name in set(ids) - {"Pendulum-v1"}:  # that one is embedded
        env = make(name)
        assert env.name == f"gymnax/{name}" and env.action_size >= 1
        state = jax.eval_shape(lambda k, e=env: e.reset(k, 2), jax.random.key(0))
        action = jnp.zeros((2, env.action_size))
        state, out = jax.eval_shape(env.step, jax.random.key(0), state, action)
        assert state.observation.shape == (2, env.observation_size) and out.reward.shape == (2,)
