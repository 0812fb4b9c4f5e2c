"""The four losses of a `Flow`; `u` is its average velocity, v = e - x or the teacher's.

velocity:    |u(x_t, t, t) - v|^2.
mean:        |u(x_t, t, s) - sg(v - (t - s) du/dt)|^2, the derivative along v (MeanFlow's identity).
consistency: |u(x_t, t, t0) - sg((x_t - end) / (t - t0))|, end = x_s - (s - t0) u(x_s, s, t0), where
             x_s is one midpoint step of v from t towards the start t0 of t's segment.
unified:     |F - sg(F - gain alpha / den 4 / sin(1.57 t) df/dt)| cos(1.57 t), f = x^(x_t, t) by F.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import draws
from ..trees import PyTree
from . import paths
from .edm import per_row

MEAN_FLOOR = 0.01  # c of MeanFlow's weight
QUARTER = 1.57  # of a turn, as UCGM's code has it: sin and cos end a little off 1 and 0


class Batch(NamedTuple):
    """Rows `[B, ...]`, their weights, conditions `[B, K + 1]` and the teacher's parameters."""

    rows: jax.Array
    weights: jax.Array | None
    condition: jax.Array | None
    taught: PyTree


def row_errors(error: jax.Array, weights: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Mean square of every row's weighted entries `[B]`, and their total weight `[B]`."""
    axes = tuple(range(1, error.ndim))
    if weights is None:
        return jnp.square(error).mean(axes), jnp.full(error.shape[:1], error[0].size, jnp.float32)
    weights = jnp.broadcast_to(weights, error.shape)
    total = weights.sum(axes)
    return (weights * jnp.square(error)).sum(axes) / jnp.maximum(total, 1e-12), total


def mean_of_rows(value: jax.Array, total: jax.Array) -> jax.Array:
    """Mean over entries of what is one number a row."""
    return (value * total).sum() / jnp.maximum(total.sum(), 1.0)


def pseudo_huber(square: jax.Array, c: float) -> jax.Array:
    """`sqrt(square + c^2) - c`, of a mean square."""
    return jnp.sqrt(square + c**2) - c


def draw_times(config: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Times of training within (0, 1)."""
    if config.times == "uniform":
        return jax.random.uniform(key, shape, minval=1e-4, maxval=1.0)
    return jax.nn.sigmoid(config.time_mean + config.time_std * draws.normal(key, shape))


def linear_point(rows: jax.Array, noise: jax.Array, t: jax.Array) -> jax.Array:
    """`(1 - t) x + t e`."""
    wide = per_row(t, rows)
    return (1.0 - wide) * rows + wide * noise


def velocity(
    config: Any, average: Callable, teacher: Any, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """Flow matching."""
    del teacher
    return regression(config, "linear", average, params, key, batch)


def regression(
    config: Any, path: str, average: Callable, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """`mean |F - F*|^2` on a path, F from the velocity at the same noise."""
    rows = batch.rows
    time_key, noise_key = jax.random.split(key)
    t, noise = draw_times(config, time_key, rows.shape[:1]), draws.normal(noise_key, rows.shape)
    place = paths.at(paths.TRANSPORTS[path], per_row(t, rows))
    found = output_at(
        average, params, place, paths.point(place, rows, noise), False, batch.condition
    )
    return mean_of_rows(*row_errors(found - paths.target(place, rows, noise), batch.weights))


def output_at(
    average: Callable,
    params: PyTree,
    place: paths.Coefficients,
    x: jax.Array,
    jump: bool,
    condition: jax.Array | None,
) -> jax.Array:
    """F at a path's point, from the velocity there or from the jump to data."""
    t, total = paths.linear_time(place)
    flat = t.reshape(len(x))
    u = average(params, x / total, flat, jnp.zeros_like(flat) if jump else flat, condition)
    return paths.output_of_velocity(place, x / total, u)


def mean(
    config: Any, average: Callable, teacher: Any, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """MeanFlow: one forward derivative, which no gradient goes through."""
    rows, weights, condition, taught = batch
    time_key, noise_key, equal_key = jax.random.split(key, 3)
    pair = jnp.sort(draw_times(config, time_key, (len(rows), 2)), -1)
    t = pair[:, 1]
    s = jnp.where(jax.random.bernoulli(equal_key, config.equal, t.shape), t, pair[:, 0])
    noise = draws.normal(noise_key, rows.shape)
    x = linear_point(rows, noise, t)
    v = noise - rows if teacher is None else teacher.average(taught, x, t, t, condition)
    u, target = mean_target(lambda *at: average(params, *at, condition), x, t, s, v)
    square, total = row_errors(u - target, weights)
    scale = jax.lax.stop_gradient(square * total + MEAN_FLOOR) ** -config.power
    return mean_of_rows(scale * square, total)


def mean_target(
    average: Callable, x: jax.Array, t: jax.Array, s: jax.Array, v: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`u(x, t, s)` and `v - (t - s) (v du/dx + du/dt)`, the second without a gradient."""
    u, slope = jax.jvp(average, (x, t, s), (v, jnp.ones_like(t), jnp.zeros_like(s)))
    return u, jax.lax.stop_gradient(v - per_row(t - s, x) * slope)


def consistency(
    config: Any, average: Callable, teacher: Any, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """Multistep consistency on the linear path, distilled or, biased by 1 / n, from data."""
    rows, weights, condition, taught = batch
    place_key, noise_key = jax.random.split(key)
    count = config.segments * config.steps
    step = jax.random.randint(place_key, rows.shape[:1], 0, count)
    t0 = (step // config.steps) / config.segments
    t, s = (step + 1) / count, step / count
    noise = draws.normal(noise_key, rows.shape)
    x = linear_point(rows, noise, t)
    if teacher is None:
        there = x - per_row(t - s, x) * (noise - rows)
    else:
        there = midpoint(lambda x, t: teacher.average(taught, x, t, t, condition), x, t, s)
    u, target = consistency_target(lambda *at: average(params, *at, condition), x, there, t, s, t0)
    square, total = row_errors(u - target, weights)
    return mean_of_rows(pseudo_huber(square, config.huber), total)


def midpoint(velocity: Callable, x: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
    """One step of second order from t to s; two calls."""
    half = 0.5 * (t + s)
    middle = x - per_row(t - half, x) * velocity(x, t)
    return x - per_row(t - s, x) * velocity(middle, half)


def consistency_target(
    average: Callable, x: jax.Array, there: jax.Array, t: jax.Array, s: jax.Array, t0: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`u(x, t, t0)`, and the average velocity that ends where `u` does from `there`, at s."""
    end = there - per_row(s - t0, x) * average(there, s, t0)
    return average(x, t, t0), jax.lax.stop_gradient((x - end) / per_row(t - t0, x))


def unified(
    config: Any, average: Callable, teacher: Any, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """UCGM: velocities, or a consistency model, by one ratio."""
    if config.ratio == 0:
        return regression(config, config.path, average, params, key, batch)
    rows, weights, condition, taught = batch
    time_key, noise_key = jax.random.split(key)
    transport = paths.TRANSPORTS[config.path]
    t = jax.random.uniform(time_key, rows.shape[:1], minval=1e-4, maxval=1.0) ** (1.0 / 0.8)
    wide, noise = per_row(t, rows), draws.normal(noise_key, rows.shape)
    place = paths.at(transport, wide)
    x = paths.point(place, rows, noise)
    if config.push:
        # The teacher's own pair of ends has the same point between them.
        known = output_at(teacher.average, taught, place, x, False, condition)
        rows = rows + config.push * (paths.clean(place, x, known) - rows)
        noise = noise + config.push * (paths.noise(place, x, known) - noise)

    def clean(wide: jax.Array) -> jax.Array:
        here = paths.at(transport, wide)
        y = paths.point(here, rows, noise)
        return paths.clean(here, y, output_at(average, params, here, y, True, condition))

    if config.ratio == 1:
        _, slope = jax.jvp(clean, (wide,), (jnp.ones_like(wide),))
    else:
        slope = (clean(wide) - clean(config.ratio * wide)) / ((1.0 - config.ratio) * wide)
    found = output_at(average, params, place, x, True, condition)
    factor = config.gain * place.alpha / place.den * 4.0 / jnp.sin(QUARTER * wide)
    target = jax.lax.stop_gradient(found - factor * jnp.clip(slope, -1.0, 1.0))
    square, total = row_errors(found - target, weights)
    return mean_of_rows(pseudo_huber(square, config.huber) * jnp.cos(QUARTER * t), total)


LOSS_OF: dict[str, Callable] = {
    "velocity": velocity,
    "mean": mean,
    "consistency": consistency,
    "unified": unified,
}
