"""Policies and logs of the actuated Kuramoto-Sivashinsky equation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.ks_control import (
    KS_LOGS,
    NOTHING,
    PROPORTIONAL,
    Feedback,
    feedback_policy,
    ks_feedback,
    ks_mixed,
    ks_narrow,
    ks_random,
)
from jaxrl_rollouts.offline.behaviours.made import MADE
from jaxrl_rollouts.offline.data import episode_returns
from jaxrl_rollouts.offline.environments.base import Environment
from jaxrl_rollouts.offline.environments.ks_control import KS_CONTROL, KS_EIGHT
from jaxrl_rollouts.offline.evaluation import evaluate

ROWS = 1600  # four episodes


def earned(params: Feedback, env: Environment = KS_CONTROL) -> float:
    played = evaluate(env, feedback_policy(env), params, jax.random.key(3), 32)
    return float(played.returns.mean())


def test_returns_are_those_that_are_written_down() -> None:
    assert earned(NOTHING) == pytest.approx(-735, abs=40)
    assert earned(PROPORTIONAL) == pytest.approx(-400, abs=40)
    # The best constant actions of -1, 0 and 1, and some of the worst.
    assert -720 < earned(Feedback(constant=jnp.array([-1.0, 1.0, 0.0, 0.0]))) < -580
    assert earned(Feedback(constant=jnp.array([1.0, -1.0, 1.0, -1.0]))) < -1000
    # Eight jets reach every unstable wave and hold the field at zero.
    assert earned(PROPORTIONAL, KS_EIGHT) == pytest.approx(-20, abs=8)


def test_feedback_reads_the_field_at_its_jets() -> None:
    field = np.zeros((2, 64), np.float32)
    field[0, [8, 24, 40, 56]] = [0.1, -0.2, 0.3, 9.0]  # x = 2.75, 8.25, 13.75, 19.25
    policy = feedback_policy(KS_CONTROL)
    action, memory = policy(Feedback(gain=2.0), jax.random.key(0), jnp.asarray(field), ())
    np.testing.assert_allclose(action, [[-0.2, 0.4, -0.6, -1.0], [0.0] * 4], atol=1e-6)
    assert memory == ()
    own = Feedback(gain=jnp.array([[1.0], [2.0]]), constant=0.5)
    action, _ = policy(own, jax.random.key(0), jnp.asarray(field[[0, 0]]), ())
    np.testing.assert_allclose(action[:, :3], [[0.4, 0.7, 0.2], [0.3, 0.9, -0.1]], atol=1e-6)
    assert feedback_policy(KS_CONTROL) is policy


def test_its_noise_is_stationary_and_slow() -> None:
    rows = 10_000
    memory = jax.random.normal(jax.random.key(0), (rows, 4))
    params = Feedback(noise=0.1, keep=0.7)
    action, after = feedback_policy(KS_CONTROL)(
        params, jax.random.key(1), jnp.zeros((rows, 64)), memory
    )
    assert float(after.std()) == pytest.approx(1.0, abs=0.02)
    assert float(jnp.corrcoef(memory[:, 0], after[:, 0])[0, 1]) == pytest.approx(0.7, abs=0.03)
    np.testing.assert_allclose(action, 0.1 * after, atol=1e-6)


def test_logs_differ_as_they_should_and_follow_their_seed() -> None:
    makers = {"random": ks_random, "feedback": ks_feedback, "mixed": ks_mixed, "narrow": ks_narrow}
    logs = {name: make(jax.random.key(0), ROWS) for name, make in makers.items()}
    for name, rows in logs.items():
        assert MADE[f"ks_control-{name}"] == ("ks_control", makers[name])
        assert rows.observations.shape == (ROWS, 64) and rows.actions.shape == (ROWS, 4)
        assert np.abs(rows.actions).max() <= 1 and not rows.terminations.any()
        assert np.isfinite(rows.rewards).all() and rows.truncations[-1]
    assert KS_LOGS.keys() <= MADE.keys()
    returns = {name: episode_returns(rows).mean() for name, rows in logs.items() if name != "mixed"}
    assert returns["random"] < returns["narrow"] and returns["random"] < returns["feedback"]
    assert logs["random"].actions.std() == pytest.approx(1 / np.sqrt(3), abs=0.02)
    assert logs["narrow"].actions.std() < logs["feedback"].actions.std()
    # Every row is a step of the environment.
    rows = logs["mixed"]
    some = np.random.default_rng(0).choice(ROWS, 64, replace=False)
    state, out = jax.jit(KS_CONTROL.step)(
        jax.random.key(0), KS_CONTROL.set_observation(rows.observations[some]), rows.actions[some]
    )
    np.testing.assert_allclose(state.observation, rows.next_observations[some], atol=1e-4)
    np.testing.assert_allclose(out.reward, rows.rewards[some], rtol=1e-3, atol=1e-4)
    again, other = ks_narrow(jax.random.key(0), ROWS), ks_narrow(jax.random.key(1), ROWS)
    np.testing.assert_array_equal(again.actions, logs["narrow"].actions)
    assert (other.actions != again.actions).any()


def test_a_log_without_rows_is_refused() -> None:
    for make in (ks_random, ks_feedback, ks_mixed, ks_narrow):
        with pytest.raises(ConfigError, match="whole number"):
            make(jax.random.key(0), 0)
