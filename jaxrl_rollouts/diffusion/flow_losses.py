"""The three losses of a `Flow`; `u` is its average velocity, v = e - x or the teacher's.

velocity:    |u(x_t, t, t) - v|^2.
mean:        |u(x_t, t, s) - sg(v - (t - s) du/dt)|^2, the derivative along v (MeanFlow's identity).
consistency: |u(x_t, t, t0) - sg((x_t - end) / (t - t0))|, end = x_s - (s - t0) u(x_s, s, t0), where
             x_s is one midpoint step of v from t towards the start t0 of t's segment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import draws
from ..trees import PyTree
from .edm import per_row

MEAN_FLOOR = 0.01  # c of MeanFlow's weight


class Batch(NamedTuple):
    """Rows `[B, ...]`, their weights and the teacher's parameters."""

    rows: jax.Array
    weights: jax.Array | None
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
    rows = batch.rows
    time_key, noise_key = jax.random.split(key)
    t, noise = draw_times(config, time_key, rows.shape[:1]), draws.normal(noise_key, rows.shape)
    error = average(params, linear_point(rows, noise, t), t, t) - (noise - rows)
    return mean_of_rows(*row_errors(error, batch.weights))


def mean(
    config: Any, average: Callable, teacher: Any, params: PyTree, key: jax.Array, batch: Batch
) -> jax.Array:
    """MeanFlow: one forward derivative, which no gradient goes through."""
    rows, weights, taught = batch
    time_key, noise_key, equal_key = jax.random.split(key, 3)
    pair = jnp.sort(draw_times(config, time_key, (len(rows), 2)), -1)
    t = pair[:, 1]
    s = jnp.where(jax.random.bernoulli(equal_key, config.equal, t.shape), t, pair[:, 0])
    noise = draws.normal(noise_key, rows.shape)
    x = linear_point(rows, noise, t)
    v = noise - rows if teacher is None else teacher.average(taught, x, t, t)
    u, target = mean_target(functools.partial(average, params), x, t, s, v)
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
    rows, weights, taught = batch
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
        there = midpoint(lambda x, t: teacher.average(taught, x, t, t), x, t, s)
    u, target = consistency_target(functools.partial(average, params), x, there, t, s, t0)
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


LOSS_OF: dict[str, Callable] = {"velocity": velocity, "mean": mean, "consistency": consistency}
