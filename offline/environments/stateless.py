"""Gymnasium's MuJoCo environments as pure functions of a state that the caller keeps.

The environments of `mujoco` keep their state on the host, so that one batch is alive at a time and
no checkpoint can hold it. Here the whole state of the integrator (time, positions, velocities,
activations, the solver's warm start, in double precision, and where bodies were) goes out with each
step and comes in with the next: any state may be stepped at any time, again, by several seeds side
by side, and after a run was resumed, to the same bits.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import spare_thread
from jaxrl_rollouts.rollouts import StepResult

from .base import Environment, EnvironmentState, observe, own_bounds, proceed, rescale, row_keys
from .mujoco import label_of, make_gymnasium
from .terminations import family, known_rule


class Simulator:
    """One copy of an environment that serves every row: its state is set before each step.

    States are float64 of `size` numbers, seen as uint32 of twice as many, since jax has no float64
    by default. Methods run inside callbacks, so they use numpy only; leading axes are free.
    """

    def __init__(self, env: Any) -> None:
        import mujoco

        self.mujoco: Any = mujoco
        self.env, self.model, self.data = env, env.model, env.data
        kinds = mujoco.mjtState  # pyright: ignore[reportAttributeAccessIssue]
        self.kind = int(kinds.mjSTATE_FULLPHYSICS) | int(kinds.mjSTATE_WARMSTART)
        self.count = self.mujoco.mj_stateSize(self.model, self.kind)
        # Some rewards read, before they step, where bodies were when the last step was computed.
        self.bodies = (self.data.xpos, self.data.xipos)
        self.size = self.count + sum(places.size for places in self.bodies)
        self.width = env.observation_space.shape[0]

    def put(self, state: np.ndarray) -> None:
        """Make `[size]` numbers the simulator's state."""
        self.mujoco.mj_setState(self.model, self.data, state[: self.count], self.kind)
        for places, row in zip(self.bodies, np.split(state[self.count :], 2), strict=True):
            places.flat = row

    def take(self) -> np.ndarray:
        state = np.empty(self.size)
        self.mujoco.mj_getState(self.model, self.data, state[: self.count], self.kind)
        state[self.count :] = np.concatenate([places.ravel() for places in self.bodies])
        return state

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States and observations `[..., S]` of freshly seeded episodes."""
        return self._where(np.ones(np.shape(seeds), bool), seeds)

    def restart(
        self, ended: np.ndarray, seeds: np.ndarray, states: np.ndarray, observations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fresh episodes in the rows that ended; the others as they were."""
        return self._where(np.asarray(ended), seeds, states, observations)

    def _where(self, fresh: np.ndarray, seeds: Any, *before: Any) -> tuple[np.ndarray, np.ndarray]:
        shape = fresh.shape
        states = np.zeros((*shape, 2 * self.size), np.uint32)
        observations = np.zeros((*shape, self.width), np.float32)
        if before:
            states[:], observations[:] = before
        seeds = np.asarray(seeds)
        for row in np.argwhere(fresh).tolist():
            at = tuple(row)
            observations[at] = self.env.reset(seed=int(seeds[at]))[0]
            states[at] = self.take().view(np.uint32)
        return states, observations

    def step(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Next states, observations, rewards and terminations."""
        # Copies: what a callback is given is read-only, and some environments write into it.
        states, actions = np.array(states), np.array(actions)
        shape = actions.shape[:-1]
        observations = np.zeros((*shape, self.width), np.float32)
        rewards, terminated = np.zeros(shape, np.float32), np.zeros(shape, bool)
        for at in np.ndindex(shape):
            self.put(states[at].view(np.float64))
            observations[at], rewards[at], terminated[at], _, _ = self.env.step(actions[at])
            states[at] = self.take().view(np.uint32)
        return states, observations, rewards, terminated

    def positions(self, states: Any) -> tuple[np.ndarray, np.ndarray]:
        """`qpos [N, Q]` and `qvel [N, V]` in double precision of states `[N, ...]`."""
        states = np.ascontiguousarray(states).view(np.float64)  # time, qpos, qvel, ...
        nq, nv = self.model.nq, self.model.nv
        return states[:, 1 : 1 + nq], states[:, 1 + nq : 1 + nq + nv]


@functools.cache
def stateless(name: str) -> Environment:
    """`mujoco/<name>` as an `Environment` whose steps are pure; see this module.

    Its steps equal those of `mujoco_environment` to the bit. The same name gives the same one.
    """
    spare_thread()
    name = name.removeprefix("mujoco/")
    made = make_gymnasium(name)
    env, limit = made.unwrapped, made.spec.max_episode_steps
    host = Simulator(env)
    low, high = env.action_space.low, env.action_space.high

    def ask(method: Any, shapes: Any, *arguments: jax.Array) -> Any:
        return jax.pure_callback(method, shapes, *arguments, vmap_method="broadcast_all")

    def shapes(batch: int) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        return (
            jax.ShapeDtypeStruct((batch, 2 * host.size), jnp.uint32),
            jax.ShapeDtypeStruct((batch, host.width), jnp.float32),
        )

    def seeds(key: jax.Array, batch: int) -> jax.Array:
        return jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(row_keys(key, batch))

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        inner, observation = ask(host.reset, shapes(batch), seeds(key, batch))
        return EnvironmentState(inner, observation, jnp.zeros((batch,), jnp.int32))

    def restart(key: jax.Array, state: EnvironmentState, ended: jax.Array) -> EnvironmentState:
        batch = ended.shape[0]
        before = (state.inner, state.observation)
        inner, observation = ask(host.restart, shapes(batch), ended, seeds(key, batch), *before)
        return EnvironmentState(inner, observation, jnp.where(ended, 0, state.time))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        rows = jax.ShapeDtypeStruct(action.shape[:1], jnp.float32)
        flags = jax.ShapeDtypeStruct(action.shape[:1], bool)
        # Clipped again: the last bit of the rescaling may lie outside.
        scaled = jnp.clip(rescale(action, jnp.asarray(low), jnp.asarray(high)), low, high)
        inner, observation, reward, terminated = ask(
            host.step, (*shapes(action.shape[0]), rows, flags), state.inner, scaled
        )
        return proceed(state, inner, observation, reward, terminated, limit)

    label, version = label_of(made, name)
    return Environment(
        label,
        host.width,
        len(low),
        limit,
        reset,
        step,
        observe,
        termination=known_rule(family(made.spec.id.rsplit("-", 1)[0]), host.width),
        version=version,
        restart=restart,
        positions=host.positions,
        **own_bounds(low, high),
    )
