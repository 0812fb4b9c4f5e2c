"""Any Gymnasium environment as pure functions of a state that the caller keeps.

A state is the seed of its episode and the actions so far. A simulator that has just been there is
stepped on; any other is reset with the seed and given the actions again. So a training can be cut
and resumed, and several seeds act side by side, in environments whose steps follow from the seed
and the actions, as Gymnasium has it. Those whose steps do not are found when they are replayed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import spare_thread
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import StepResult

from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    proceed,
    rescale,
    row_keys,
    with_columns,
)
from .gymnasium_ import named
from .host import Copies
from .offset import shifted
from .stateless import stateless


class Played(NamedTuple):
    """What leads to a state: `seed` `[B]` uint32 of the reset, `actions` `[B, T, A]` in the
    environment's units, of which the first `time` were taken."""

    seed: jax.Array
    actions: jax.Array


class _Live:
    """Copy number `row` and where it is: `time` steps after its seed, by the first of `actions`."""

    def __init__(self, row: int, actions: np.ndarray) -> None:
        self.row, self.actions = row, actions
        self.seed, self.time, self.observation = -1, 0, np.zeros(0)

    def is_at(self, seed: int, actions: np.ndarray) -> bool:
        here = seed == self.seed and len(actions) == self.time
        return here and np.array_equal(actions, self.actions[: self.time])


