"""Gymnasium's vector environments: a batch of episodes is stepped by as many as it takes.

Here an episode ends and is not followed by another one, so what the environment does with a
row that ended, its autoreset mode, is left out of returns and of observations:

- `NEXT_STEP`: the row is reset by the next step, whose result is not read.
- `SAME_STEP`: the row is reset at once; the last observation is `info["final_obs"][row]`.
- `DISABLED`: a row that ended is reset before the next step, by `options={"reset_mask": ...}`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError

from .host import Copies, Taken
from .spaces import plain_array

MODES = {"NextStep": "NEXT_STEP", "SameStep": "SAME_STEP", "Disabled": "DISABLED"}


def is_vector(env: Any) -> bool:
    """Whether this is a `gymnasium.vector.VectorEnv`."""
    from gymnasium.vector import VectorEnv

    return isinstance(env, VectorEnv)


class Row:
    """The two spaces of one row, under the names that an environment of one row has."""

    def __init__(self, vector: Any) -> None:
        self.vector = vector

    @property
    def observation_space(self) -> Any:
        return self.vector.single_observation_space

    @property
    def action_space(self) -> Any:
        return self.vector.single_action_space


def mode_of(env: Any, label: str) -> str:
    """The autoreset mode: "NEXT_STEP", "SAME_STEP" or "DISABLED".

    Raises:
        ConfigError: the environment declares none of the three.
    """
    # Gymnasium writes the mode into metadata that all vectors of one class share, so that the
    # vector's own attribute comes first.
    found = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    mode = MODES.get(getattr(found, "value", found))
    if mode is None:
        setting = f'environment {label}: metadata["autoreset_mode"]'
        hint = "gymnasium.vector.AutoresetMode, from Gymnasium 1.1 on, has the three modes"
        raise ConfigError(setting, found, " or ".join(MODES.values()), hint)
    return mode


def singly(env: Any, maker: Callable[[Any], Callable[[], Any]]) -> Callable[[], Any] | None:
    """A function that makes the sub-environments one after the other, over and over, of a vector
    of Gymnasium's own; None of others.

    Args:
        maker: `environment -> function` that makes another one like it.
    """
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    if type(env) not in (AsyncVectorEnv, SyncVectorEnv):
        return None
    # `make_vec` leaves a generator behind, which is used up.
    made = env.env_fns if isinstance(env.env_fns, list | tuple) else map(maker, env.envs)
    functions = itertools.cycle(list(made))
    return lambda: next(functions)()


class Vectors(Copies):
    """The host side of vector environments. Row `i` of a batch is row `i % N` of vector `i // N`.

    Args:
        env: the first vector, of `N` rows.
        another: makes one more.
        max_episode_steps, name: as for `Copies`.

    Raises:
        ConfigError: no autoreset mode is declared.
    """

    def __init__(
        self, env: Any, another: Callable[[], Any], max_episode_steps: int, name: str = ""
    ) -> None:
        super().__init__(env, another, max_episode_steps, name)
        self.count, self.mode = env.num_envs, mode_of(env, name)
        self.seeded = True  # a seed for each row; else one integer for all rows of a vector
        self.over: list[np.ndarray] = []  # rows [N] of each vector that were not reset since

    def space_of(self, env: Any) -> Any:
        """As of `Copies`."""
        return env.single_observation_space

    def probe(self, action: np.ndarray) -> None:
        """Reset the first vector and step it once; finds out which seeds a reset takes."""
        try:
            self.copies[0].reset(seed=[0] * self.count)
        except Exception:  # base class: `seed: int | None`; what else is wrong is found below
            self.seeded = False
        self.start(self.begins([0]))
        list(self.takes([0], action[None]))

    def starts(self, count: int, offset: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """As of `Copies`, of `count` rows."""
        space, rng = self.copies[0].single_action_space, np.random.default_rng(0)
        first = self.begins(range(count))
        actions = rng.uniform(space.low, space.high, (count, len(space.low))).astype(space.dtype)
        self.start(first)
        second = [taken[0] for _, taken in self.takes(list(range(count)), actions)]
        both = np.stack(first) - offset, np.stack(second) - offset
        return both[0].astype(np.float32), both[1].astype(np.float32)

    def begins(self, seeds: Sequence[int]) -> list[np.ndarray]:
        """First observations `[S]` of freshly seeded rows; rows beyond the batch are idle."""
        found: list[np.ndarray] = []
        count = -(-len(seeds) // self.count)
        own = np.resize(np.asarray(seeds, np.int64), (count, self.count)).tolist()
        for vector, env in enumerate(self.rows(count)):
            self._copy = vector * self.count
            given = self._run(-1, env.reset, seed=own[vector] if self.seeded else own[vector][0])
            found += self._observed(-1, given, min(self.count, len(seeds) - len(found)))
        self.over = [np.zeros(self.count, bool) for _ in range(count)]
        return found

    def takes(self, rows: list[int], actions: np.ndarray) -> Iterator[tuple[int, Taken]]:
        """One step of every vector that has a row to be stepped."""
        for vector, own in itertools.groupby(rows, lambda row: row // self.count):
            live = list(own)
            batch = np.resize(
                actions[vector * self.count :][: self.count], (self.count, *actions.shape[1:])
            )
            self._copy = live[0]
            if self.mode == "DISABLED" and self.over[vector].any():
                self._restart(vector, live)
            yield from self._step(vector, live, batch)

    def _step(
        self, vector: int, live: list[int], actions: np.ndarray
    ) -> Iterator[tuple[int, Taken]]:
        at, first = int(self.time[live[0]]), vector * self.count
        given = self._run(at, self.copies[vector].step, actions)
        if not isinstance(given, tuple) or len(given) != 5:
            self._wrong(at, given, "5 values: observation, reward, terminated, truncated, info")
        observation, *numbers, info = given
        seen = self._flat(at, observation, self.count)
        reward, terminated, truncated = (
            self._column(at, name, values)
            for name, values in zip(("reward", "terminated", "truncated"), numbers, strict=True)
        )
        # Idle rows may end as well; vectors without autoreset must not step them on.
        self.over[vector] |= np.asarray(terminated, bool) | np.asarray(truncated, bool)
        for row in live:
            self._copy, here = row, row - first
            earned = self._number(at, "reward", reward[here])
            ends = bool(self._number(at, "terminated", terminated[here]))
            cut = bool(self._number(at, "truncated", truncated[here]))
            begun = (ends or cut) and self.mode == "SAME_STEP"
            last = self._last(at, info, here) if begun else seen[here]
            yield row, (self._finite(at, last), earned, ends, cut)

    def _restart(self, vector: int, live: list[int]) -> None:
        """Reset the rows that ended, and no other."""
        at, mask = int(self.time[live[0]]), self.over[vector].copy()
        given = self._run(at, self.copies[vector].reset, options={"reset_mask": mask})
        seen = self._observed(at, given, self.count)
        for row in live:
            if not np.array_equal(seen[row % self.count], self.observations[row]):
                self._copy = row
                expected = 'a reset of the rows in options["reset_mask"] only'
                raise self.fail(at, "another observation after a reset of other rows", expected)
        self.over[vector][:] = False

    def _observed(self, at: int, given: Any, count: int) -> list[np.ndarray]:
        """Observations of the first `count` rows after a reset."""
        if not isinstance(given, tuple) or len(given) != 2:
            self._wrong(at, given, "2 values: observation and info")
        return [self._finite(at, row) for row in self._flat(at, given[0], self.count)[:count]]

    def _column(self, at: int, name: str, values: Any) -> np.ndarray:
        try:
            column = plain_array(values)
        except ValueError as error:
            raise self.fail(at, f"{name}: {error}", f"{self.count} numbers") from error
        if column.shape != (self.count,):
            raise self.fail(at, f"{name}: shape {column.shape}", f"{self.count} numbers")
        return column

    def _last(self, at: int, info: Any, row: int) -> np.ndarray:
        """The last observation of a row that was reset in the step that ended it."""
        try:
            final = info["final_obs"][row]
        except (KeyError, IndexError, TypeError):
            final = None
        if final is None:
            expected = f'info["final_obs"][{row}], as SAME_STEP has it'
            raise self.fail(at, "no last observation of a row that ended", expected)
        return self._flat(at, final)
