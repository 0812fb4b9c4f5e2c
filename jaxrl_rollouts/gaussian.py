"""Gaussian predictions of a network with a mean head and a log-variance head."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import draws


class Gaussian(NamedTuple):
    """Diagonal normal; `mean` and `std` share a shape `[..., O]`, in the units of the data."""

    mean: jax.Array
    std: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + self.std * draws.normal(key, self.mean.shape)


def soft_clamp(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Squeeze `x` into (low, high) by two softplus bends, smooth everywhere (PETS, appendix A.1).

    The second bend may overshoot `high` by at most log(1 + exp(low - high)).
    """
    x = high - _softplus(high - x)
    return low + _softplus(x - low)


def _softplus(x: jax.Array) -> jax.Array:
    # Not jax.nn.softplus: XLA (jaxlib 0.10) compiles two nested log1p to a loop 9 times as slow on
    # a CPU. The digits that log loses are below a float's in a log-variance.
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


def gaussian_nll(mean: jax.Array, log_var: jax.Array, target: jax.Array) -> jax.Array:
    """Element-wise negative log-likelihood in nats, with the constant; shape of `mean`."""
    squared = jnp.square(target - mean) * jnp.exp(-log_var)
    return 0.5 * (squared + log_var + math.log(2.0 * math.pi))
