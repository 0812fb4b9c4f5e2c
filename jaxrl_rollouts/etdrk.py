"""Exponential time differencing, fourth order, of `u_t = L u - scale (u^2 / 2)_x + f` on a circle.

The scheme is ETDRK4 (Cox & Matthews 2002, equations 26 to 29), its coefficients are contour means
(Kassam & Trefethen 2005, section 3). `L` may be complex: exponax 0.2 keeps the real part of the
coefficients only, so that its KdV converges with first order in the time step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CONTOUR = 32  # points on the circle around each eigenvalue


def wavenumbers(points: int, extent: Any, xp: Any = jnp) -> Any:
    """Angular wavenumbers of `rfft`, `[points // 2 + 1]`, in jax or another numpy."""
    return 2 * xp.pi * xp.arange(points // 2 + 1) / extent


class Etdrk4(NamedTuple):
    """One step of fields on a circle: `u [..., points] -> u`.

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
        """`-scale (u^2 / 2)_x` by `rfft` bin, with the 2/3 rule."""
        u = jnp.fft.irfft(self.kept * v, n=points)
        return self.slope * jnp.fft.rfft(u * u)

    def __call__(self, u: jax.Array, force: jax.Array | float = 0.0) -> jax.Array:
        """Advance `u [..., points]` by one time step.

        Args:
            force: `[..., K]`, `rfft` of `f`, which is constant during the step.
        """
        points = u.shape[-1]
        v = jnp.fft.rfft(u)
        nv = self.nonlinear(v, points) + force
        a = self.root * v + self.half * nv
        na = self.nonlinear(a, points) + force
        b = self.root * v + self.half * na
        nb = self.nonlinear(b, points) + force
        c = self.root * a + self.half * (2 * nb - nv)
        nc = self.nonlinear(c, points) + force
        v = self.whole * v + self.first * nv + self.middle * (na + nb) + self.last * nc
        return jnp.fft.irfft(v, n=points).astype(u.dtype)


def etdrk4(linear: Any, scale: float, points: int, extent: Any, dt: Any) -> Etdrk4:
    """Coefficients of the scheme.

    Args:
        linear: `[K]` complex eigenvalues of `L` per `rfft` bin; of a numpy array the coefficients
            are numpy's, in double precision.
    """
    xp: Any = np if isinstance(linear, np.ndarray) else jnp
    z = linear * dt
    circle = xp.exp(2j * xp.pi * (xp.arange(CONTOUR) + 0.5) / CONTOUR)
    r = z[:, None] + circle
    e = xp.exp(r)
    kept = xp.arange(points // 2 + 1) < points / 3
    return Etdrk4(
        whole=xp.exp(z),
        root=xp.exp(z / 2),
        half=dt * ((xp.exp(r / 2) - 1) / r).mean(1),
        first=dt * ((-4 - r + e * (4 - 3 * r + r**2)) / r**3).mean(1),
        middle=dt * (2 * (2 + r + e * (-2 + r)) / r**3).mean(1),
        last=dt * ((-4 - 3 * r - r**2 + e * (4 - r)) / r**3).mean(1),
        slope=xp.where(kept, -0.5j * scale * wavenumbers(points, extent, xp), 0.0),
        kept=kept.astype(z.real.dtype),
    )
