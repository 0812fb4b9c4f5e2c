"""Simulators that live outside the compiled program, driven from inside the one compiled rollout.

A state carries the observations, a clock per row and a stamp of the reset it came from; each step
is an ordered callback. So a state is good for one step only: stepping an old one (after another
reset, or twice) raises instead of giving wrong data.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxrl_rollouts.devices import spare_thread
from jaxrl_rollouts.errors import SimulatorError, one_line
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
from .spaces import flatten, plain_array

Taken = tuple[np.ndarray, float, bool, bool]  # observation [S], reward, terminated, truncated


class _Quiet(logging.Filter):
    """jax logs what a callback raises with its traceback; these are named in one line instead."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(raised, SimulatorError | KeyboardInterrupt)


logging.getLogger("jax._src.callback").addFilter(_Quiet())


class Copies:
    """The host side: as many copies of one Gymnasium environment as the last reset requested.

    Methods run inside callbacks, so they use numpy only; a jax call here could deadlock. Whatever
    a simulator returns is checked as a file is: how many values, their shapes, and that they are
    finite.

    Args:
        env: the first copy.
        another: makes one more.
        max_episode_steps: rows are not stepped beyond it.
        name: for messages.
    """

    def __init__(
        self, env: Any, another: Callable[[], Any], max_episode_steps: int, name: str = ""
    ) -> None:
        self.copies, self.another = [env], another
        self.space, self.name = self.space_of(env), name
        self.limit = max_episode_steps
        self.stamp = self._copy = 0
        self._failure: SimulatorError | None = None

    def space_of(self, env: Any) -> Any:
        """The space of one row's observations."""
        return env.observation_space

    def failure(self) -> SimulatorError | None:
        """What went wrong since this was last called."""
        failure, self._failure = self._failure, None
        return failure

    def start(
        self, observations: Sequence[np.ndarray], offset: Any = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Take these observations for the beginning of episodes; `[B, S]` and stamps `[B]`."""
        count = len(observations)
        self.observations = np.stack(observations).astype(np.float64)
        self.time, self.done = np.zeros(count, np.int32), np.zeros(count, bool)
        self.stamp += 1
        return _float32(self.observations - offset), np.full(count, self.stamp, np.int32)

    def rows(self, count: int) -> list[Any]:
        """The first `count` copies, made where there are fewer."""
        while len(self.copies) < count:
            self._copy = len(self.copies)
            self.copies.append(self._run(-1, self.another))
        return self.copies[:count]

    def starts(self, count: int, offset: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Observations that episodes begin with and those a random action later, `[count, S]` each;
        the same ones every time."""
        space, rng, seen = self.copies[0].action_space, np.random.default_rng(0), []
        for seed in range(count):
            first = self.begin(0, seed)
            action = rng.uniform(space.low, space.high).astype(space.dtype)
            seen.append((first, self.take(0, action, 0)[0]))
        first, second = (_float32(np.stack(x) - offset) for x in zip(*seen, strict=True))
        return first, second

    def reset(self, seeds: np.ndarray, offset: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Observations `[B, S]` and stamps `[B]` of freshly seeded episodes."""
        return self.start(self.begins(np.asarray(seeds).tolist()), offset)

    def begins(self, seeds: Sequence[int]) -> list[np.ndarray]:
        """First observations `[S]` of freshly seeded episodes, one a row."""
        self.rows(len(seeds))
        return [self.begin(row, seed) for row, seed in enumerate(seeds)]

    def step(
        self, actions: np.ndarray, stamps: np.ndarray, time: np.ndarray, offset: Any = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards, terminations, truncations; rows that are done stay as they are."""
        # A copy: what a callback is given is read-only, and some environments write into it.
        actions, stamps, time = np.array(actions), np.asarray(stamps), np.asarray(time)
        live = ~self.done[: len(stamps)]
        if (stamps != self.stamp).any() or (time != self.time)[live].any():
            raise RuntimeError("this host state was already stepped, or reset since: reset again")
        rewards = np.zeros(len(live), np.float32)
        terminated, truncated = np.zeros(len(live), bool), np.zeros(len(live), bool)
        for row, taken in self.takes(np.flatnonzero(live).tolist(), actions):
            self.observations[row], rewards[row], terminated[row], truncated[row] = taken
        self.time += live
        self.done |= terminated | truncated | (self.time >= self.limit)
        return _float32(self.observations - offset), rewards, terminated, truncated

    def takes(self, rows: list[int], actions: np.ndarray) -> Iterator[tuple[int, Taken]]:
        """One step of each of these rows; `actions` `[B, A]` are those of the whole batch."""
        for row in rows:
            yield row, self.take(row, actions[row], int(self.time[row]))

    def take(self, row: int, action: np.ndarray, at: int) -> Taken:
        """One step of one copy: observation `[S]` float64, reward and the two flags, checked.

        Raises:
            SimulatorError: it raised, or gave what is no step.
        """
        self._copy = row
        given = self._run(at, self.copies[row].step, action)
        if not isinstance(given, tuple) or len(given) != 5:
            self._wrong(at, given, "5 values: observation, reward, terminated, truncated, info")
        observation, reward, terminated, truncated, _ = given
        reward = self._number(at, "reward", reward)
        flags = [
            bool(self._number(at, name, flag))
            for name, flag in (("terminated", terminated), ("truncated", truncated))
        ]
        return self._seen(at, observation), reward, flags[0], flags[1]

    def probe(self, action: np.ndarray) -> None:
        """Reset the first copy and step it once; raises as `take`."""
        self.begin(0, 0)
        self.take(0, action, 0)

    def begin(self, row: int, seed: int) -> np.ndarray:
        """The first observation `[S]` float64 of a seeded episode of one copy, checked."""
        self._copy = row
        given = self._run(-1, self.copies[row].reset, seed=seed)
        if not isinstance(given, tuple) or len(given) != 2:
            self._wrong(-1, given, "2 values: observation and info")
        return self._seen(-1, given[0])

    def _run(self, at: int, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `sys.exit` and its like would end the training
            found = f"{type(error).__name__}: {one_line(error)}"
            raise self.fail(at, found, "no exception") from error

    def _seen(self, at: int, observation: Any) -> np.ndarray:
        return self._finite(at, self._flat(at, observation))

    def _flat(self, at: int, observation: Any, rows: int = 0) -> np.ndarray:
        """An observation as columns `[S]`, or those of `rows` rows as `[rows, S]`."""
        try:
            flat = flatten(self.space, observation, bool(rows))
            if flat.dtype.kind not in "fiub":
                raise ValueError(f"dtype {flat.dtype}")
            if rows and len(flat) != rows:
                raise ValueError(f"{len(flat)} rows")
            return flat.astype(np.float64)
        except Exception as error:  # a part of its own class may raise anything
            kind = f"{type(self.space).__name__} {self.space.shape or ''}".strip()
            expected = f"{rows} observations of {kind}" if rows else f"an observation of {kind}"
            raise self.fail(at, f"observation: {one_line(error)}", expected) from error

    def _finite(self, at: int, flat: np.ndarray) -> np.ndarray:
        finite = np.isfinite(_float32(flat))
        if not finite.all():
            entry = int(np.flatnonzero(~finite)[0])
            found = f"{flat[entry]} in entry {entry} of the observation"
            raise self.fail(at, found, "finite numbers, as float32 has them")
        return flat

    def _number(self, at: int, name: str, value: Any) -> float:
        """A number, or an array of one."""
        try:
            array = plain_array(np.nan if value is None else value)
        except ValueError as error:
            raise self.fail(at, f"{name}: {one_line(error)}", "one number") from error
        if value is None or array.size != 1 or array.dtype.kind not in "fiub":
            what = "None" if value is None else f"shape {array.shape}, dtype {array.dtype}"
            raise self.fail(at, f"{name}: {what}", "one number")
        number = float(array.reshape(()))
        if not np.isfinite(_float32(np.asarray(number))):
            raise self.fail(at, f"{name} {number:g}", "a finite number")
        return number

    def _wrong(self, at: int, given: Any, expected: str) -> NoReturn:
        many = f"{len(given)} values" if isinstance(given, tuple) else type(given).__name__
        raise self.fail(at, many, expected)

    def fail(self, at: int, found: str, expected: str) -> SimulatorError:
        """The error to raise, which is kept for `failure`."""
        self._failure = SimulatorError(self.name, self._copy, at, found, expected)
        return self._failure


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # infinities are checked elsewhere
        return values.astype(np.float32)


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
    offset: tuple[float, ...] = (),
    **known: Any,
) -> Environment:
    """An `Environment` of copies on the host. One batch is alive at a time: a reset ends the last.

    Args:
        low, high: `[A]`, bounds that actions in [-1, 1] are rescaled to.
        offset: `[S]`, subtracted from observations before float32 is taken.
    """
    spare_thread()
    host.name = name
    given = host, name, observation_size, low, high, version
    less = {"offset": np.asarray(offset) if offset else 0.0}
    begins = functools.partial(host.reset, **less)
    advances = functools.partial(host.step, **less)

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        seeds = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(row_keys(key, batch))
        return enter(begins, observation_size, batch, seeds)

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
            advances, result, scaled, state.inner, state.time, ordered=True
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
        starts=functools.partial(host.starts, **less),
        failure=host.failure,
        offset=offset,
        less=lambda offset: host_environment(*given, offset, **known),
        **own_bounds(low, high),
        **known,
    )
