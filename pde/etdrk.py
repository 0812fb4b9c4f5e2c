"""Exponential time differencing, fourth order, for linear parts that are not real.

exponax 0.2 keeps the real part of the scheme's coefficients only, which is right for diffusion and
wrong for dispersion: its KdV converges with first order in the time step. Same scheme here
(Cox & Matthews 2002, coefficients by contour means after Kassam & Trefethen 2005), complex kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

CONTOUR = 32  # points on the circle around each eigenvalue


def wavenumbers(points: int, extent: Any) -> jax.Array:
    """Angular wavenumbers of `rfft`, `[points // 2 + 1]`."""
    return 2 * jnp.pi * jnp.arange(points // 2 + 1) / extent


class Etdrk4(NamedTuple):
    """One step of `u_t = L u - scale (u^2 / 2)_x` on a circle: `u [C, points] -> u`.

    A pytree of its coefficients, so that many, of different domains, can be made once and mapped
    over. All fields are `[K]`, one entry per `rfft` bin.
    """

    whole: jax.Array
    root: jax.Array
    half: jax.Array
    first: jax.Array
    middle: jax.Array
    last: jax.Array
    slope: jax.Array  # -0.5j * scale * k, zero where the 2/3 rule cuts
    kept: jax.Array

    def nonlinear(self, v: jax.Array, points: int) -> jax.Array:
        u = jnp.fft.irfft(self.kept * v, n=points)
        return self.slope * jnp.fft.rfft(u * u)

    def __call__(self, u: jax.Array) -> jax.Array:
        points = u.shape[-1]
        v = jnp.fft.rfft(u)
        nv = self.nonlinear(v, points)
        a = self.root * v + self.half * nv
        na = self.nonlinear(a, points)
        b = self.root * v + self.half * na
        nb = self.nonlinear(b, points)
        c = self.root * a + self.half * (2 * nb - nv)
        nc = self.nonlinear(c, points)
        v = self.whole * v + self.first * nv + self.middle * (na + nb) + self.last * nc
        return jnp.fft.irfft(v, n=points).astype(u.dtype)


def etdrk4(linear: jax.Array, scale: float, points: int, extent: Any, dt: Any) -> Etdrk4:
    """Coefficients of the scheme.

    Args:
        linear: `[K]` complex eigenvalues of `L` per `rfft` bin.
        scale: of the convection.
        points, extent, dt: grid, length of the domain, time step.
    """
    z = linear * dt
    circle = jnp.exp(2j * jnp.pi * (jnp.arange(CONTOUR) + 0.5) / CONTOUR)
    r = z[:, None] + circle
    e = jnp.exp(r)
    kept = jnp.arange(points // 2 + 1) < points / 3
    return Etdrk4(
        whole=jnp.exp(z),
        root=jnp.exp(z / 2),
        half=dt * ((jnp.exp(r / 2) - 1) / r).mean(1),
        first=dt * ((-4 - r + e * (4 - 3 * r + r**2)) / r**3).mean(1),
        middle=dt * (2 * (2 + r + e * (-2 + r)) / r**3).mean(1),
        last=dt * ((-4 - 3 * r - r**2 + e * (4 - r)) / r**3).mean(1),
        slope=jnp.where(kept, -0.5j * scale * wavenumbers(points, extent), 0.0),
        kept=kept.astype(z.real.dtype),
    )
