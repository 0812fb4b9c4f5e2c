"""Transitions on the device: put there once, sampled by index inside compiled code."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .transitions import Transitions


def to_device(transitions: Transitions) -> Transitions:
    """The same rows as jax arrays, same dtypes, on the default device."""
    return jax.tree.map(jnp.asarray, transitions)


def sample_batch(transitions: Transitions, key: jax.Array, batch: int) -> Transitions:
    """Draw `batch` rows uniformly, with replacement.

    Args:
        transitions: `[N, ...]` jax arrays, `N` at least 1.
        key: typed key; consumed.
        batch: number of rows; static under `jit`.

    Returns:
        `[batch, ...]` rows.

    Raises:
        ValueError: `batch` below 1 or no rows.
    """
    count = transitions.rewards.shape[0]
    if batch < 1 or count < 1:
        raise ValueError(f"batch, rows: found {batch}, {count}, expected at least 1 of each")
    rows = jax.random.randint(key, (batch,), 0, count)
    return jax.tree.map(lambda column: column[rows], transitions)
