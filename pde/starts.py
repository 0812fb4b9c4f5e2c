"""Random initial fields, by name.

sines        sums of sines along one axis (Brandstetter et al. 2022)
faint        small waves along one axis, from which instabilities grow
ripples      sums of waves along the plane
vortices     Gaussian vorticity with a broad peak
shear_layer  two layers that roll up (the family NS-SL of Poseidon)
piecewise    vorticity that is constant on the fields of a board (its family NS-PwC)
squares      Gray and Scott's: the second species in some squares, the first everywhere else

Vorticity is the curl (`flows`), and has nothing from a third of the grid's wavenumbers on, which
de-aliasing would only let decay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .spectral import lengths


class Domain(NamedTuple):
    """What a field begins on.

    Attributes:
        points: points of the grid, along every axis.
        extent: length of every axis; may be traced.
        channels: channels of the field.
    """

    points: int
    extent: jax.Array | float
    channels: int = 1


Start = Callable[[jax.Array, Domain], jax.Array]


def sines(key: jax.Array, on: Domain, *, terms: int = 10, modes: int = 2) -> jax.Array:
    """A random initial field for any domain, on which `x / L` runs from 0 to 1: `[1, points]`.

    The sum of `terms` sines `A sin(2 pi l x / L + phi)` with A in [-.5, .5] and l up to `modes`
    (Brandstetter et al. 2022).
    """
    amplitude_key, mode_key, phase_key = jax.random.split(key, 3)
    amplitude = jax.random.uniform(amplitude_key, (terms, 1), minval=-0.5, maxval=0.5)
    mode = jax.random.randint(mode_key, (terms, 1), 1, modes + 1)
    phase = jax.random.uniform(phase_key, (terms, 1), maxval=2 * jnp.pi)
    x = jnp.arange(on.points) / on.points
    return (amplitude * jnp.sin(2 * jnp.pi * mode * x + phase)).sum(0, keepdims=True)


def faint(
    key: jax.Array, on: Domain, *, modes: int = 6, std: tuple[float, float] = (0.01, 0.1)
) -> jax.Array:
    """Gaussian waves `[1, points]` of wavenumbers 1 to `modes`, all equally strong on average.

    The field's standard deviation is drawn from `std`, its logarithm uniformly.
    """
    wave_key, std_key = jax.random.split(key)
    weights = jax.random.normal(wave_key, (2, modes, 1))
    turns = 2 * jnp.pi * jnp.arange(1, modes + 1)[:, None] * jnp.arange(on.points) / on.points
    field = (weights[0] * jnp.sin(turns) + weights[1] * jnp.cos(turns)).sum(0, keepdims=True)
    low, high = np.log(std)
    size = jnp.exp(jax.random.uniform(std_key, minval=low, maxval=high))
    return field * (size / field.std())


def ripples(key: jax.Array, on: Domain, *, terms: int = 6) -> jax.Array:
    """Sums of waves `A sin(k . x + phi)` along the plane, `[channels, N, N]`; A in [-.5, .5] and
    both wavenumbers from -2 to 2 waves across the domain."""
    amplitude_key, mode_key, phase_key = jax.random.split(key, 3)
    shape = (on.channels, terms, 1, 1)
    amplitude = jax.random.uniform(amplitude_key, shape, minval=-0.5, maxval=0.5)
    mode = jax.random.randint(mode_key, (2, *shape), -2, 3)
    phase = jax.random.uniform(phase_key, shape, maxval=2 * jnp.pi)
    x = jnp.arange(on.points) / on.points
    turns = mode[0] * x[:, None] + mode[1] * x
    return (amplitude * jnp.sin(2 * jnp.pi * turns + phase)).sum(1)


STD = (1.0, 4.0)  # of a random vorticity


def vortices(
    key: jax.Array, on: Domain, *, peak: float = 4.0, std: tuple[float, float] = STD
) -> jax.Array:
    """A random vorticity `[1, N, N]` without a mean.

    Gaussian, its amplitude `|k| exp(-(|k| / peak)^2)`; its standard deviation is drawn uniformly
    from `std`.
    """
    field_key, std_key = jax.random.split(key)
    length = lengths((on.points, on.points))
    white = jnp.fft.rfft2(jax.random.normal(field_key, (on.points, on.points)))
    return _sized(std_key, white * length * jnp.exp(-jnp.square(length / peak)), on.points, std)


def piecewise(
    key: jax.Array, on: Domain, *, board: int = 10, std: tuple[float, float] = STD
) -> jax.Array:
    """A vorticity `[1, N, N]` that is constant on the fields of a board, without a mean.

    Uniformly random on each of `board x board` fields (Poseidon's NS-PwC), their edges rounded over
    a point; its standard deviation is drawn uniformly from `std`.
    """
    value_key, std_key = jax.random.split(key)
    values = jax.random.uniform(value_key, (board, board), minval=-1.0)
    where = np.arange(on.points) * board // on.points
    length = lengths((on.points, on.points))
    rounded = jnp.exp(-jnp.square(jnp.pi * length / on.points) / 2)  # by a point's deviation
    return _sized(std_key, jnp.fft.rfft2(values[where][:, where]) * rounded, on.points, std)


def shear_layer(
    key: jax.Array,
    on: Domain,
    *,
    sharpness: tuple[float, float] = (10.0, 25.0),
    push: tuple[float, float] = (0.02, 0.1),
    waves: int = 3,
) -> jax.Array:
    """The vorticity `[1, N, N]` of two layers that roll up (Bell et al. 1989; Poseidon's NS-SL).

    With x, y in lengths of the domain, y moved by a random distance,

        v_0 = tanh(s (y - 1/4)) up to y = 1/2, tanh(s (3/4 - y)) above,
        v_1 = d sin(2 pi m (x + phi)),

    s drawn uniformly from `sharpness`, d from `push`, m from 1 to `waves`. A layer is `1 / s` of
    the domain thick: below two points of the grid it is cut off, so take a finer one.
    """
    keys = jax.random.split(key, 5)
    s, d = (
        jax.random.uniform(k, (), minval=low, maxval=high)
        for k, (low, high) in zip(keys[:2], (sharpness, push), strict=True)
    )
    m = jax.random.randint(keys[2], (), 1, waves + 1)
    moved, phase = jax.random.uniform(keys[3]), jax.random.uniform(keys[4])
    x = jnp.arange(on.points) / on.points
    y = (x + moved) % 1.0
    rising, falling = (s / jnp.cosh(s * (y - at)) ** 2 for at in (0.25, 0.75))
    across = jnp.where(y <= 0.5, rising, -falling)
    along = 2 * jnp.pi * m * d * jnp.cos(2 * jnp.pi * m * (x + phase))
    w = (along[:, None] - across + across.mean()) / on.extent
    return _kept(jnp.fft.rfft2(w), on.points)[None]


def squares(key: jax.Array, on: Domain, *, count: int = 8, side: float = 0.15) -> jax.Array:
    """Two species `[2, N, N]`: 1 and 0, but 1/2 and 1/4 in `count` squares of random places, with
    edges rounded over two points, and noise of a hundredth (after Pearson 1993)."""
    place_key, noise_key = jax.random.split(key)
    x = jnp.arange(on.points) / on.points
    places = jax.random.uniform(place_key, (count, 2, 1))
    away = jnp.abs((x - places + 0.5) % 1.0 - 0.5)  # around the circle
    inside = jax.nn.sigmoid((side / 2 - away) * on.points)
    hit = 1 - jnp.prod(1 - inside[:, 0, :, None] * inside[:, 1, None, :], 0)
    noise = 0.01 * jax.random.normal(noise_key, (2, on.points, on.points))
    fields = jnp.stack([1 - hit / 2, hit / 4]) + noise * hit
    return jnp.clip(fields, 0.0, 1.0)


STARTS: dict[str, Start] = {
    start.__name__: start
    for start in (sines, faint, ripples, vortices, shear_layer, piecewise, squares)
}


def _kept(modes: jax.Array, points: int) -> jax.Array:
    """The field of the modes below a third of the grid's wavenumbers."""
    return jnp.fft.irfft2(modes * (lengths((points, points)) < points / 3), (points, points))


def _sized(key: jax.Array, modes: jax.Array, points: int, std: tuple[float, float]) -> jax.Array:
    """The field `[1, N, N]` of the modes, without their mean, of a random standard deviation."""
    field = _kept(modes.at[0, 0].set(0.0), points)
    size = jax.random.uniform(key, minval=std[0], maxval=std[1])
    return (field * (size / field.std()))[None]
