"""Sizes that follow from NEUBAY's settings, a dataset and its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from ..recurrent import tapes
from ..recurrent.timesteps import Timestep, timestep_shapes

if TYPE_CHECKING:
    from ..methods.neubay import Neubay


class Sizes(NamedTuple):
    """What is static about a dataset and its environment.

    Attributes:
        state, action: `S`, `A`.
        max_episode_steps: the environment's time limit `T`.
        longest: most transitions before a moment (`LoggedHistories.longest`), at most `T`.
    """

    state: int
    action: int
    max_episode_steps: int
    longest: int


def observation_size(method: Neubay, sizes: Sizes) -> int:
    """Numbers the agent observes: state, last action and last reward, or the state only."""
    return sizes.state if method.markov else sizes.state + sizes.action + 1


def episode_room(method: Neubay, sizes: Sizes) -> int:
    """Most timesteps of a stored episode, its final observation included."""
    limit = sizes.max_episode_steps
    imagined = min(method.rollouts.length or limit, limit)
    return min(sizes.longest + imagined, limit) + 1


def timestep(method: Neubay, sizes: Sizes) -> Timestep:
    """The shapes of one timestep of the buffer."""
    action = jax.ShapeDtypeStruct((sizes.action,), jnp.float32)
    return timestep_shapes(observation_size(method, sizes), action)


def buffer_episodes(method: Neubay) -> int:
    """Episodes the buffer has room for; each takes eight bytes."""
    return max(method.rollouts.batch_size, method.buffer_size // 16)


def buffer_bytes(method: Neubay, sizes: Sizes) -> int:
    """Bytes the buffer of one seed takes."""
    return tapes.bytes_of(timestep(method, sizes), method.buffer_size, buffer_episodes(method))


def buffer_text(method: Neubay, sizes: Sizes, seeds: int) -> str:
    """The memory of the buffers of all seeds, as one line."""
    room = seeds * buffer_bytes(method, sizes)
    return (
        f"Tape buffers: {method.buffer_size:,} timesteps per seed, {room / 1e6:,.0f} MB for "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}."
    )


def seconds_between_saves(method: Neubay, sizes: Sizes, seeds: int) -> float:
    """Seconds between checkpoints: they hold the buffers, so larger ones are written less often."""
    return max(60.0, seeds * buffer_bytes(method, sizes) / 1e7)