class Replays:
    """The host side. Methods run inside callbacks, so they use numpy only."""

    def __init__(self, copies: Copies, offset: Any = 0.0) -> None:
        self.copies, self.offset = copies, offset
        self.live: dict[int, list[_Live]] = {}  # by the number of rows: of training and of looks

    def begin(self, live: _Live, seed: int) -> np.ndarray:
        """The first observation `[S]` of an episode."""
        live.seed, live.time = seed, 0
        live.observation = self.copies.begin(live.row, seed)
        return live.observation

    def bring(self, live: _Live, seed: int, actions: np.ndarray, shown: np.ndarray) -> None:
        """Put a simulator where these actions led, which showed this observation."""
        if live.is_at(seed, actions):
            return
        self.begin(live, seed)
        for action in actions:
            self.advance(live, action)
        if not np.array_equal(self.shown(live.observation), shown):
            raise self.copies.fail(
                len(actions),
                "another observation when seed and actions were given again",
                "steps that follow from them (self.np_random in place of other random numbers)",
            )

    def advance(self, live: _Live, action: np.ndarray) -> tuple[float, bool, bool]:
        """One step: reward, terminated, truncated."""
        taken = np.array(action)  # some environments write into what they are given
        found = self.copies.take(live.row, taken, live.time)
        live.observation, reward, terminated, truncated = found
        live.actions[live.time], live.time = action, live.time + 1
        return reward, terminated, truncated

    def shown(self, observation: np.ndarray) -> np.ndarray:
        return np.asarray(observation - self.offset, np.float32)

    def rows(self, count: int) -> list[_Live]:
        """As many simulators, made where there are fewer."""
        pool = self.live.setdefault(count, [])
        for _ in range(count - len(pool)):
            made = sum(map(len, self.live.values()))
            env = self.copies.rows(made + 1)[-1]
            shape = (self.copies.limit, *env.action_space.shape)
            pool.append(_Live(made, np.zeros(shape, np.float32)))
        return pool

    def reset(self, ended: np.ndarray, seeds: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """Observations `[..., S]`, of fresh episodes in the rows that ended."""
        found, pool = np.array(observations), self.rows(ended.size)
        for row, at in enumerate(np.ndindex(ended.shape)):
            if ended[at]:
                found[at] = self.shown(self.begin(pool[row], int(seeds[at])))
        return found

    def step(
        self,
        seeds: np.ndarray,
        taken: np.ndarray,
        time: np.ndarray,
        observations: np.ndarray,
        actions: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Observations, rewards, terminations and truncations after one more action."""
        found, shape, pool = np.array(observations), np.shape(seeds), self.rows(np.size(seeds))
        rewards, flags = np.zeros(shape, np.float32), np.zeros((2, *shape), bool)
        for row, at in enumerate(np.ndindex(shape)):
            done = np.asarray(taken[at])[: int(time[at])]
            self.bring(pool[row], int(seeds[at]), done, np.asarray(observations[at]))
            rewards[at], flags[0][at], flags[1][at] = self.advance(pool[row], actions[at])
            found[at] = self.shown(pool[row].observation)
        return found, rewards, flags[0], flags[1]


def replayed(env: Environment, offset: tuple[float, ...] = ()) -> Environment:
    """An environment of `from_gymnasium` whose state can be kept; see this module.

    Args:
        offset: `[S]`, subtracted from observations before float32 is taken.

    Raises:
        ConfigError: simulators of another kind, whose copies nothing makes.
    """
    if env.another is None:
        hint = (
            "its state can be kept in no checkpoint; of a vector environment, give a function that "
            "makes one sub-environment"
        )
        raise ConfigError("environment", env.name, "one of Gymnasium, gymnax, brax or jax", hint)
    spare_thread()
    limit, size, acts = env.max_episode_steps, env.observation_size, env.action_size
    first = env.another()
    copies = Copies(first, env.another, limit, env.name)
    host = Replays(copies, np.asarray(offset) if offset else 0.0)
    low = jnp.asarray(env.action_low or (-1.0,) * acts, jnp.float32)
    high = jnp.asarray(env.action_high or (1.0,) * acts, jnp.float32)

    def ask(method: Any, shapes: Any, *arguments: jax.Array) -> Any:
        return jax.pure_callback(method, shapes, *arguments, vmap_method="broadcast_all")

    def restart(key: jax.Array, state: EnvironmentState, ended: jax.Array) -> EnvironmentState:
        fresh = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))
        seeds = fresh(row_keys(key, len(ended)))
        shape = jax.ShapeDtypeStruct((len(ended), size), jnp.float32)
        observation = ask(host.reset, shape, ended, seeds, state.observation)
        played = Played(jnp.where(ended, seeds, state.inner.seed), state.inner.actions)
        return EnvironmentState(played, observation, jnp.where(ended, 0, state.time))

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        nothing = Played(jnp.zeros(batch, jnp.uint32), jnp.zeros((batch, limit, acts), jnp.float32))
        return restart(key, begin(nothing, jnp.zeros((batch, size))), jnp.ones(batch, bool))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        batch = action.shape[0]
        flags, row = jax.ShapeDtypeStruct((batch,), bool), jnp.float32
        numbers = jax.ShapeDtypeStruct((batch,), row)
        shapes = (jax.ShapeDtypeStruct((batch, size), row), numbers, flags, flags)
        # Clipped again: the last bit of the rescaling may lie outside.
        scaled = jnp.clip(rescale(action, low, high), low, high)
        seed, taken = state.inner
        observation, reward, terminated, cut = ask(
            host.step, shapes, seed, taken, state.time, state.observation, scaled
        )
        taken = taken.at[jnp.arange(batch), state.time].set(scaled, mode="drop")
        played = Played(seed, taken)
        following, out = proceed(state, played, observation, reward, terminated, limit)
        return following, out._replace(truncated=out.truncated | (cut & ~terminated))

    return env._replace(
        reset=reset,
        step=step,
        observe=observe,
        restart=restart,
        host=False,
        failure=copies.failure,
        starts=functools.partial(copies.starts, offset=host.offset),
        columns=named(first) or (),
        offset=offset,
        less=functools.partial(replayed, env),
    )


def keeping(env: Environment) -> Environment:
    """The same simulator with a state that the caller keeps, for trainings that are resumed.

    Raises:
        ConfigError: one whose state cannot be kept.
    """
    if not env.host:
        return env
    kept = stateless(env.name) if env.name.startswith("mujoco/") else replayed(env)
    if env.columns and kept.columns:
        kept = with_columns(kept, env.columns)
    return shifted(kept, env.offset or None)
