"""The tanh-squashed normal policy head of SAC, without a distribution library."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws

# How the change of variables is computed: `exact`, or with `offset` inside the logarithm.
Density = Literal["exact", "offset"]


def sample_and_log_prob(
    key: jax.Array, mean: jax.Array, log_std: jax.Array, density: Density = "offset"
) -> tuple[jax.Array, jax.Array]:
    """Sample actions in (-1, 1) by reparameterisation, with their log-density.

    Args:
        key: consumed.
        mean, log_std: `[..., A]` of the normal before the tanh.
        density: see `log_slope`.

    Returns:
        Actions `[..., A]` and log-densities `[...]`, summed over action dimensions.
    """
    noise = draws.normal(key, mean.shape)
    before = mean + jnp.exp(log_std) * noise
    action = jnp.tanh(before)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return action, (log_normal - log_slope(before, action, density)).sum(-1)


def log_prob(
    action: jax.Array, mean: jax.Array, log_std: jax.Array, density: Density = "offset"
) -> jax.Array:
    """Log-density of actions strictly inside (-1, 1); shapes as above."""
    before = jnp.arctanh(action)
    noise = (before - mean) * jnp.exp(-log_std)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return (log_normal - log_slope(before, action, density)).sum(-1)


def log_slope(before: jax.Array, action: jax.Array, density: Density) -> jax.Array:
    """Logarithm of the tanh's slope, `log(1 - tanh(x)^2)`, elementwise.

    `exact` is `2 (log 2 - x - softplus(-2 x))` (NEUBAY's code, by distrax). `offset` is
    `log(1 - tanh(x)^2 + 1e-6)` (SAC's public implementations): it is at least -13.8, and its
    gradient vanishes where the policy saturates.

    Args:
        before: x.
        action: tanh(x).
        density: which of the two.
    """
    if density == "exact":
        return 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    return jnp.log(1.0 - jnp.square(action) + 1e-6)


def mode(mean: jax.Array) -> jax.Array:
    """The deterministic action used in evaluation: tanh of the mean."""
    return jnp.tanh(mean)
