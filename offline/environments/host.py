"""Simulators that live outside the compiled program, driven from inside the one compiled rollout.

A state carries the observations, a clock per row and a stamp of the reset it came from; each step
is an ordered callback. So a state is good for one step only: stepping an old one (after another
reset, or twice) raises instead of giving wrong data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxrl_rollouts.devices import spare_thread
from jaxrl_rollouts.rollouts import StepResult

from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    own_bounds,
    proceed,
    rescale,
    row_keys,
)


class Copies:
    """The host side: as many copies of one Gymnasium environment as the last reset asked for.

    Methods run inside callbacks, so they use numpy only; a jax call here could deadlock.

    Args:
        env: the first copy.
        another: makes one more.
        max_episode_steps: rows are not stepped beyond it.
    """

    def __init__(self, env: Any, another: Callable[[], Any], max_episode_steps: int) -> None:
        self.copies, self.another = [env], another
        self.limit = max_episode_steps
        self.stamp = 0

    def start(self, observations: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Take these observations for the beginning of episodes; `[B, S]` and stamps `[B]`."""
        count = len(observations)
        self.observations = np.stack(observations).astype(np.float32)
        self.time, self.done = np.zeros(count, np.int32), np.zeros(count, bool)
        self.stamp += 1
        return self.observations.copy(), np.full(count, self.stamp, np.int32)

    def rows(self, count: int) -> list[Any]:
        """The first `count` copies, made where there are fewer."""
        while len(self.copies) < count:
            self.copies.append(self.another())
        return self.copies[:count]

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations `[B, S]` and stamps `[B]` of freshly seeded episodes."""
        seeds = np.asarray(seeds).tolist()
        rows = self.rows(len(seeds))
        return self.start([env.reset(seed=s)[0] for env, s in zip(rows, seeds, strict=True)])

    def step(
        self, actions: np.ndarray, stamps: np.ndarray, time: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards, terminations, truncations; rows that are done stay as they are."""
        # A copy: what a callback is given is read-only, and some environments write into it.
        actions, stamps, time = np.array(actions), np.asarray(stamps), np.asarray(time)
        live = ~self.done[: len(stamps)]
        if (stamps != self.stamp).any() or (time != self.time)[live].any():
            raise RuntimeError("this host state was already stepped, or reset since: reset again")
        rewards = np.zeros(len(live), np.float32)
        terminated, truncated = np.zeros(len(live), bool), np.zeros(len(live), bool)
        for row in np.flatnonzero(live).tolist():
            seen, rewards[row], terminated[row], truncated[row], _ = self.copies[row].step(
                actions[row]
            )
            self.observations[row] = seen
        self.time += live
        self.done |= terminated | truncated | (self.time >= self.limit)
        return self.observations.copy(), rewards, terminated, truncated


def enter(
    host: Callable[..., Any], size: int, batch: int, *arguments: jax.Array
) -> EnvironmentState:
    """The state after a callback that begins `batch` episodes."""
    result = (
        jax.ShapeDtypeStruct((batch, size), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
    )
    observation, stamp = io_callback(host, result, *arguments, ordered=True)
    return begin(stamp, observation)


def host_environment(
    host: Copies,
    name: str,
    observation_size: int,
    low: np.ndarray,
    high: np.ndarray,
    version: str,
    **known: Any,
) -> Environment:
    """An `Environment` of copies on the host. One batch is alive at a time: a reset ends the last.

    Args:
        host: the copies.
        name: as `make` knows it.
        observation_size: `S`.
        low, high: `[A]`, bounds that actions in [-1, 1] are rescaled to.
        version: packages and versions.
        **known: fields of `Environment` that not every simulator has.
    """
    spare_thread()

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        seeds = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(row_keys(key, batch))
        return enter(host.reset, observation_size, batch, seeds)

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        batch = action.shape[0]
        flags = jax.ShapeDtypeStruct((batch,), bool)
        result = (
            jax.ShapeDtypeStruct((batch, observation_size), jnp.float32),
            jax.ShapeDtypeStruct((batch,), jnp.float32),
            flags,
            flags,
        )
        # Clipped again: the last bit of the rescaling may lie outside, and some spaces mind.
        scaled = jnp.clip(rescale(action, jnp.asarray(low), jnp.asarray(high)), low, high)
        observation, reward, terminated, cut = io_callback(
            host.step, result, scaled, state.inner, state.time, ordered=True
        )
        following, out = proceed(state, state.inner, observation, reward, terminated, host.limit)
        return following, out._replace(truncated=out.truncated | (cut & ~terminated))

    return Environment(
        name,
        observation_size,
        len(low),
        host.limit,
        reset,
        step,
        observe,
        version=version,
        host=True,
        **own_bounds(low, high),
        **known,
    )
