"""A buffer of timesteps: whole episodes go in, tapes of a fixed number of timesteps come out.

A tape is a few episodes behind one another, with a flag where each begins; the last one may be
cut. There is no padding. When room is needed the oldest episodes leave whole. (NEUBAY, Ni et al.
2025.) Everything is a pure function on device arrays.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

MOST = 2**30 - 1  # twice a position must fit an int32


class TapeBuffer(NamedTuple):
    """State of the buffer.

    Attributes:
        timesteps: leaves `[capacity, ...]`; an episode may run over the end to the beginning.
        begins, lengths: `[episodes]` int32, where an episode starts and how many timesteps it has.
        first: int32, entry of the oldest episode; entries are circular as well.
        count: int32, episodes held.
        next: int32, position that is written next.
        used: int32, timesteps held.
    """

    timesteps: PyTree
    begins: jax.Array
    lengths: jax.Array
    first: jax.Array
    count: jax.Array
    next: jax.Array
    used: jax.Array

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.timesteps)[0].shape[0]


class Tape(NamedTuple):
    """`L` timesteps of several episodes.

    Attributes:
        timesteps: leaves `[L, ...]`.
        starts: `[L]` bool, True on the first timestep of an episode (always on the tape's first).
        mask: `[L]` bool, True where the next timestep of the same episode is on the tape too: these
            are the transitions to learn from.
    """

    timesteps: PyTree
    starts: jax.Array
    mask: jax.Array


def bytes_of(timestep: PyTree, capacity: int, episodes: int) -> int:
    """Bytes that `create` will take, to the byte; `timestep` are arrays or ShapeDtypeStructs."""
    each = sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(timestep))
    return capacity * each + (2 * episodes + 4) * 4


def create(timestep: PyTree, capacity: int, episodes: int, *, tape_length: int) -> TapeBuffer:
    """An empty buffer."""
    if tape_length < 2:
        raise ConfigError(
            "tape_length", tape_length, "at least 2 timesteps, which are one transition"
        )
    if capacity < tape_length:
        raise ConfigError(
            "capacity",
            capacity,
            f"at least one tape of {tape_length} timesteps",
            "give the buffer more room or make tapes shorter",
        )
    if capacity > MOST:
        raise ConfigError("capacity", capacity, f"at most {MOST} timesteps")
    if episodes < 1:
        raise ConfigError("episodes", episodes, "at least 1")
    timesteps = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), timestep)
    entries = jnp.zeros((episodes,), jnp.int32)
    return TapeBuffer(timesteps, entries, entries, *(jnp.int32(0),) * 4)


def _in_order(buffer: TapeBuffer) -> tuple[jax.Array, jax.Array]:
    """Entries from the oldest episode on, and the running total of timesteps, `[episodes]`."""
    size = buffer.lengths.shape[0]
    order = (buffer.first + jnp.arange(size, dtype=jnp.int32)) % size
    held = jnp.where(jnp.arange(size) < buffer.count, buffer.lengths[order], 0)
    return order, jnp.cumsum(held)


def _evict(buffer: TapeBuffer, timesteps: jax.Array, episodes: jax.Array) -> TapeBuffer:
    """Let the oldest episodes go until there is room for so many timesteps and episodes."""
    size = buffer.lengths.shape[0]
    _, total = _in_order(buffer)
    lack = buffer.used + timesteps - buffer.capacity
    for_timesteps = jnp.where(lack > 0, jnp.searchsorted(total, lack) + 1, 0)
    leave = jnp.maximum(for_timesteps, buffer.count + episodes - size).astype(jnp.int32)
    leave = jnp.maximum(leave, 0)
    freed = jnp.where(leave > 0, total[leave - 1], 0)
    return buffer._replace(
        first=(buffer.first + leave) % size, count=buffer.count - leave, used=buffer.used - freed
    )


def add(buffer: TapeBuffer, timesteps: PyTree, lengths: jax.Array) -> TapeBuffer:
    """Write episodes, in order; the oldest ones make room.

    Args:
        buffer: the buffer to read.
        timesteps: leaves `[N, T, ...]`.
        lengths: `[N]`, how many of the `T` timesteps belong to each episode; 0 leaves one out.

    Raises:
        ConfigError: `N` episodes of `T` timesteps would not fit into the empty buffer.
    """
    count, longest = jax.tree.leaves(timesteps)[0].shape[:2]
    size, capacity = buffer.lengths.shape[0], buffer.capacity
    if count * longest > capacity:
        raise ConfigError(
            "capacity",
            capacity,
            f"at least {count} episodes of {longest} timesteps",
            "give the buffer more room or roll fewer episodes at a time",
        )
    if count > size:
        raise ConfigError("episodes", size, f"at least the {count} that are added at a time")
    lengths = lengths.astype(jnp.int32)
    some = lengths > 0
    buffer = _evict(buffer, lengths.sum(), some.sum(dtype=jnp.int32))
    begins = buffer.next + jnp.cumsum(lengths) - lengths
    # What is left out is sent past the end, where `mode="drop"` discards it.
    rank = jnp.cumsum(some, dtype=jnp.int32) - 1
    entry = jnp.where(some, (buffer.first + buffer.count + rank) % size, size)
    step = jnp.arange(longest, dtype=jnp.int32)
    place = (begins[:, None] + step) % capacity
    place = jnp.where(step < lengths[:, None], place, capacity).reshape(-1)

    def write(column: jax.Array, new: jax.Array) -> jax.Array:
        return column.at[place].set(new.reshape(-1, *new.shape[2:]), mode="drop")

    return TapeBuffer(
        jax.tree.map(write, buffer.timesteps, timesteps),
        buffer.begins.at[entry].set(begins % capacity, mode="drop"),
        buffer.lengths.at[entry].set(lengths, mode="drop"),
        buffer.first,
        buffer.count + some.sum(dtype=jnp.int32),
        (buffer.next + lengths.sum()) % capacity,
        buffer.used + lengths.sum(),
    )


Weighting = Literal["episode", "timestep", "transition"]


def sample(
    buffer: TapeBuffer, key: jax.Array, length: int, *, weighting: Weighting = "episode"
) -> Tape:
    """Draw episodes with replacement and lay them on a tape until it is full.

    Args:
        buffer: the buffer to read.
        key: consumed.
        length: timesteps `L` of the tape, static.
        weighting: every episode is as likely as another (`episode`, as published: a timestep of a
            short one is seen more often), or as likely as it has timesteps (`timestep`). For agents
            without a memory `transition`: no episodes but `L / 2` pairs of a timestep and the next,
            each as likely as another; an episode of one timestep has none.

    Returns:
        A `Tape`. Sampling an empty buffer returns NaN for floats, so that a loss
        on them is caught as non-finite rather than learned from.
    """
    if weighting == "transition":
        return _pairs(buffer, key, length)
    # As many samples as timesteps: enough even if every episode has one timestep only.
    size = buffer.lengths.shape[0]
    if weighting == "episode":
        drawn = jax.random.randint(key, (length,), 0, jnp.maximum(buffer.count, 1))
        entry = (buffer.first + drawn) % size
    else:
        order, total = _in_order(buffer)
        timestep = jax.random.randint(key, (length,), 0, jnp.maximum(buffer.used, 1))
        entry = order[jnp.searchsorted(total, timestep, side="right")]
    lengths = jnp.where(buffer.count == 0, 1, buffer.lengths[entry])
    ends = jnp.cumsum(lengths)
    place = jnp.arange(length, dtype=jnp.int32)
    episode = jnp.searchsorted(ends, place, side="right")
    offset = place - (ends - lengths)[episode]
    return _take(buffer, buffer.begins[entry[episode]] + offset, offset == 0, buffer.count == 0)


def _pairs(buffer: TapeBuffer, key: jax.Array, length: int) -> Tape:
    order, total = _in_order(buffer)
    # Of every episode all timesteps but the final observation; what is no episode adds nothing.
    count = jnp.minimum(jnp.arange(1, len(order) + 1), buffer.count)
    before = total - count
    every = before[-1]
    drawn = jax.random.randint(key, (length // 2,), 0, jnp.maximum(every, 1))
    rank = jnp.searchsorted(before, drawn, side="right")
    # As many final observations were passed over as there are episodes before.
    oldest = jnp.where(buffer.count > 0, buffer.begins[buffer.first], 0)
    first = oldest + drawn + rank
    index = jnp.stack([first, first + 1], 1).reshape(-1)
    starts = jnp.arange(length) % 2 == 0
    return _take(buffer, index, starts, every <= 0)


def _take(buffer: TapeBuffer, index: jax.Array, starts: jax.Array, empty: jax.Array) -> Tape:
    """The timesteps of these places; NaN of an empty buffer."""
    index, mask = index % buffer.capacity, jnp.append(~starts[1:], False) | empty

    def take(leaf: jax.Array) -> jax.Array:
        rows = leaf[index]
        return jnp.where(empty, jnp.nan, rows) if jnp.issubdtype(rows.dtype, jnp.floating) else rows

    return Tape(jax.tree.map(take, buffer.timesteps), starts, mask)


def masked_mean(values: jax.Array, where: jax.Array) -> jax.Array:
    """Mean of the values where `where` is true, 0 where it is nowhere (and not NaN)."""
    return jnp.where(where, values, 0.0).sum() / jnp.maximum(where.sum(), 1)


def weighted_mean(
    values: jax.Array, mask: jax.Array, real: jax.Array, real_weight: float
) -> jax.Array:
    """`k * mean over real + (1 - k) * mean over imagined` of the masked values.

    Each mean is over its own timesteps, whatever their numbers; one without timesteps is 0 (its
    denominator is clipped at 1).

    Args:
        values, mask, real: `[L]`.
    """
    apart = masked_mean(values, mask & real), masked_mean(values, mask & ~real)
    return real_weight * apart[0] + (1.0 - real_weight) * apart[1]
