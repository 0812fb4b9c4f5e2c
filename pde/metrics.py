"""Errors of a rollout of a field, and its valid time.

Shapes: fields `[..., C, *space]`; a rollout's curves are time-major, `[T, B]`, as the engine's
trajectories are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from .spectral import mirrored, ratios, waves

TINY = float(np.finfo(np.float32).tiny)


def _direction(field: jax.Array, batch_dims: int) -> jax.Array:
    """Centred and of length 1 over all but the batch, `[*batch, points]`; constants become 0.

    Each field is scaled by its own norm, as the product of two small variances would underflow.
    """
    flat = field.reshape(*field.shape[:batch_dims], -1)
    flat = flat - flat.mean(-1, keepdims=True)
    return flat / jnp.maximum(jnp.linalg.norm(flat, axis=-1, keepdims=True), TINY)


def correlation(prediction: jax.Array, truth: jax.Array, *, batch_dims: int = 2) -> jax.Array:
    """Pearson correlation over channels and space, mean-centred (PDE-Refiner's metric).

    Args:
        prediction, truth: `[*batch, C, *space]`.
        batch_dims: number of leading axes that are not correlated over; 2 for `[T, B, C, *space]`.

    Returns:
        `[*batch]` in [-1, 1]; 0 where either field is constant.
    """
    chex.assert_equal_shape([prediction, truth])
    return (_direction(prediction, batch_dims) * _direction(truth, batch_dims)).sum(-1)


def high_correlation_time(
    correlations: np.ndarray | jax.Array, dt: float, threshold: float = 0.8
) -> float:
    """Time for which the *mean curve* over trajectories stays above `threshold` (the paper's).

    Args:
        correlations: `[T, B]` of a rollout; step `t` lies `(t + 1) * dt` after the start.
        dt: time per step.
        threshold: 0.8 and 0.9 in the paper.

    Returns:
        Number of steps whose mean correlation exceeds the threshold, times `dt`.
    """
    curve = np.asarray(correlations, np.float64).mean(1)
    return float((curve > threshold).sum() * dt)


def correlation_horizons(
    correlations: np.ndarray | jax.Array, dt: float, threshold: float = 0.8
) -> np.ndarray:
    """Time until each trajectory *first* falls to `threshold` or below, `[B]`.

    Its mean is not `high_correlation_time`: early failures drag the mean curve down, so that one
    is usually shorter. A trajectory that never falls counts with the whole rollout.
    """
    above = np.asarray(correlations) > threshold
    return np.where(above.all(0), len(above), above.argmin(0)) * dt


def _squares(error: jax.Array, batch_dims: int) -> jax.Array:
    return jnp.square(error).mean(tuple(range(batch_dims + 1, error.ndim)))


def nrmse(prediction: jax.Array, truth: jax.Array, *, batch_dims: int = 2) -> jax.Array:
    """Root mean square error over that of the truth itself, mean over channels: `[*batch]`."""
    squared = _squares(prediction - truth, batch_dims) / (_squares(truth, batch_dims) + TINY)
    return jnp.sqrt(squared).mean(-1)


def vrmse(prediction: jax.Array, truth: jax.Array, *, batch_dims: int = 2) -> jax.Array:
    """Root mean square error over the truth's standard deviation in space: `[*batch]`.

    The Well's headline metric: `sqrt(MSE / (var + 1e-7))`, its variance the unbiased one. A
    constant at the right mean has `sqrt(1 - 1 / points)`.
    """
    space = tuple(range(batch_dims + 1, truth.ndim))
    variance = truth.var(space, ddof=1)
    squared = _squares(prediction - truth, batch_dims) / (variance + 1e-7)
    return jnp.sqrt(squared).mean(-1)


def relative_l1(prediction: jax.Array, truth: jax.Array, *, batch_dims: int = 2) -> jax.Array:
    """`mean |p - t| / mean |t|` over space, mean over channels: `[*batch]`.

    Of fields in their own units: it depends on where zero is. Poseidon and DRIFT-Net divide sums
    over the channels of a group, a velocity's together.
    """
    space = tuple(range(batch_dims + 1, truth.ndim))
    size = jnp.abs(truth).mean(space)
    return (jnp.abs(prediction - truth).mean(space) / (size + 1e-10)).mean(-1)


def energy(velocity: jax.Array, axes: int) -> jax.Array:
    """Kinetic energy `<|v|^2> / 2` of velocities `[..., D, *N]`: `[...]`."""
    return jnp.square(velocity).mean(tuple(range(-axes, 0))).sum(-1) / 2


def energy_spectrum(velocity: jax.Array, axes: int, extent: Sequence[float] = ()) -> jax.Array:
    """Kinetic energy per physical wavenumber, `E(k) = sum_{|k| in shell} |F(v)|^2 / 2`.

    By Parseval's identity its sum over `k` is `energy`, of fields without modes beyond the last
    shell (the corners of the transform).

    Args:
        velocity: `[..., D, *N]`, periodic.
        axes: axes of space.
        extent: as of `shells`.

    Returns:
        `[..., K]`; `K` as of `shells`.
    """
    shape = velocity.shape[-axes:]
    modes = jnp.fft.rfftn(velocity, axes=tuple(range(-axes, 0)), norm="forward")
    # Of a real field's transform the last axis holds each pair k, -k once.
    last = np.arange(shape[-1] // 2 + 1)
    twice = np.where((last == 0) | (2 * last == shape[-1]), 1.0, 2.0)
    power = (jnp.square(jnp.abs(modes)) * twice).sum(-axes - 1) / 2
    shell, count = shells(shape, extent)
    member = np.arange(count)[:, None] == shell.reshape(-1)
    flat = power.reshape(*power.shape[:-axes], -1)
    return flat @ jnp.asarray(member.T, flat.dtype)


def structure_function(field: jax.Array, axes: int) -> jax.Array:
    """`S2(r) = <|u(x + r) - u(x)|^2>`, summed over channels, mean over the axes, `[..., N // 2]`.

    Args:
        field: `[..., C, *N]`, periodic, on as many points along each axis.
        axes: axes of space.
    """
    half = field.shape[-1] // 2
    over = tuple(range(-axes, 0))

    def apart(r: jax.Array) -> jax.Array:
        moved = [jnp.square(jnp.roll(field, -r, axis) - field).mean(over).sum(-1) for axis in over]
        return jnp.stack(moved).mean(0)

    return jnp.moveaxis(jax.lax.map(apart, jnp.arange(1, half + 1)), 0, -1)


def shells(
    shape: Sequence[int], extent: Sequence[float] = (), boundaries: Sequence[str] = ()
) -> tuple[np.ndarray, int]:
    """Physical wavenumber of every bin of a field's transform, rounded, and how many there are.

    The unit is a wave along the longest axis; the highest number is that of the axis whose grid
    resolves most.

    Args:
        shape: points per axis.
        extent: length of every axis; () for grid cells that are as long along each.
        boundaries: boundaries of every axis; others than periodic ones are mirrored
            (`spectral.mirrored`).

    Returns:
        `[*bins]` whole numbers, and `K`, one more than the highest.
    """
    walls = _walls(boundaries, len(shape))
    longer = ratios(shape, extent)
    scale = [r / 2 if wall else r for r, wall in zip(longer, walls, strict=True)]
    doubled = [2 * n if wall else n for n, wall in zip(shape, walls, strict=True)]
    both = waves(doubled) * np.reshape(scale, (-1, *(1,) * len(shape)))
    highest = max(n // 2 * r for n, r in zip(doubled, scale, strict=True))
    # Half wavenumbers, of mirrored axes, go up: two to a shell.
    numbers = np.floor(np.sqrt(np.square(both).sum(0)) + 0.5).astype(int)
    return numbers, int(np.floor(highest + 0.5)) + 1


def _walls(boundaries: Sequence[str], axes: int) -> tuple[bool, ...]:
    return tuple(kind not in ("", "periodic") for kind in boundaries) or (False,) * axes


def spectrum(
    field: jax.Array | np.ndarray,
    *,
    space_dims: int = 1,
    extent: Sequence[float] = (),
    boundaries: Sequence[str] = (),
) -> jax.Array:
    """Mean amplitude `|rfft|` per physical wavenumber, `[..., C, K]`; `K` as of `shells`.

    Unnormalised, as the paper's figures are: unit white noise on N points has 0.886 sqrt(N). Along
    axes that are not periodic it is a cosine transform's, so that ends that differ are no jump.

    Args:
        field: `[..., C, *space]`.
        space_dims: axes of space.
        extent, boundaries: as of `shells`.
    """
    shape = field.shape[-space_dims:]
    walls = _walls(boundaries, space_dims)
    values = mirrored(jnp.asarray(field), walls)
    amplitude = jnp.abs(jnp.fft.rfftn(values, axes=tuple(range(-space_dims, 0))))
    amplitude = amplitude / 2 ** sum(walls)  # as many points twice
    if space_dims == 1 and not any(walls):
        return amplitude
    shell, count = shells(shape, extent, boundaries)
    member = np.arange(count)[:, None] == shell.reshape(-1)
    weights = member / np.maximum(member.sum(1, keepdims=True), 1)
    flat = amplitude.reshape(*amplitude.shape[:-space_dims], -1)
    return flat @ jnp.asarray(weights.T, flat.dtype)


def mean_spectrum(
    field: jax.Array | np.ndarray,
    *,
    space_dims: int = 1,
    extent: Sequence[float] = (),
    boundaries: Sequence[str] = (),
) -> jax.Array:
    """`spectrum` averaged over all leading axes and channels: `[K]`."""
    found = spectrum(field, space_dims=space_dims, extent=extent, boundaries=boundaries)
    return found.reshape(-1, found.shape[-1]).mean(0)


def cross_correlation(samples: jax.Array) -> jax.Array:
    """Mean pairwise correlation of samples `[S, T, B, C, *space]`: `[T, B]`.

    Where it falls, the samples no longer agree: `correlation_horizons` of it predicts for how
    long a rollout can be trusted, without the truth (PDE-Refiner, uncertainty).
    """
    count = samples.shape[0]
    unit = _direction(samples, 3)
    # The sum over pairs i != j is |sum u|^2 - sum |u|^2.
    alone = jnp.square(unit).sum((0, -1))
    pairs = jnp.square(unit.sum(0)).sum(-1) - alone
    return pairs / (count * (count - 1))


def white_noise_amplitude(points: int) -> float:
    """Mean `|rfft|` of unit white noise away from the ends of the spectrum."""
    return math.sqrt(math.pi * points) / 2.0
