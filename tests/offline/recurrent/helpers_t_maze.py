"""The endless T-maze: every corridor's cue invalidates the one before (arXiv 2601.15086).

A chain of corridors. At the mouth of each a cue says left or right; at its far end the turn has to
match. A memory that only retains solves one corridor; a chain takes one that overwrites. Actions
are `[B]` int32: 0 forward, 1 left, 2 right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.rollouts import Model, StepResult, outcome

ACTIONS, OBSERVATION = 3, 3


@dataclass(frozen=True)
class MazeConfig:
    """A chain of T-mazes.

    Attributes:
        corridors: how many; one is the classic T-maze.
        length: steps from mouth to junction; the most where lengths are `uniform`.
        lengths: all `fixed`, or drawn anew for each corridor from 1 to `length`.
        delay: reward lost by a step that is not a turn at a junction.
        slack: steps beyond the shortest way after which an episode is cut.
    """

    corridors: int = positive(3)
    length: int = positive(5)
    lengths: Literal["fixed", "uniform"] = "fixed"
    delay: float = 0.01
    slack: int = 10

    @property
    def horizon(self) -> int:
        """Most steps of an episode."""
        return self.corridors * (self.length + 1) + self.slack


class MazeState(NamedTuple):
    """`B` mazes; all `[B]`.

    Attributes:
        position: int32, steps from the mouth of the present corridor.
        length: int32, where its junction is.
        cue: int32, 1 (left) or 2 (right): the action to take there.
        corridor: int32, corridors behind.
        time: int32.
    """

    position: jax.Array
    length: jax.Array
    cue: jax.Array
    corridor: jax.Array
    time: jax.Array


class Maze(NamedTuple):
    """Functions of one chain.

    Attributes:
        model: for `rollout`; parameters and members are ignored.
        start: `(key, batch) -> MazeState`.
    """

    model: Model
    start: Callable[[jax.Array, int], MazeState]


def observe(state: MazeState) -> jax.Array:
    """`[B, 3]`: the cue (-1 left, 1 right; 0 but at the mouth), at the junction, a constant."""
    cue = jnp.where(state.position == 0, 2.0 * state.cue - 3.0, 0.0)
    junction = (state.position == state.length).astype(jnp.float32)
    return jnp.stack([cue, junction, jnp.ones_like(junction)], -1)


@functools.lru_cache(maxsize=32)
def make_t_maze(config: MazeConfig) -> Maze:
    """Build the functions. Equal arguments give the same functions.

    Rewards: 1 for the right turn, -1 for the wrong one, which ends the episode, `-delay` for
    anything else. Turning in a corridor and going forward at a junction lead nowhere. The last
    right turn ends the episode, too.

    Raises:
        ConfigError: a size below 1.
    """
    check(config)

    def corridor(key: jax.Array, batch: int) -> tuple[jax.Array, jax.Array]:
        cue_key, length_key = jax.random.split(key)
        cue = jax.random.randint(cue_key, (batch,), 1, 3)
        if config.lengths == "fixed":
            return cue, jnp.full((batch,), config.length, jnp.int32)
        return cue, jax.random.randint(length_key, (batch,), 1, config.length + 1)

    def start(key: jax.Array, batch: int) -> MazeState:
        cue, length = corridor(key, batch)
        zero = jnp.zeros((batch,), jnp.int32)
        return MazeState(zero, length, cue, zero, zero)

    def step(
        params: object, key: jax.Array, state: MazeState, action: jax.Array, member: object
    ) -> tuple[MazeState, StepResult]:
        batch = action.shape[0]
        junction = state.position == state.length
        turned = junction & (action > 0)
        right = turned & (action == state.cue)
        reward = jnp.where(right, 1.0, jnp.where(turned, -1.0, -config.delay))
        cue, length = corridor(key, batch)
        ahead = state.position + (~junction & (action == 0))
        following = MazeState(
            jnp.where(right, 0, ahead),
            jnp.where(right, length, state.length),
            jnp.where(right, cue, state.cue),
            state.corridor + right,
            state.time + 1,
        )
        terminated = (turned & ~right) | (following.corridor == config.corridors)
        truncated = (following.time >= config.horizon) & ~terminated
        return following, outcome(batch, reward=reward, terminated=terminated, truncated=truncated)

    return Maze(Model(step, observe), start)
