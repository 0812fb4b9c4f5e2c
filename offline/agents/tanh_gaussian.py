"""The tanh-squashed normal policy head of SAC, without a distribution library."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws


def sample_and_log_prob(
    key: jax.Array, mean: jax.Array, log_std: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draw actions in (-1, 1) by reparameterisation, with their log-density.

    Args:
        key: consumed.
        mean, log_std: `[..., A]` of the normal before the tanh.

    Returns:
        Actions `[..., A]` and log-densities `[...]`, summed over action dimensions. The change of
        variables uses log(1 - tanh^2 + 1e-6), as SAC's public implementations do.
    """
    noise = draws.normal(key, mean.shape)
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return action, (log_normal - jnp.log(1.0 - jnp.square(action) + 1e-6)).sum(-1)


def log_prob(action: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of actions strictly inside (-1, 1); shapes as above."""
    noise = (jnp.arctanh(action) - mean) * jnp.exp(-log_std)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return (log_normal - jnp.log(1.0 - jnp.square(action) + 1e-6)).sum(-1)


def mode(mean: jax.Array) -> jax.Array:
    """The deterministic action used in evaluation: tanh of the mean."""
    return jnp.tanh(mean)
