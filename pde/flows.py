"""Flows in the plane: velocity and vorticity, each from the other, and measures of both.

Vorticity is the curl, `w = d_0 v_1 - d_1 v_0`, and `v = (-d_1 psi, d_0 psi)` with `lap psi = w`.
Axis 0 is the first axis of space.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError

from . import metrics
from .fieldset import FieldSet
from .spectral import waves

ROUND_OFF = 1e-12  # of the largest energy of a wavenumber: float32 has seven digits of amplitudes
# Names of the channels of a flow: its vorticity, or its velocity.
KNOWN = (("vorticity",), ("w",), ("velocity_x", "velocity_y"), ("vx", "vy"), ("u", "v"))


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


class Flow(NamedTuple):
    """Which channels of a set are a flow: one of vorticity, or two of velocity, axis 0 first.

    Attributes:
        channels: their numbers.
    """

    channels: tuple[int, ...]

    def vorticity(self, fields: jax.Array) -> jax.Array:
        """`[..., C, N, N] -> [..., 1, N, N]`, of a domain of length one."""
        own = fields[..., jnp.asarray(self.channels), :, :]
        return own if len(self.channels) == 1 else to_vorticity(own, 1.0)

    def velocity(self, fields: jax.Array) -> jax.Array:
        """`[..., C, N, N] -> [..., 2, N, N]`, of a domain of length one."""
        own = fields[..., jnp.asarray(self.channels), :, :]
        return to_velocity(own, 1.0) if len(self.channels) == 1 else own


class FlowErrors(NamedTuple):
    """Rollouts of a flow compared with the truth.

    Attributes:
        vorticity: `[T, B]` correlation of the vorticities.
        energy: `[T, B]` difference of the kinetic energies over the true one, with its sign.
        structure: `[B]` relative error of the second-order structure function of the velocity over
            the last quarter, mean over distances.
        enstrophy: `[T, B]` difference of the enstrophies `<w^2> / 2` over the true one.
        energy_spectrum: `[K]` of the last quarter, mean over trajectories, over the true one; NaN
            where that is round-off (`metrics.energy_spectrum`).
    """

    vorticity: jax.Array
    energy: jax.Array
    structure: jax.Array
    enstrophy: jax.Array
    energy_spectrum: jax.Array


def find_flow(found: FieldSet) -> Flow | None:
    """The flow in a set over a square that is periodic along both axes; None where there is none
    by a known name, or the domain is no square."""
    grid, names = found.shape[3:], [name.lower() for name in found.channels]
    if len(grid) != 2 or grid[0] != grid[1] or set(found.boundaries) != {"periodic"}:
        return None
    if np.isfinite(found.extent).all() and not np.allclose(*found.extent.T):
        return None
    for wanted in KNOWN:
        if set(wanted) <= set(names):
            return Flow(tuple(names.index(name) for name in wanted))
    return None


def flow_errors(flow: Flow, prediction: jax.Array, truth: jax.Array) -> FlowErrors:
    """Compare `[T, B, C, N, N]` in the data's own units."""
    vorticities = [flow.vorticity(fields) for fields in (prediction, truth)]
    correlation = metrics.correlation(*vorticities)
    twisted, true_enstrophy = (metrics.energy(w, 2) for w in vorticities)
    velocities = [flow.velocity(fields) for fields in (prediction, truth)]
    predicted, true = (metrics.energy(v, 2) for v in velocities)
    ends = [v[3 * len(v) // 4 :] for v in velocities]
    late, true_late = (metrics.structure_function(v, 2).mean(0) for v in ends)
    structure = (jnp.abs(late - true_late) / true_late).mean(-1)
    enstrophy = (twisted - true_enstrophy) / true_enstrophy
    spectrum, true_spectrum = (metrics.energy_spectrum(v, 2).mean((0, 1)) for v in ends)
    known = true_spectrum > ROUND_OFF * true_spectrum.max()
    ratio = jnp.where(known, spectrum / jnp.where(known, true_spectrum, 1.0), jnp.nan)
    return FlowErrors(correlation, (predicted - true) / true, structure, enstrophy, ratio)
