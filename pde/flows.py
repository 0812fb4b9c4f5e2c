"""Velocity and vorticity of flows in the plane, each from the other.

Vorticity is the curl, `w = d_0 v_1 - d_1 v_0`, and `v = (-d_1 psi, d_0 psi)` with `lap psi = w`.
Axis 0 is the first axis of space.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError

from .spectral import waves


def to_velocity(vorticity: jax.Array, extent: float) -> jax.Array:
    """The velocity of a vorticity: `[..., 1, N, N] -> [..., 2, N, N]`, without a mean.

    Args:
        vorticity: the curl of what is returned.
        extent: length of the (square) domain.

    Raises:
        DataError: a field of another shape.
    """
    _check(vorticity, 1)
    points = vorticity.shape[-1]
    k = _wavenumbers(points, extent)
    square = jnp.square(k).sum(0)
    psi = -jnp.fft.rfft2(vorticity[..., 0, :, :]) / jnp.where(square > 0, square, jnp.inf)
    parts = -1j * k[1] * psi, 1j * k[0] * psi
    return jnp.stack([jnp.fft.irfft2(part, (points, points)) for part in parts], -3)


def to_vorticity(velocity: jax.Array, extent: float) -> jax.Array:
    """The curl `d_0 v_1 - d_1 v_0` of a velocity: `[..., 2, N, N] -> [..., 1, N, N]`.

    Raises:
        DataError: a field of another shape.
    """
    _check(velocity, 2)
    points = velocity.shape[-1]
    k, v = _wavenumbers(points, extent), jnp.fft.rfft2(velocity)
    curl = 1j * (k[0] * v[..., 1, :, :] - k[1] * v[..., 0, :, :])
    return jnp.fft.irfft2(curl, (points, points))[..., None, :, :]


def _wavenumbers(points: int, extent: float) -> jax.Array:
    """Along both axes, `[2, N, N // 2 + 1]`, without the highest of an even grid: its derivative is
    not known from the grid."""
    both = waves((points, points))
    both = np.where(np.abs(both) == points / 2, 0.0, both)
    return jnp.asarray(both) * (2 * jnp.pi / extent)


def _check(field: jax.Array, channels: int) -> None:
    if field.ndim < 3 or field.shape[-3] != channels or field.shape[-1] != field.shape[-2]:
        expected = f"[..., {channels}, N, N]"
        raise DataError("field", "shape", list(field.shape), expected)
