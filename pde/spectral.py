"""Fields of real values in Fourier space: cut off, and brought to other grids.

Transforms are `rfftn`'s: the last axis has no negative wavenumbers; along the others they follow
the positive ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np


def ratios(shape: Sequence[int], extent: Sequence[float] = ()) -> tuple[float, ...]:
    """Length of the longest axis over that of each.

    Args:
        shape: points per axis.
        extent: length of every axis; () or NaN for grid cells that are as long along each.
    """
    known = len(extent) == len(shape) and all(length > 0 for length in extent)
    sizes = extent if known else shape
    return tuple(float(max(sizes)) / float(size) for size in sizes)


def waves(shape: Sequence[int], extent: Sequence[float] | None = None) -> np.ndarray:
    """Wave vector of every `rfftn` bin of a grid: `[axes, *bins]`.

    Args:
        shape: points per axis.
        extent: as of `ratios`: components are then physical, in waves along the longest axis; None
            for waves along each axis itself.
    """
    axes = [np.fft.fftfreq(n, 1.0 / n) for n in shape[:-1]]
    axes.append(np.fft.rfftfreq(shape[-1], 1.0 / shape[-1]))
    if extent is not None:
        axes = [k * ratio for k, ratio in zip(axes, ratios(shape, extent), strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def lengths(shape: Sequence[int], extent: Sequence[float] | None = None) -> np.ndarray:
    """Length of the wave vector of every `rfftn` bin of a grid; arguments as of `waves`."""
    return np.sqrt(np.square(waves(shape, extent)).sum(0))


def mirrored(field: jax.Array, walls: Sequence[bool]) -> jax.Array:
    """A field `[..., *N]` with its mirror image behind the axes that end at walls, `[..., *2N]`.

    Its Fourier transform is the cosine transform (DCT-II) of the field: wavenumber `j` stands for
    `j / 2` waves along the axis.
    """
    for axis, wall in enumerate(walls):
        if wall:
            at = field.ndim - len(walls) + axis
            field = jnp.concatenate([field, jnp.flip(field, at)], at)
    return field


def filtered(field: jax.Array, gain: jax.Array | np.ndarray, axes: int = 1) -> jax.Array:
    """A field `[..., *N]` whose modes are multiplied by `gain` `[..., *bins]`."""
    over = tuple(range(-axes, 0))
    modes = jnp.fft.rfftn(field, axes=over) * gain
    return jnp.fft.irfftn(modes, s=field.shape[-axes:], axes=over)


def resampled(field: jax.Array, points: int, axes: int = 1) -> jax.Array:
    """A field `[..., *N]` on `points` along each of its last `axes`; even numbers of points.

    Exact for a field without modes from half the smaller grid's points on; others lose those,
    which striding would turn into lower ones.
    """
    space, over = field.shape[-axes:], tuple(range(-axes, 0))
    modes = jnp.fft.rfftn(field, axes=over)
    for axis, n in zip(over, space, strict=True):
        keep, k = min(n, points) // 2, np.arange(modes.shape[axis])
        along = k if axis == -1 else np.minimum(k, n - k)
        modes = modes * (along < keep).reshape(-1, *(1,) * (-1 - axis))
        if axis != -1:
            modes = scatter_modes(gather_modes(modes, keep, axis), points, axis)
    size = float(np.prod([points / n for n in space]))
    return jnp.fft.irfftn(modes[..., : points // 2 + 1], s=(points,) * axes, axes=over) * size


def gather_modes(x: jax.Array, keep: int, axis: int) -> jax.Array:
    """The first and the last entries of an axis: wavenumbers 0 .. keep - 1 and -keep .. -1."""
    if x.shape[axis] == 2 * keep:
        return x
    first = jax.lax.slice_in_dim(x, 0, keep, axis=axis)
    last = jax.lax.slice_in_dim(x, x.shape[axis] - keep, None, axis=axis)
    return jnp.concatenate([first, last], axis)


def scatter_modes(x: jax.Array, points: int, axis: int) -> jax.Array:
    """Nothing between the halves of an axis, so that it has `points` entries."""
    first, last = jnp.split(x, 2, axis)
    shape = list(x.shape)
    shape[axis] = points - x.shape[axis]
    return jnp.concatenate([first, jnp.zeros(shape, x.dtype), last], axis)
