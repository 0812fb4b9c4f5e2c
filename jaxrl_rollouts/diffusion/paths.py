"""Ways from data to noise, `x_t = alpha(t) e + gamma(t) x`, t from 0 (data x) to 1 (noise e).

A second pair (alpha^, gamma^) says what a network regresses, `F* = alpha^ e + gamma^ x`; from `F`
and `x_t` both ends follow. Up to its clock and its size every such point is one of the linear path:
`x_t / (alpha + gamma)` at `alpha / (alpha + gamma)`, so one network serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Coefficient = Callable[[jax.Array], jax.Array]


class Transport(NamedTuple):
    """Four functions of `t`; `alpha gamma^ - gamma alpha^` is not zero within (0, 1)."""

    alpha: Coefficient
    gamma: Coefficient
    alpha_hat: Coefficient
    gamma_hat: Coefficient


class Coefficients(NamedTuple):
    """The four coefficients at some times and `den = alpha gamma^ - gamma alpha^`."""

    alpha: jax.Array
    gamma: jax.Array
    alpha_hat: jax.Array
    gamma_hat: jax.Array
    den: jax.Array


def _quarter(t: jax.Array) -> jax.Array:
    return 0.5 * math.pi * t


def _edm_noise(t: jax.Array) -> jax.Array:
    return jnp.exp(4.0 * (2.68 * t - 1.59))


def _edm_total(t: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(_edm_noise(t)) + 0.25)


TRANSPORTS: dict[str, Transport] = {
    # Flow matching: F* is the velocity e - x.
    "linear": Transport(lambda t: t, lambda t: 1.0 - t, jnp.ones_like, lambda t: -jnp.ones_like(t)),
    "trigonometric": Transport(
        lambda t: jnp.sin(_quarter(t)),
        lambda t: jnp.cos(_quarter(t)),
        lambda t: jnp.cos(_quarter(t)),
        lambda t: -jnp.sin(_quarter(t)),
    ),
    "linear_trigonometric": Transport(
        lambda t: jnp.sin(_quarter(t)),
        lambda t: jnp.cos(_quarter(t)),
        jnp.ones_like,
        lambda t: -jnp.ones_like(t),
    ),
    # Karras et al. 2022 with data of standard deviation one half, as UCGM has it.
    "edm": Transport(
        lambda t: _edm_noise(t) / _edm_total(t),
        lambda t: 1.0 / _edm_total(t),
        lambda t: -0.5 / _edm_total(t),
        lambda t: 2.0 * _edm_noise(t) / _edm_total(t),
    ),
}


def at(transport: Transport, t: jax.Array) -> Coefficients:
    """The coefficients at times `t`, each shaped as `t`."""
    a, g, a_hat, g_hat = (function(t) for function in transport)
    return Coefficients(a, g, a_hat, g_hat, a * g_hat - g * a_hat)


def point(place: Coefficients, data: jax.Array, noise: jax.Array) -> jax.Array:
    """`x_t = alpha e + gamma x`."""
    return place.alpha * noise + place.gamma * data


def target(place: Coefficients, data: jax.Array, noise: jax.Array) -> jax.Array:
    """`F* = alpha^ e + gamma^ x`."""
    return place.alpha_hat * noise + place.gamma_hat * data


def clean(place: Coefficients, x: jax.Array, output: jax.Array) -> jax.Array:
    """`x^ = (alpha F - alpha^ x_t) / den`, the data's end of the path through `x_t`."""
    return (place.alpha * output - place.alpha_hat * x) / place.den


def noise(place: Coefficients, x: jax.Array, output: jax.Array) -> jax.Array:
    """`e^ = (gamma^ x_t - gamma F) / den`, its other end."""
    return (place.gamma_hat * x - place.gamma * output) / place.den


def linear_time(place: Coefficients) -> tuple[jax.Array, jax.Array]:
    """Time of the same noise on the linear path, and what `x_t` is divided by to lie there."""
    total = place.alpha + place.gamma
    return place.alpha / total, total


def output_of_velocity(place: Coefficients, x: jax.Array, velocity: jax.Array) -> jax.Array:
    """`F` at the linear path's point `x`, where it is `velocity`.

    `x^ = x - t v` and `e^ = x + (1 - t) v` give `(alpha^ + gamma^) x + (alpha^ (1 - t) - gamma^ t)
    v`, which is `v` itself on the linear path.
    """
    t, _ = linear_time(place)
    along = place.alpha_hat * (1.0 - t) - place.gamma_hat * t
    return (place.alpha_hat + place.gamma_hat) * x + along * velocity
