"""Keys, and normal and uniform numbers of any shape, drawn flat.

`jax.random` counts the elements of an array row by row, so a flat draw that is reshaped holds the
same numbers to the bit. But on a CPU XLA (jaxlib 0.10 and 0.11) compiles a draw of two or three
axes 2 to 6 times as slowly, more under `vmap`, and a network has one for every kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import ConfigError


def as_key(given: jax.Array | int, name: str = "key") -> jax.Array:
    """A typed key of a number; keys are what they are.

    Raises:
        ConfigError: a number beyond 64 bits, under the `name` of its argument.
    """
    if not isinstance(given, int | np.integer):
        return given
    given = int(given)
    if not -(2**63) <= given < 2**63:
        expected = "a whole number from -2**63 to 2**63 - 1"
        raise ConfigError(name, f"one of {given.bit_length()} bits", expected)
    return jax.random.key(given)


def normal(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
    """Standard normal numbers; what `jax.random.normal` returns."""
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)


def truncated_normal(
    key: jax.Array, low: float, high: float, shape: Sequence[int], dtype: Any = jnp.float32
) -> jax.Array:
    """Standard normal numbers within (low, high); what `jax.random.truncated_normal` returns."""
    flat = jax.random.truncated_normal(key, low, high, (math.prod(shape),), dtype)
    return flat.reshape(shape)


def uniform(
    key: jax.Array,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    low: float | jax.Array = 0.0,
    high: float | jax.Array = 1.0,
) -> jax.Array:
    """Numbers from [low, high); what `jax.random.uniform` returns."""
    return jax.random.uniform(key, (math.prod(shape),), dtype, low, high).reshape(shape)


def seed_keys(key: jax.Array, count: int, repeats: int = 1) -> jax.Array:
    """`count` keys `[count]`, `repeats` times the same ones over: `split(key, count / repeats)`."""
    own = jax.random.split(key, count // repeats)
    return own if repeats == 1 else own[jnp.arange(count) % len(own)]
