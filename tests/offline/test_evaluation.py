from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments import as_model, make
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM, SwingUp, swing_up_policy
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.evaluation import evaluate, evaluate_seeds
from jaxrl_rollouts.rollouts import rollout


def linear(params: jax.Array, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
    return jnp.tanh(observation @ params), memory


def test_returns_are_the_sums_of_a_rollouts_rewards() -> None:
    result = evaluate(PLANE, random_policy(2), None, jax.random.key(3), 16, discount=0.9)
    reset_key, key = jax.random.split(jax.random.key(3))
    steps = rollout(
        as_model(PLANE), None, PLANE.reset(reset_key, 16), key, horizon=30, policy=random_policy(2)
    ).steps
    rewards = np.asarray(steps.rewards)
    np.testing.assert_allclose(result.returns, rewards.sum(0), rtol=1e-6)
    expected = (rewards * 0.9 ** np.arange(30)[:, None]).sum(0)
    np.testing.assert_allclose(result.discounted, expected, rtol=1e-5)
    assert result.lengths.tolist() == [30] * 16 and not result.terminated.any()


def test_same_key_same_result() -> None:
    arguments = (PENDULUM, swing_up_policy, SwingUp(noise=0.2))
    one, again, other = (evaluate(*arguments, jax.random.key(k), 4) for k in (0, 0, 1))
    np.testing.assert_array_equal(one.returns, again.returns)
    assert not np.allclose(one.returns, other.returns)


def test_nothing_is_traced_on_the_second_call() -> None:
    traces = []

    def policy(params: jax.Array, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        traces.append(1)
        return params + jnp.zeros((observation.shape[0], 2)), memory

    results = []
    for run, params in ((evaluate, jnp.float32), (evaluate_seeds, lambda v: jnp.full((3, 1), v))):
        traces.clear()
        results.append(run(PLANE, policy, params(0.1), jax.random.key(0), 4))
        first = len(traces)
        results.append(run(PLANE, policy, params(0.3), jax.random.key(1), 4))
        assert 0 < first == len(traces)
        assert results[-2].returns.mean() < results[-1].returns.mean()


def test_memory_is_carried_through_an_episode() -> None:
    def counting(params: None, key: jax.Array, observation: jax.Array, count: jax.Array) -> tuple:
        action = jnp.where(count < 5, 1.0, 0.0)[:, None] * jnp.ones(2)
        return action, count + 1

    key, start = jax.random.key(0), jnp.zeros(6, jnp.int32)
    five = evaluate(PLANE, counting, None, key, 6, memory=start)
    none = evaluate(PLANE, counting, None, key, 6, memory=start + 5)
    assert (five.returns > none.returns).all()


def test_seeds_equal_individual_evaluations() -> None:
    params = SwingUp(
        gain=jnp.array([1.0, 0.3, 0.1]), noise=jnp.array([0.0, 0.3, 0.5]), random=jnp.zeros(3)
    )
    key = jax.random.key(9)
    together = evaluate_seeds(PENDULUM, swing_up_policy, params, key, 5)
    assert together.returns.shape == (3, 5)
    for seed, own in enumerate(jax.random.split(key, 3)):
        one = jax.tree.map(lambda x, s=seed: x[s], params)
        alone = evaluate(PENDULUM, swing_up_policy, one, own, 5)
        for left, right in zip(together, alone, strict=True):
            np.testing.assert_allclose(left[seed], right, rtol=1e-3, atol=1e-2)


def test_seeds_equal_individual_evaluations_on_the_host() -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    env = make("mujoco/Hopper-v4")
    params = jax.random.normal(jax.random.key(1), (3, 11, 3))
    key = jax.random.key(2)
    together = evaluate_seeds(env, linear, params, key, 4)
    assert together.returns.shape == (3, 4) and together.terminated.all()
    for seed, own in enumerate(jax.random.split(key, 3)):
        alone = evaluate(env, linear, params[seed], own, 4)
        np.testing.assert_array_equal(together.lengths[seed], alone.lengths)
        np.testing.assert_allclose(together.returns[seed], alone.returns, rtol=1e-4)
        np.testing.assert_allclose(together.discounted[seed], alone.discounted, rtol=1e-4)
    assert len(np.unique(together.returns)) == 12


def test_host_seeds_carry_memory_of_their_own() -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    env = make("mujoco/Hopper-v4")

    def switch(
        params: jax.Array, key: jax.Array, observation: jax.Array, count: jax.Array
    ) -> tuple:
        on = (count < params)[:, None]
        return jnp.where(on, 1.0, -1.0) * jnp.ones(3), count + 1

    params, memory = jnp.array([0, 1000]), jnp.zeros((2, 3), jnp.int32)
    result = evaluate_seeds(env, switch, params, jax.random.key(0), 3, memory=memory)
    never = evaluate_seeds(env, switch, params, jax.random.key(0), 3, memory=memory + 1000)
    np.testing.assert_array_equal(result.returns[0], never.returns[0])
    assert (result.returns[1] != never.returns[1]).all()


def test_early_exit_keeps_long_episodes_apart_from_short_ones() -> None:
    pytest.importorskip("gymnax")
    env = make("gymnax/MountainCarContinuous-v0")

    def push(params: jax.Array, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        return params * jnp.where(observation[:, 1:] >= 0, 1.0, -1.0), memory

    result = evaluate_seeds(env, push, jnp.array([1.0, 0.0]), jax.random.key(0), 3)
    assert result.terminated.tolist() == [[True] * 3, [False] * 3]
    assert (result.lengths[0] < 250).all() and (result.lengths[1] == env.max_episode_steps).all()
    assert (result.returns[0] > 80).all() and not result.returns[1].any()


@pytest.mark.parametrize("episodes", [0, -1, 1.5, True])
def test_bad_counts_are_refused(episodes: object) -> None:
    with pytest.raises(ConfigError, match="episodes: found"):
        evaluate(PLANE, random_policy(2), None, jax.random.key(0), episodes)


def test_parameters_without_a_seed_axis_are_refused() -> None:
    for params in (None, (jnp.zeros(3), jnp.zeros(2)), jnp.float32(1.0)):
        with pytest.raises(ConfigError, match="leading seed axis"):
            evaluate_seeds(PLANE, linear, params, jax.random.key(0))
