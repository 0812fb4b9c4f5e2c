"""Gymnasium's MuJoCo environments on the host, driven from inside the one compiled rollout.

The simulators live outside the program. A state carries the observations, a clock per row and a
stamp of the reset it came from; each step is an ordered callback. So a state is good for one step
only: stepping an old one (after another reset, or twice) raises instead of giving wrong data.
"""

from __future__ import annotations

import copy
import importlib.metadata
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.rollouts import StepOutcome

from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    own_bounds,
    proceed,
    rescale,
    row_keys,
    unknown_name,
)
from .terminations import FAMILIES, family

# Observations that are (qpos without `skipped` leading entries, qvel) unclipped: they determine
# the state up to a translation the dynamics do not see.
SKIPPED_POSITIONS = {"halfcheetah": 1, "invertedpendulum": 0}


class Simulators:
    """The host side: as many copies of one environment as the last reset asked for.

    Methods run inside callbacks, so they use numpy only; a jax call here could deadlock.
    """

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        self.copies = [env]
        self.limit = max_episode_steps
        self.stamp = 0

    def _start(self, observations: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        count = len(observations)
        self.observations = np.stack(observations).astype(np.float32)
        self.time, self.done = np.zeros(count, np.int32), np.zeros(count, bool)
        self.stamp += 1
        return self.observations.copy(), np.full(count, self.stamp, np.int32)

    def _rows(self, count: int) -> list[Any]:
        import mujoco

        while len(self.copies) < count:
            twin = copy.copy(self.copies[0])  # shares the compiled model, which is constant
            twin.data = mujoco.MjData(twin.model)  # pyright: ignore[reportAttributeAccessIssue]
            self.copies.append(twin)
        return self.copies[:count]

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations `[B, S]` and stamps `[B]` of freshly seeded episodes."""
        seeds = np.asarray(seeds).tolist()
        rows = self._rows(len(seeds))
        return self._start([env.reset(seed=s)[0] for env, s in zip(rows, seeds, strict=True)])

    def reset_to(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same from given positions and velocities."""
        import mujoco

        qpos, qvel = np.asarray(qpos, np.float64), np.asarray(qvel, np.float64)
        observations = []
        for env, position, velocity in zip(self._rows(len(qpos)), qpos, qvel, strict=True):
            mujoco.mj_resetData(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]
            env.set_state(position, velocity)
            observations.append(env._get_obs())
        return self._start(observations)

    def step(
        self, actions: np.ndarray, stamps: np.ndarray, time: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards and terminations; rows that are done stay as they are."""
        actions, stamps, time = np.asarray(actions), np.asarray(stamps), np.asarray(time)
        live = ~self.done[: len(stamps)]
        if (stamps != self.stamp).any() or (time != self.time)[live].any():
            raise RuntimeError("this host state was already stepped, or reset since: reset again")
        rewards, terminated = np.zeros(len(live), np.float32), np.zeros(len(live), bool)
        for row in np.flatnonzero(live).tolist():
            observation, rewards[row], terminated[row], _, _ = self.copies[row].step(actions[row])
            self.observations[row] = observation
        self.time += live
        self.done |= terminated | (self.time >= self.limit)
        return self.observations.copy(), rewards, terminated


def _make(name: str) -> Any:
    try:
        import gymnasium
        import mujoco  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "MuJoCo environments", error.name or "gymnasium", "mujoco"
        ) from error
    known = [key for key, spec in gymnasium.registry.items() if "mujoco" in str(spec.entry_point)]
    if name not in known and name.endswith("-v4") and f"{name[:-1]}5" in known:
        name = f"{name[:-1]}5"  # later Gymnasiums may drop version 4
    if name not in known:
        raise unknown_name(f"mujoco/{name}", [f"mujoco/{k}" for k in known if k[-1] in "45"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # version 4 is what D4RL-like data come from
            return gymnasium.make(name, disable_env_checker=True)
    except ImportError as error:
        found = str(error).splitlines()[0]
        raise ConfigError(f"environment mujoco/{name}", found, "version 4 or 5") from error


def mujoco_environment(name: str) -> Environment:
    """`mujoco/<name>` as a host `Environment`; `HalfCheetah-v4`, say (v5 where v4 is gone).

    Each call has simulators of its own. One batch is alive at a time: a reset ends the last.

    Raises:
        MissingExtraError: gymnasium or mujoco is not installed.
        ConfigError: not one of this Gymnasium's MuJoCo environments.
    """
    made = _make(name)
    name, env = made.spec.id, made.unwrapped
    low, high = env.action_space.low, env.action_space.high
    size, limit = env.observation_space.shape[0], made.spec.max_episode_steps
    host = Simulators(env, limit)

    def shapes(batch: int) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        return (
            jax.ShapeDtypeStruct((batch, size), jnp.float32),
            jax.ShapeDtypeStruct((batch,), jnp.int32),
        )

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        seeds = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(row_keys(key, batch))
        observation, stamp = io_callback(host.reset, shapes(batch), seeds, ordered=True)
        return begin(stamp, observation)

    def reset_to(qpos: jax.Array, qvel: jax.Array) -> EnvironmentState:
        result = shapes(qpos.shape[0])
        observation, stamp = io_callback(host.reset_to, result, qpos, qvel, ordered=True)
        return begin(stamp, observation)

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepOutcome]:
        batch = action.shape[0]
        row = jax.ShapeDtypeStruct((batch,), jnp.float32)
        result = (shapes(batch)[0], row, jax.ShapeDtypeStruct((batch,), bool))
        observation, reward, terminated = io_callback(
            host.step, result, rescale(action, low, high), state.inner, state.time, ordered=True
        )
        return proceed(state, state.inner, observation, reward, terminated, limit)

    kind = family(name.rsplit("-", 1)[0])
    skipped = SKIPPED_POSITIONS.get(kind)

    def set_observation(observation: jax.Array) -> EnvironmentState:
        origin = jnp.zeros((observation.shape[0], skipped), observation.dtype)
        split = env.model.nq - skipped
        qpos = jnp.concatenate([origin, observation[:, :split]], 1)
        return reset_to(qpos, observation[:, split:])

    packages = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("gymnasium", "mujoco"))
    return Environment(
        f"mujoco/{name}",
        size,
        env.action_space.shape[0],
        limit,
        reset,
        step,
        observe,
        termination=FAMILIES.get(kind),
        reset_to=reset_to,
        version=f"{name}, {packages}",
        set_observation=None if skipped is None else set_observation,
        host=True,
        **own_bounds(low, high),
    )
