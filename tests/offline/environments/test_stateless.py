"""MuJoCo as a pure function: the bits of the simulator that keeps its state, from any state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.base import Environment, restart
from jaxrl_rollouts.offline.environments.stateless import stateless

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

ROWS, STEPS = 2, 12
ACTIONS = jax.random.uniform(jax.random.key(7), (STEPS, ROWS, 2), minval=-1, maxval=1)


def walked(env: Environment, key: jax.Array, actions: jax.Array) -> tuple[Any, Any]:
    def step(state: Any, action: jax.Array) -> tuple[Any, Any]:
        state, out = env.step(key, state, action)
        return state, (state.observation, out.reward, out.terminated, out.truncated)

    return jax.jit(lambda: jax.lax.scan(step, env.reset(key, ROWS), actions))()


@pytest.mark.parametrize("name", ["Hopper-v4", "Reacher-v4", "HalfCheetah-v4"])
def test_steps_are_those_of_the_simulator_that_remembers(name: str) -> None:
    pure, kept = stateless(name), make(f"mujoco/{name}")
    assert not pure.host and kept.host and pure.name == kept.name and pure.version == kept.version
    actions = jnp.tile(ACTIONS, 3)[:, :, : pure.action_size]
    (_, seen), (_, known) = (walked(env, jax.random.key(3), actions) for env in (pure, kept))
    live = ~np.cumsum(np.asarray(known[2]), 0).astype(bool)  # the other stops at an ending
    for ours, theirs in zip(seen, known, strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[live], np.asarray(theirs)[live])
    assert np.asarray(seen[1]).std() > 0


def test_any_state_can_be_stepped_again_and_seeds_go_side_by_side() -> None:
    env, key = stateless("Reacher-v4"), jax.random.key(0)
    step = jax.jit(lambda state, action: env.step(key, state, action))
    start = env.reset(key, ROWS)
    first, out = step(start, ACTIONS[0])
    step(first, ACTIONS[1])
    again, same = step(start, ACTIONS[0])
    jax.tree.map(np.testing.assert_array_equal, (first, out), (again, same))
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), start, first)
    side, _ = jax.jit(jax.vmap(lambda s, a: env.step(key, s, a)))(both, ACTIONS[:2])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), side, first)
    assert (np.asarray(side.observation[1]) != np.asarray(first.observation)).any()


def test_fresh_episodes_begin_where_others_ended_and_nowhere_else() -> None:
    env, key = stateless("Reacher-v4"), jax.random.key(1)
    state, _ = env.step(key, env.reset(key, ROWS), ACTIONS[0])
    after = restart(env, jax.random.key(2), state, jnp.array([True, False]))
    assert after.time.tolist() == [0, 1]
    np.testing.assert_array_equal(after.inner[1], state.inner[1])
    fresh = env.reset(jax.random.key(2), ROWS)
    np.testing.assert_array_equal(after.observation[0], fresh.observation[0])


def test_positions_and_velocities_are_enough_to_come_back() -> None:
    env, kept = stateless("HalfCheetah-v4"), make("mujoco/HalfCheetah-v4")
    state, _ = walked(env, jax.random.key(5), jnp.tile(ACTIONS, 3))
    assert env.positions is not None and kept.reset_to is not None
    qpos, qvel = env.positions(state.inner)
    assert qpos.dtype == np.float64 and qpos.shape == qvel.shape == (ROWS, 9)
    back = kept.reset_to(jnp.asarray(qpos), jnp.asarray(qvel))
    np.testing.assert_allclose(back.observation, state.observation, rtol=1e-5, atol=1e-6)
