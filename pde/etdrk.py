"""Exponential time differencing, fourth order, for linear parts that are not real.

exponax 0.2 keeps the real part of the scheme's coefficients only, which is right for diffusion and
wrong for dispersion: its KdV converges with first order in the time step. Same scheme here
(Cox & Matthews 2002, coefficients by contour means after Kassam & Trefethen 2005), complex kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

CONTOUR = 32  # points on the circle around each eigenvalue


def wavenumbers(points: int, extent: Any) -> jax.Array:
    """Angular wavenumbers of `rfft`, `[points // 2 + 1]`."""
    return 2 * jnp.pi * jnp.arange(points // 2 + 1) / extent


def etdrk4(
    linear: jax.Array, nonlinear: Callable[[jax.Array], jax.Array], dt: Any, points: int
) -> Callable[[jax.Array], jax.Array]:
    """One step of `u_t = L u + N(u)` on a circle.

    Args:
        linear: `[K]` complex eigenvalues of `L` per `rfft` bin.
        nonlinear: `N` from `[C, K]` coefficients to coefficients; de-aliasing is its business.
        dt: time step.
        points: of the grid.

    Returns:
        `u [C, points] -> u`.
    """
    z = linear * dt
    circle = jnp.exp(2j * jnp.pi * (jnp.arange(CONTOUR) + 0.5) / CONTOUR)
    r = z[:, None] + circle
    e = jnp.exp(r)
    half = dt * ((jnp.exp(r / 2) - 1) / r).mean(1)
    first = dt * ((-4 - r + e * (4 - 3 * r + r**2)) / r**3).mean(1)
    middle = dt * (2 * (2 + r + e * (-2 + r)) / r**3).mean(1)
    last = dt * ((-4 - 3 * r - r**2 + e * (4 - r)) / r**3).mean(1)
    whole, root = jnp.exp(z), jnp.exp(z / 2)

    def step(u: jax.Array) -> jax.Array:
        v = jnp.fft.rfft(u)
        nv = nonlinear(v)
        a = root * v + half * nv
        na = nonlinear(a)
        b = root * v + half * na
        nb = nonlinear(b)
        c = root * a + half * (2 * nb - nv)
        nc = nonlinear(c)
        v = whole * v + first * nv + middle * (na + nb) + last * nc
        return jnp.fft.irfft(v, n=points).astype(u.dtype)

    return step


def convection(points: int, extent: Any, scale: float) -> Callable[[jax.Array], jax.Array]:
    """`-scale (u^2 / 2)_x` on coefficients, de-aliased by the 2/3 rule."""
    k = wavenumbers(points, extent)
    kept = jnp.arange(points // 2 + 1) < points / 3

    def nonlinear(v: jax.Array) -> jax.Array:
        u = jnp.fft.irfft(jnp.where(kept, v, 0), n=points)
        return jnp.where(kept, -0.5j * scale * k * jnp.fft.rfft(u * u), 0)

    return nonlinear
