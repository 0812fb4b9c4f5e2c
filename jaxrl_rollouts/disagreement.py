"""How lost an ensemble is: one non-negative number per row from its members' predictions.

`means` and `stds` are `[N, B, O]` (members, rows, outputs); every measure returns `[B]`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def max_aleatoric(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Largest norm of a member's predicted standard deviation (MOPO, equation 8)."""
    del means
    return jnp.linalg.norm(stds, axis=-1).max(0)


def max_pairwise(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Largest distance between two members' means (MOReL, definition 1)."""
    del stds
    gaps = jnp.linalg.norm(means[:, None] - means[None], axis=-1)
    return gaps.max((0, 1))


def spread_of_means(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Root mean over outputs of the variance of means over members (NEUBAY, section 4).

    Meaningful when the outputs share a scale: give it normalised predictions.
    """
    del stds
    return jnp.sqrt(jnp.square(means - means.mean(0)).mean((0, -1)))


def total_spread(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Root mean over outputs of the mixture's variance: aleatoric plus epistemic."""
    return jnp.sqrt((jnp.square(stds).mean(0) + means.var(0)).mean(-1))


def bellman_spread(estimates: jax.Array) -> jax.Array:
    """Standard deviation over members of their Bellman estimates, `[N, B] -> [B]` (MOBILE)."""
    return estimates.std(0)
