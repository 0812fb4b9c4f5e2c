"""A ring buffer of fixed capacity whose rows are any pytree.

"Retain k rollouts" is a capacity of k times the rows of one rollout: writing a sixth block into
room for five overwrites the oldest. Only rows that were written are ever sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .trees import PyTree


class Replay(NamedTuple):
    """State of a ring buffer.

    Attributes:
        rows: leaves `[capacity, ...]`; zeros where nothing was written.
        next: int32 row that is written next.
        size: int32 number of rows that hold data, at most the capacity.
    """

    rows: PyTree
    next: jax.Array
    size: jax.Array

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.rows)[0].shape[0]


def create(row: PyTree, capacity: int) -> Replay:
    """An empty buffer for `capacity` rows shaped like `row` (arrays or ShapeDtypeStructs)."""
    if capacity < 1:
        raise ValueError(f"capacity: found {capacity}, expected at least 1")
    rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), row)
    return Replay(rows, jnp.int32(0), jnp.int32(0))


def add(replay: Replay, rows: PyTree, valid: jax.Array | None = None) -> Replay:
    """Write rows (`[n, ...]`), in order, over the oldest ones.

    Args:
        replay: the buffer.
        rows: leaves `[n, ...]` with `n` at most the capacity.
        valid: `[n]` bool; rows that are False are left out and take no room.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    if count > replay.capacity:
        raise ValueError(f"rows: found {count}, expected at most the capacity {replay.capacity}")
    valid = jnp.ones((count,), bool) if valid is None else valid
    offsets = jnp.cumsum(valid, dtype=jnp.int32) - 1
    # Left-out rows are sent past the end, where `mode="drop"` discards them.
    slots = jnp.where(valid, (replay.next + offsets) % replay.capacity, replay.capacity)
    written = valid.sum(dtype=jnp.int32)
    return Replay(
        jax.tree.map(lambda b, r: b.at[slots].set(r, mode="drop"), replay.rows, rows),
        (replay.next + written) % replay.capacity,
        jnp.minimum(replay.size + written, replay.capacity),
    )


def sample(replay: Replay, key: jax.Array, count: int) -> PyTree:
    """Draw `count` rows uniformly, with replacement, from those that were written.

    Sampling an empty buffer returns rows of NaN (floats) or zero, so that a
    loss computed on them is caught as non-finite rather than learned from.
    """
    return rows_at(replay, drawn_rows(replay, key, count))


def drawn_rows(replay: Replay, key: jax.Array, count: int) -> jax.Array:
    """Which rows `sample` takes, `[count]` int32."""
    return jax.random.randint(key, (count,), 0, jnp.maximum(replay.size, 1))


def rows_at(replay: Replay, index: jax.Array) -> PyTree:
    """The rows that `drawn_rows` names, as `sample` gives them."""

    def take(leaf: jax.Array) -> jax.Array:
        rows = leaf[index]
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return rows
        return jnp.where(replay.size > 0, rows, jnp.nan)

    return jax.tree.map(take, replay.rows)
