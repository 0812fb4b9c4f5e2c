from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax")

from jaxrl_rollouts.offline.collect import random_policy  # noqa: E402
from jaxrl_rollouts.offline.environments import as_model, make  # noqa: E402
from jaxrl_rollouts.rollouts import Trajectory, rollout  # noqa: E402


def play(name: str, batch: int, horizon: int) -> Trajectory:
    env = make(name)

    @jax.jit
    def run(key: jax.Array) -> Trajectory:
        start, policy = env.reset(key, batch), random_policy(env.action_size)
        return rollout(as_model(env), None, start, key, horizon=horizon, policy=policy)

    return run(jax.random.key(0))


@pytest.mark.parametrize(
    "backend", ["spring", *(pytest.param(b, marks=pytest.mark.slow) for b in ("positional", "mjx"))]
)
def test_inverted_pendulum_falls_and_terminates(backend: str) -> None:
    played = play(f"brax/inverted_pendulum?backend={backend}", 16, 300)
    steps, last, rows = played.steps, played.lengths - 1, jnp.arange(16)
    assert (played.lengths < 300).all(), "a random policy cannot balance"
    assert steps.terminations[last, rows].all() and not steps.truncations.any()
    assert (jnp.abs(steps.next_observations[last, rows, 1]) > 0.2).all()
    np.testing.assert_array_equal(steps.rewards.sum(0), played.lengths)
    follows = np.asarray(played.valid[1:])
    np.testing.assert_array_equal(
        np.asarray(steps.next_observations[:-1])[follows],
        np.asarray(steps.observations[1:])[follows],
    )


def test_facts_about_the_environment() -> None:
    env = make("brax/inverted_pendulum", backend="spring")
    assert (env.observation_size, env.action_size, env.max_episode_steps) == (4, 1, 1000)
    assert "brax" in env.version and "spring" in env.version
    assert not env.host


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["spring", "mjx"])
def test_halfcheetah_runs_without_terminating(backend: str) -> None:
    played = play(f"brax/halfcheetah?backend={backend}", 4, 20)
    assert played.lengths.tolist() == [20] * 4
    assert played.steps.observations.shape == (20, 4, 17)
    assert np.isfinite(played.steps.next_observations).all()
