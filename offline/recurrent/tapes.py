"""A ring of tokens: whole episodes go in, tapes of a fixed number of tokens come out.

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


class Tapes(NamedTuple):
    """State of the ring.

    Attributes:
        tokens: leaves `[capacity, ...]`; an episode may run over the end to the beginning.
        begins, lengths: `[episodes]` int32, where an episode starts and how many tokens it has.
        first: int32, entry of the oldest episode; entries are a ring as well.
        count: int32, episodes held.
        next: int32, position that is written next.
        used: int32, tokens held.
    """

    tokens: PyTree
    begins: jax.Array
    lengths: jax.Array
    first: jax.Array
    count: jax.Array
    next: jax.Array
    used: jax.Array

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.tokens)[0].shape[0]


class Tape(NamedTuple):
    """`L` tokens of several episodes.

    Attributes:
        tokens: leaves `[L, ...]`.
        starts: `[L]` bool, True on the first token of an episode (always on the tape's first).
        mask: `[L]` bool, True where the next token of the same episode is on the tape too: these
            are the transitions to learn from.
    """

    tokens: PyTree
    starts: jax.Array
    mask: jax.Array


def bytes_of(token: PyTree, capacity: int, episodes: int) -> int:
    """Bytes that `create` will take, to the byte; `token` are arrays or ShapeDtypeStructs."""
    each = sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(token))
    return capacity * each + (2 * episodes + 4) * 4


def create(token: PyTree, capacity: int, episodes: int, *, tape: int) -> Tapes:
    """An empty ring.

    Args:
        token: one token, arrays or ShapeDtypeStructs.
        capacity: tokens it holds.
        episodes: episodes it holds; more make the oldest leave.
        tape: tokens of the tapes that will be asked for.

    Raises:
        ConfigError: a tape does not fit, or a size is out of range.
    """
    if tape < 2:
        raise ConfigError("tape", tape, "at least 2 tokens, which are one transition")
    if capacity < tape:
        raise ConfigError(
            "capacity",
            capacity,
            f"at least one tape of {tape} tokens",
            "give the buffer more room or make tapes shorter",
        )
    if capacity > MOST:
        raise ConfigError("capacity", capacity, f"at most {MOST} tokens")
    if episodes < 1:
        raise ConfigError("episodes", episodes, "at least 1")
    tokens = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), token)
    entries = jnp.zeros((episodes,), jnp.int32)
    return Tapes(tokens, entries, entries, *(jnp.int32(0),) * 4)


def _in_order(tapes: Tapes) -> tuple[jax.Array, jax.Array]:
    """Entries from the oldest episode on, and the running total of their tokens, `[episodes]`."""
    size = tapes.lengths.shape[0]
    order = (tapes.first + jnp.arange(size, dtype=jnp.int32)) % size
    held = jnp.where(jnp.arange(size) < tapes.count, tapes.lengths[order], 0)
    return order, jnp.cumsum(held)


def _evict(tapes: Tapes, tokens: jax.Array, episodes: jax.Array) -> Tapes:
    """Let the oldest episodes go until there is room for so many tokens and episodes."""
    size = tapes.lengths.shape[0]
    _, total = _in_order(tapes)
    lack = tapes.used + tokens - tapes.capacity
    for_tokens = jnp.where(lack > 0, jnp.searchsorted(total, lack) + 1, 0)
    leave = jnp.maximum(for_tokens, tapes.count + episodes - size).astype(jnp.int32)
    leave = jnp.maximum(leave, 0)
    freed = jnp.where(leave > 0, total[leave - 1], 0)
    return tapes._replace(
        first=(tapes.first + leave) % size, count=tapes.count - leave, used=tapes.used - freed
    )


def add(tapes: Tapes, tokens: PyTree, lengths: jax.Array) -> Tapes:
    """Write episodes, in order; the oldest ones make room.

    Args:
        tapes: the ring.
        tokens: leaves `[N, T, ...]`.
        lengths: `[N]`, how many of the `T` tokens belong to each episode; 0 leaves one out.

    Raises:
        ConfigError: `N` episodes of `T` tokens would not fit into the empty ring.
    """
    count, longest = jax.tree.leaves(tokens)[0].shape[:2]
    size, capacity = tapes.lengths.shape[0], tapes.capacity
    if count * longest > capacity:
        raise ConfigError(
            "capacity",
            capacity,
            f"at least {count} episodes of {longest} tokens",
            "give the buffer more room or roll fewer episodes at a time",
        )
    if count > size:
        raise ConfigError("episodes", size, f"at least the {count} that are added at a time")
    lengths = lengths.astype(jnp.int32)
    some = lengths > 0
    tapes = _evict(tapes, lengths.sum(), some.sum(dtype=jnp.int32))
    begins = tapes.next + jnp.cumsum(lengths) - lengths
    # What is left out is sent past the end, where `mode="drop"` discards it.
    rank = jnp.cumsum(some, dtype=jnp.int32) - 1
    entry = jnp.where(some, (tapes.first + tapes.count + rank) % size, size)
    step = jnp.arange(longest, dtype=jnp.int32)
    place = (begins[:, None] + step) % capacity
    place = jnp.where(step < lengths[:, None], place, capacity).reshape(-1)

    def write(ring: jax.Array, new: jax.Array) -> jax.Array:
        return ring.at[place].set(new.reshape(-1, *new.shape[2:]), mode="drop")

    return Tapes(
        jax.tree.map(write, tapes.tokens, tokens),
        tapes.begins.at[entry].set(begins % capacity, mode="drop"),
        tapes.lengths.at[entry].set(lengths, mode="drop"),
        tapes.first,
        tapes.count + some.sum(dtype=jnp.int32),
        (tapes.next + lengths.sum()) % capacity,
        tapes.used + lengths.sum(),
    )


Weighting = Literal["episode", "token", "transition"]


def sample(tapes: Tapes, key: jax.Array, length: int, *, weighting: Weighting = "episode") -> Tape:
    """Draw episodes with replacement and lay them on a tape until it is full.

    Args:
        tapes: the ring.
        key: consumed.
        length: tokens `L` of the tape, static.
        weighting: every episode is as likely as another (`episode`, as published: a token of a
            short one is seen more often), or as likely as it has tokens (`token`). For agents
            without a memory `transition`: no episodes but `L / 2` pairs of a token and the next,
            each as likely as another; an episode of one token has none.

    Returns:
        A `Tape`. An empty ring has nothing to draw: its floats come back as NaN, so that a loss
        on them is caught as non-finite rather than learned from.
    """
    if weighting == "transition":
        return _pairs(tapes, key, length)
    # As many draws as tokens: enough even if every episode has one token only.
    size = tapes.lengths.shape[0]
    if weighting == "episode":
        drawn = jax.random.randint(key, (length,), 0, jnp.maximum(tapes.count, 1))
        entry = (tapes.first + drawn) % size
    else:
        order, total = _in_order(tapes)
        token = jax.random.randint(key, (length,), 0, jnp.maximum(tapes.used, 1))
        entry = order[jnp.searchsorted(total, token, side="right")]
    lengths = jnp.where(tapes.count == 0, 1, tapes.lengths[entry])
    ends = jnp.cumsum(lengths)
    place = jnp.arange(length, dtype=jnp.int32)
    episode = jnp.searchsorted(ends, place, side="right")
    offset = place - (ends - lengths)[episode]
    return _take(tapes, tapes.begins[entry[episode]] + offset, offset == 0, tapes.count == 0)


def _pairs(tapes: Tapes, key: jax.Array, length: int) -> Tape:
    order, total = _in_order(tapes)
    # Of every episode all tokens but the last look; what is no episode adds nothing.
    count = jnp.minimum(jnp.arange(1, len(order) + 1), tapes.count)
    before = total - count
    every = before[-1]
    drawn = jax.random.randint(key, (length // 2,), 0, jnp.maximum(every, 1))
    rank = jnp.searchsorted(before, drawn, side="right")
    # As many last looks were passed over as there are episodes before.
    oldest = jnp.where(tapes.count > 0, tapes.begins[tapes.first], 0)
    first = oldest + drawn + rank
    index = jnp.stack([first, first + 1], 1).reshape(-1)
    starts = jnp.arange(length) % 2 == 0
    return _take(tapes, index, starts, every <= 0)


def _take(tapes: Tapes, index: jax.Array, starts: jax.Array, empty: jax.Array) -> Tape:
    """The tokens of these places; NaN of an empty ring."""
    index, mask = index % tapes.capacity, jnp.append(~starts[1:], False) | empty

    def take(leaf: jax.Array) -> jax.Array:
        rows = leaf[index]
        return jnp.where(empty, jnp.nan, rows) if jnp.issubdtype(rows.dtype, jnp.floating) else rows

    return Tape(jax.tree.map(take, tapes.tokens), starts, mask)


def masked_mean(values: jax.Array, where: jax.Array) -> jax.Array:
    """Mean of the values where `where` is true, 0 where it is nowhere (and not NaN)."""
    return jnp.where(where, values, 0.0).sum() / jnp.maximum(where.sum(), 1)


def weighted_mean(
    values: jax.Array, mask: jax.Array, real: jax.Array, real_weight: float | None
) -> jax.Array:
    """`k * mean over real + (1 - k) * mean over imagined` of the masked values.

    Each mean is over its own tokens, whatever their numbers; one without tokens is 0 (its
    denominator is clipped at 1). `real_weight` None: one mean over all.

    Args:
        values, mask, real: `[L]`.
    """
    if real_weight is None:
        return masked_mean(values, mask)
    apart = masked_mean(values, mask & real), masked_mean(values, mask & ~real)
    return real_weight * apart[0] + (1.0 - real_weight) * apart[1]
