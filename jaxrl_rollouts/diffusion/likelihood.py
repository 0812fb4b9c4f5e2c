"""Log-likelihood by the probability-flow ODE (Song et al. 2021; Karras et al. 2022, eq. 1)."""

from __future__ import annotations

import functools
import math
from typing import Literal

import jax
import jax.numpy as jnp

from ..configs import check
from ..errors import ConfigError
from ..trees import PyTree
from .edm import Denoise, EdmConfig


@functools.partial(jax.jit, static_argnames=("denoise", "edm", "steps", "trace", "probes"))
def log_likelihood(
    denoise: Denoise,
    params: PyTree,
    key: jax.Array,
    rows: jax.Array,
    *,
    edm: EdmConfig | None = None,
    steps: int = 64,
    trace: Literal["exact", "hutchinson"] = "hutchinson",
    probes: int = 1,
) -> jax.Array:
    """Log-density of rows under the model's data with noise `sigma_min`.

    The ODE is `dx / d ln sigma = x - D(x; sigma)`, whose right-hand side never divides by a small
    noise; Runge-Kutta steps of equal size in ln sigma lead from `sigma_min` to `sigma_max`, where
    the density is normal with mean 0 and variance `sigma_max^2 + sigma_data^2`.

    Args:
        denoise, params: of a `Denoiser`.
        key: consumed by the probes.
        rows: `[B, ...]`, standardised as the training data were.
        edm: noise levels and `sigma_data`.
        steps: of the integration; four network calls each.
        trace: `exact` takes one derivative per entry of a row, `hutchinson` estimates the
            divergence without bias along random signs, the same ones along a row's whole path.
        probes: directions of the estimate, averaged.

    Returns:
        `[B]` float32, in nats, in standardised units (subtract the logs of the standard
        deviations for data units).

    Raises:
        ConfigError: fewer than one step or probe.
    """
    edm = edm or EdmConfig()
    check(edm)
    if steps < 1 or probes < 1:
        raise ConfigError("steps, probes", (steps, probes), "both at least 1")
    batch, size = rows.shape[0], math.prod(rows.shape[1:])
    if trace == "exact":
        tangents = jnp.broadcast_to(
            jnp.eye(size).reshape(size, 1, *rows.shape[1:]), (size, *rows.shape)
        )
    else:
        tangents = jax.random.rademacher(key, (probes, *rows.shape), jnp.float32)
    share = 1.0 if trace == "exact" else 1.0 / probes

    def drift(x: jax.Array, log_sigma: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Right-hand side `[B, ...]` and its divergence `[B]`."""

        def side(x: jax.Array) -> jax.Array:
            return x - denoise(params, x, jnp.exp(log_sigma))

        value, push = jax.linearize(side, x)
        along = jax.vmap(lambda tangent: (tangent * push(tangent)).reshape(batch, -1).sum(-1))
        return value, share * along(tangents).sum(0)

    low, high = math.log(edm.sigma_min), math.log(edm.sigma_max)
    width = (high - low) / steps

    def advance(carry: tuple, index: jax.Array) -> tuple[tuple, None]:
        """Runge and Kutta's step of order four."""
        x, total = carry
        now = low + width * index
        k1, d1 = drift(x, now)
        k2, d2 = drift(x + 0.5 * width * k1, now + 0.5 * width)
        k3, d3 = drift(x + 0.5 * width * k2, now + 0.5 * width)
        k4, d4 = drift(x + width * k3, now + width)
        x = x + width / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
        return (x, total + width / 6.0 * (d1 + 2.0 * (d2 + d3) + d4)), None

    begin = (rows.astype(jnp.float32), jnp.zeros((batch,)))
    (x, total), _ = jax.lax.scan(advance, begin, jnp.arange(steps, dtype=jnp.float32))
    variance = edm.sigma_max**2 + edm.sigma_data**2
    square = jnp.square(x).reshape(batch, -1).sum(-1) / variance
    return total - 0.5 * (square + size * math.log(2.0 * math.pi * variance))
