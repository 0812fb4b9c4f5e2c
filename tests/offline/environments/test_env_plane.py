from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments import as_model, true_model
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.rollouts import rollout


def test_dynamics_and_reward_are_the_stated_ones() -> None:
    state = PLANE.set_observation(jnp.array([[6.0, 7.5], [0.0, 0.0]]))
    action = jnp.array([[1.0, -0.5], [3.0, -9.0]])
    following, out = PLANE.step(jax.random.key(0), state, action)
    np.testing.assert_allclose(following.observation, [[7.0, 7.0], [1.0, -1.0]])
    np.testing.assert_allclose(out.reward, [1.0, np.exp(-(36 + 64) / 18)], rtol=1e-6)
    known = PLANE.reward(state.observation, action, following.observation)
    np.testing.assert_allclose(known, out.reward)


def test_true_model_equals_the_environment() -> None:
    start = PLANE.reset(jax.random.key(0), 64)
    arguments = {"horizon": 30, "policy": random_policy(2)}
    own = rollout(as_model(PLANE), None, start, jax.random.key(1), **arguments)
    model = rollout(true_model(PLANE), None, start.observation, jax.random.key(1), **arguments)
    for mine, true in zip(jax.tree.leaves(model.steps), jax.tree.leaves(own.steps), strict=True):
        np.testing.assert_array_equal(mine, true)
    assert own.steps.truncations[-1].all() and not own.steps.terminations.any()
