from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments import as_model, true_model
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM, SwingUp, swing_up_policy
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.rollouts import rollout


def test_equals_gymnasium_step_by_step() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    simulator = gymnasium.make("Pendulum-v1").unwrapped
    observation, _ = simulator.reset(seed=3)
    state = PENDULUM.set_observation(jnp.asarray(observation)[None])
    actions = np.random.default_rng(0).uniform(-1.3, 1.3, (200, 1, 1)).astype(np.float32)
    step = jax.jit(PENDULUM.step)
    for action in actions:
        clipped = np.clip(action[0], -1, 1)
        before = np.asarray(PENDULUM.observe(state))[0]
        # restart from our state: a chaotic path would amplify float32 rounding
        simulator.state = np.array([np.arctan2(before[1], before[0]), before[2]])
        expected, reward, terminated, _, _ = simulator.step(2.0 * clipped)
        state, out = step(jax.random.key(0), state, jnp.asarray(action))
        np.testing.assert_allclose(PENDULUM.observe(state)[0], expected, atol=2e-5)
        np.testing.assert_allclose(out.reward[0], reward, rtol=1e-4, atol=1e-4)
        assert terminated == bool(out.terminated[0]) is False
    assert bool(out.truncated[0])


def test_free_run_follows_gymnasium_for_many_steps() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    simulator = gymnasium.make("Pendulum-v1").unwrapped
    observation, _ = simulator.reset(seed=1)
    state = PENDULUM.set_observation(jnp.asarray(observation)[None])
    for index in range(30):
        action = np.sin([0.3 * index]).astype(np.float32)
        expected, *_ = simulator.step(2.0 * action)
        state, _ = PENDULUM.step(jax.random.key(0), state, jnp.asarray(action)[None])
    np.testing.assert_allclose(PENDULUM.observe(state)[0], expected, atol=1e-3)


def test_start_states_cover_gymnasiums_ranges() -> None:
    state = PENDULUM.reset(jax.random.key(0), 4096)
    angle, speed = np.asarray(state.inner).T
    assert angle.min() < -3.1 and 3.1 < angle.max() <= np.pi
    assert np.abs(speed).max() <= 1.0 and speed.std() == pytest.approx(1 / 3**0.5, rel=0.05)
    np.testing.assert_allclose(state.observation[:, 0], np.cos(angle), atol=1e-6)
    assert not state.time.any()


def play(batch: int = 8, horizon: int = 200) -> tuple:
    played = rollout(
        as_model(PENDULUM),
        None,
        PENDULUM.reset(jax.random.key(0), batch),
        jax.random.key(1),
        horizon=horizon,
        policy=random_policy(1),
    )
    return played.steps, played


def test_known_functions_agree_with_the_steps() -> None:
    steps, _ = play()
    reward = PENDULUM.reward(steps.observations, steps.actions, steps.next_observations)
    np.testing.assert_allclose(reward, steps.rewards, rtol=1e-3, atol=1e-3)
    assert not PENDULUM.termination(
        steps.observations, steps.actions, steps.next_observations
    ).any()


def test_the_time_limit_truncates_and_does_not_terminate() -> None:
    steps, played = play(horizon=300)
    assert played.lengths.tolist() == [200] * 8
    assert not steps.terminations.any()
    assert steps.truncations[199].all() and steps.truncations.sum() == 8


def test_true_model_gives_the_same_path_from_observations() -> None:
    actions = jax.random.uniform(jax.random.key(2), (40, 4, 1), minval=-1.0)

    def replay(params: None, key: jax.Array, observation: jax.Array, time: jax.Array) -> tuple:
        return actions[time[0]], time + 1

    start = PENDULUM.reset(jax.random.key(0), 4)
    arguments = {"horizon": 40, "policy": replay, "memory": jnp.zeros(4, jnp.int32)}
    key = jax.random.key(1)
    own = rollout(as_model(PENDULUM), None, start, key, **arguments)
    model = rollout(true_model(PENDULUM), None, start.observation, key, **arguments)
    np.testing.assert_allclose(
        model.steps.next_observations, own.steps.next_observations, atol=2e-3
    )
    np.testing.assert_allclose(model.steps.rewards, own.steps.rewards, atol=1e-2)
    assert own.steps.rewards.std() > 0.1


def test_true_model_has_no_time_limit() -> None:
    start = PENDULUM.reset(jax.random.key(0), 2).observation
    played = rollout(
        true_model(PENDULUM), None, start, jax.random.key(1), horizon=250, policy=random_policy(1)
    )
    assert played.lengths.tolist() == [250, 250]


def test_thousands_side_by_side_in_one_program() -> None:
    @jax.jit
    def returns(key: jax.Array) -> jax.Array:
        start = PENDULUM.reset(key, 4096)
        played = rollout(
            as_model(PENDULUM),
            None,
            start,
            key,
            horizon=200,
            policy=random_policy(1),
            record=lambda step: step.rewards,
        )
        return played.steps.sum(0)

    result = returns(jax.random.key(0))
    assert result.shape == (4096,)
    assert -1300 < result.mean() < -1150  # a random policy's known level
    assert len(np.unique(result)) > 4000


def test_swing_up_is_good_and_its_knobs_spoil_it() -> None:
    def mean(params: SwingUp) -> float:
        key = jax.random.key(5)
        return float(evaluate(PENDULUM, swing_up_policy, params, key, 300).returns.mean())

    assert -175 < mean(SwingUp()) < -125
    assert mean(SwingUp(gain=0.1)) < -800
    assert mean(SwingUp(random=1.0)) < -1100
    assert mean(SwingUp(noise=0.5)) < mean(SwingUp()) - 5
