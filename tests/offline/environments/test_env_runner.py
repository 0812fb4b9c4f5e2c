"""The runner against Gymnasium's cart-pole, its endings, and the clumsy data."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.environments import make, true_model
from jaxrl_rollouts.offline.environments.runner import (
    HIDDEN_RUNNER,
    MAX_EPISODE_STEPS,
    RUNNER,
    STANDARD,
    WIRED_RUNNER,
    Build,
    advance,
)
from jaxrl_rollouts.offline.environments.terminations import termination_function
from jaxrl_rollouts.offline.evaluation import evaluate


def test_equals_gymnasium_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    simulator = gymnasium.make("CartPole-v1").unwrapped
    simulator.reset(seed=0)
    simulator.tau = 0.04
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (30, 3)) * [3.0, 0.2, 2.0]
    actions = rng.uniform(-1, 1, 30)
    ours = advance(jnp.asarray(states, jnp.float32), jnp.asarray(actions, jnp.float32))
    for row, (speed, angle, turning) in enumerate(states):
        # Its two actions push with +-force_mag; ours pushes with this force, friction taken off.
        simulator.force_mag = 10.0 * actions[row] - 1.0 * speed
        simulator.state = (0.0, speed, angle, turning)
        simulator.steps_beyond_terminated = None
        following = simulator.step(1)[0][1:]
        np.testing.assert_allclose(ours[row], following, atol=1e-5)


def test_a_hidden_runner_keeps_its_build_and_moves_by_it() -> None:
    key = jax.random.key(0)
    state = HIDDEN_RUNNER.reset(key, 500)
    seen, build = state.inner
    assert (build.motor == 1.0).all()
    for scaled, standard in zip(build[:3], STANDARD, strict=False):
        scale = np.asarray(scaled) / standard
        assert 0.7 <= scale.min() < 0.72 and 1.37 < scale.max() <= 1.4001
        # Log-uniform: half of them below the middle of the logarithm.
        assert abs((scale < np.sqrt(0.7 * 1.4)).mean() - 0.5) < 0.07
    assert abs(np.corrcoef(np.array(build[:3]))[np.triu_indices(3, 1)]).max() < 0.15
    action = jnp.linspace(-1, 1, 500)[:, None]
    after, out = HIDDEN_RUNNER.step(key, state, action)
    for row in (0, 77, 499):
        own = Build(*(float(x[row]) for x in build))
        want = advance(seen[row], action[row, 0], own)
        np.testing.assert_allclose(after.observation[row], want, rtol=1e-5, atol=1e-6)
    for before, now in zip(build, after.inner.build, strict=True):
        np.testing.assert_array_equal(before, now)
    plain = advance(seen, action[:, 0])
    assert np.abs(np.asarray(plain - after.observation)).max() > 0.05
    # Groups of rows start as they would alone.
    keys = jax.random.split(key)
    both, alone = HIDDEN_RUNNER.reset(keys, 8), HIDDEN_RUNNER.reset(keys[1], 4)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[4:], b), both, alone)
    assert make("runner-hidden") is HIDDEN_RUNNER
    assert termination_function("runner-hidden") is HIDDEN_RUNNER.termination
    with pytest.raises(ConfigError, match="set_observation"):
        true_model(HIDDEN_RUNNER)


def test_motors_of_wired_runners_push_either_way() -> None:
    key = jax.random.key(0)
    wired, hidden = WIRED_RUNNER.reset(key, 500), HIDDEN_RUNNER.reset(key, 500)
    way = np.asarray(wired.inner.build.motor)
    assert set(way) == {-1.0, 1.0} and abs(way.mean()) < 0.1
    np.testing.assert_array_equal(wired.inner.seen, hidden.inner.seen)
    np.testing.assert_array_equal(wired.inner.build[:3], hidden.inner.build[:3])
    action = jnp.full((500, 1), 0.7)
    after, _ = WIRED_RUNNER.step(key, wired, action)
    same, _ = HIDDEN_RUNNER.step(key, hidden, action * way[:, None])
    np.testing.assert_allclose(after.observation, same.observation, atol=1e-6)
    assert make("runner-wired") is WIRED_RUNNER


def test_rewards_and_endings() -> None:
    states = jnp.array([[0.0, 0.0, 0.0], [3.9, 0.0, 0.0], [0.0, 0.24, 2.0], [-3.0, 0.0, 0.0]])
    state, out = RUNNER.step(jax.random.key(0), RUNNER.set_observation(states), jnp.ones((4, 1)))
    speed = np.asarray(state.observation[:, 0])
    np.testing.assert_allclose(out.reward, 0.5 + 0.5 * np.clip(speed, -2, 2), rtol=1e-6)
    assert out.reward[1] == 1.5 and out.reward[3] == -0.5
    assert list(out.terminated) == [False, speed[1] > 4, True, False]
    rule = termination_function("runner")
    nan = jnp.array([[jnp.nan, 0.0, 0.0], [4.1, 0.0, 0.0], [-3.9, -0.25, 9.0]])
    np.testing.assert_array_equal(rule(nan, nan, nan), [True, True, False])
    assert make("runner") is RUNNER and true_model(RUNNER)


def test_leaning_forward_runs() -> None:
    """A controller that holds the speed at 2 earns most of what is possible."""

    def run(params: None, key: jax.Array, seen: jax.Array, memory: tuple) -> tuple:
        speed, angle, turning = seen.T
        lean = jnp.clip(0.1 * (2.2 - speed), -0.1, 0.1)
        action = 0.1 * speed + 4.0 * (angle - lean) + 0.8 * turning
        return jnp.clip(action, -1, 1)[:, None], memory

    played = evaluate(RUNNER, run, None, jax.random.key(0), 16)
    assert (played.lengths == MAX_EPISODE_STEPS).all()
    assert 200 < float(played.returns.mean()) < 1.5 * MAX_EPISODE_STEPS
    assert math.isfinite(float(played.discounted.mean()))
