"""Preconditioning, noise levels and loss of EDM (Karras et al. 2022, arXiv:2206.00364, table 1).

A raw network `F` never sees noise of another size than one: `D(x; sigma) = c_skip x + c_out
F(c_in x, c_noise)`. Data are standardised here, so `sigma_data` is 1 and not the paper's 0.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from .. import draws
from ..configs import check
from ..errors import ConfigError
from ..networks import Network
from ..trees import PyTree

Denoise = Callable[[PyTree, jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True)
class EdmConfig:
    """Noise of training and sampling, in standard deviations of the data.

    Attributes:
        sigma_data: standard deviation of the data.
        sigma_min, sigma_max: least and greatest noise of the sampler.
        rho: exponent that concentrates levels at the smallest one (7 in the paper).
        log_sigma_mean, log_sigma_std: parameters of the training's normal of ln sigma.
    """

    sigma_data: float = 1.0
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0
    log_sigma_mean: float = -1.2
    log_sigma_std: float = 1.2

    def validate(self) -> None:
        if self.sigma_data <= 0:
            raise ConfigError("sigma_data", self.sigma_data, "above 0")
        if not 0 < self.sigma_min < self.sigma_max:
            found = (self.sigma_min, self.sigma_max)
            raise ConfigError("sigma_min, sigma_max", found, "0 < sigma_min < sigma_max")
        if self.rho <= 0 or self.log_sigma_std < 0:
            found = (self.rho, self.log_sigma_std)
            raise ConfigError("rho, log_sigma_std", found, "above 0 and at least 0")


class Scales(NamedTuple):
    """`c_skip`, `c_out`, `c_in` and `c_noise`, each shaped as the sigma they are for."""

    skip: jax.Array
    out: jax.Array
    into: jax.Array
    noise: jax.Array


def scales(sigma: jax.Array, sigma_data: float = 1.0) -> Scales:
    """The four scales of noise `sigma` (above 0), float32."""
    sigma = jnp.asarray(sigma, jnp.float32)
    total = jnp.sqrt(jnp.square(sigma) + sigma_data**2)
    return Scales(
        jnp.square(sigma_data / total),
        sigma * sigma_data / total,
        1.0 / total,
        0.25 * jnp.log(sigma),
    )


def noise_levels(steps: int, config: EdmConfig) -> np.ndarray:
    """`[steps + 1]` float64: sigma_0 = sigma_max, ..., sigma_{N-1} = sigma_min, sigma_N = 0.

    Raises:
        ConfigError: fewer than two steps.
    """
    if steps < 2:
        raise ConfigError("steps", steps, "at least 2")
    ends = config.sigma_max ** (1.0 / config.rho), config.sigma_min ** (1.0 / config.rho)
    return np.append(np.linspace(*ends, steps) ** config.rho, 0.0)


def per_row(sigma: jax.Array, x: jax.Array) -> jax.Array:
    """`sigma` (`[]` or `[B]`) shaped to multiply `x` (`[B, ...]`)."""
    sigma = jnp.asarray(sigma, jnp.float32)
    return sigma if sigma.ndim == 0 else sigma.reshape(-1, *(1,) * (x.ndim - 1))


class Denoiser(NamedTuple):
    """A diffusion model as pure functions; see `make_denoiser`.

    Attributes:
        init: `key -> params`.
        denoise: `(params, x [B, ...], sigma [] or [B]) -> D(x; sigma) [B, ...]`, the expected
            clean row behind a noised one.
        loss: `(params, key, rows [B, ...], weights=None) -> scalar`; `weights` (`[B, ...]` or
            broadcastable, 0 for padding) weigh entries of the mean.
        config: noise levels.
    """

    init: Callable[[jax.Array], PyTree]
    denoise: Denoise
    loss: Callable[..., jax.Array]
    config: EdmConfig


@functools.lru_cache(maxsize=32)
def make_denoiser(network: Network, config: EdmConfig | None = None) -> Denoiser:
    """Wrap a raw network `F(params, x [B, ...], c_noise [B]) -> [B, ...]`.

    Equal arguments give the same functions.

    The loss is the paper's `mean w(sigma) (D(y + sigma n; sigma) - y)^2` with `w = 1 / c_out^2`,
    written as the plain error of `F` against `(y - c_skip x) / c_out = (sigma y - sigma_d^2 n) /
    (sigma_d sqrt(sigma^2 + sigma_d^2))`, which cancels nothing in float32.

    Raises:
        ConfigError: a setting is out of range.
    """
    config = config or EdmConfig()
    check(config)
    spread = config.sigma_data

    def raw(params: PyTree, x: jax.Array, scale: Scales) -> jax.Array:
        noise = jnp.broadcast_to(scale.noise, x.shape[:1])
        return network.apply(params, per_row(scale.into, x) * x, noise).astype(jnp.float32)

    def denoise(params: PyTree, x: jax.Array, sigma: jax.Array) -> jax.Array:
        scale = scales(sigma, spread)
        output = raw(params, x, scale)
        chex.assert_equal_shape([output, x])
        return per_row(scale.skip, x) * x + per_row(scale.out, x) * output

    def loss(
        params: PyTree, key: jax.Array, rows: jax.Array, weights: jax.Array | None = None
    ) -> jax.Array:
        sigma_key, noise_key = jax.random.split(key)
        draw = jax.random.normal(sigma_key, rows.shape[:1])
        sigma = jnp.exp(config.log_sigma_mean + config.log_sigma_std * draw)
        noise = draws.normal(noise_key, rows.shape)
        wide, scale = per_row(sigma, rows), scales(sigma, spread)
        wanted = (wide * rows - spread**2 * noise) * (per_row(scale.into, rows) / spread)
        error = jnp.square(raw(params, rows + wide * noise, scale) - wanted)
        if weights is None:
            return error.mean()
        weights = jnp.broadcast_to(weights, error.shape)
        return (weights * error).sum() / jnp.maximum(weights.sum(), 1.0)

    return Denoiser(network.init, denoise, loss, config)


def gaussian_denoise(mean: jax.Array, covariance: jax.Array) -> Denoise:
    """The exact denoiser of normal data, for tests and studies: `D = m + S (S + sigma^2)^-1 (x - m)`.

    Args:
        mean: `[F]`.
        covariance: `[F, F]`.

    Returns:
        A `Denoise` of `[B, F]` rows that takes no parameters (pass anything).
    """  # noqa: E501
    values, vectors = jnp.linalg.eigh(covariance)

    def denoise(params: PyTree, x: jax.Array, sigma: jax.Array) -> jax.Array:
        del params
        wide = per_row(sigma, x)
        turned = jnp.matmul(x - mean, vectors, precision="highest")
        shrunk = turned * values / (values + jnp.square(wide))
        return mean + jnp.matmul(shrunk, vectors.T, precision="highest")

    return denoise


@functools.partial(jax.jit, static_argnames=("denoise", "edm", "steps", "trace", "probes"))
def log_likelihood(
    denoise: Denoise,
    params: PyTree,
    key: jax.Array,
    rows: jax.Array,
    *,
    edm: EdmConfig | None = None,
    steps: int = 64,
    trace: Literal["exact", "hutchinson"] = "hutchinson",
    probes: int = 1,
) -> jax.Array:
    """Log-density of rows under the model's data with noise `sigma_min`.

    The ODE is `dx / d ln sigma = x - D(x; sigma)`, whose right-hand side never divides by a small
    noise; Runge-Kutta steps of equal size in ln sigma lead from `sigma_min` to `sigma_max`, where
    the density is normal with mean 0 and variance `sigma_max^2 + sigma_data^2`.

    Args:
        denoise, params: those of a `Denoiser`.
        key: consumed by the probes.
        rows: `[B, ...]`, standardised as the training data were.
        edm: noise levels and `sigma_data`.
        steps: number of steps of the integration; four network calls each.
        trace: `exact` takes one derivative per entry of a row, `hutchinson` estimates the
            divergence without bias along random signs, the same ones along a row's whole path.
        probes: directions of the estimate, averaged.

    Returns:
        `[B]` float32, in nats, in standardised units (subtract the logs of the standard
        deviations for data units).

    Raises:
        ConfigError: fewer than one step or probe.
    """
    edm = edm or EdmConfig()
    check(edm)
    if steps < 1 or probes < 1:
        raise ConfigError("steps, probes", (steps, probes), "both at least 1")
    batch, size = rows.shape[0], math.prod(rows.shape[1:])
    if trace == "exact":
        tangents = jnp.broadcast_to(
            jnp.eye(size).reshape(size, 1, *rows.shape[1:]), (size, *rows.shape)
        )
    else:
        tangents = jax.random.rademacher(key, (probes, *rows.shape), jnp.float32)
    share = 1.0 if trace == "exact" else 1.0 / probes

    def drift(x: jax.Array, log_sigma: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Right-hand side `[B, ...]` and its divergence `[B]`."""

        def side(x: jax.Array) -> jax.Array:
            return x - denoise(params, x, jnp.exp(log_sigma))

        value, push = jax.linearize(side, x)
        along = jax.vmap(lambda tangent: (tangent * push(tangent)).reshape(batch, -1).sum(-1))
        return value, share * along(tangents).sum(0)

    low, high = math.log(edm.sigma_min), math.log(edm.sigma_max)
    width = (high - low) / steps

    def advance(carry: tuple, index: jax.Array) -> tuple[tuple, None]:
        """Runge and Kutta's step of order four."""
        x, total = carry
        now = low + width * index
        k1, d1 = drift(x, now)
        k2, d2 = drift(x + 0.5 * width * k1, now + 0.5 * width)
        k3, d3 = drift(x + 0.5 * width * k2, now + 0.5 * width)
        k4, d4 = drift(x + width * k3, now + width)
        x = x + width / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
        return (x, total + width / 6.0 * (d1 + 2.0 * (d2 + d3) + d4)), None

    begin = (rows.astype(jnp.float32), jnp.zeros((batch,)))
    (x, total), _ = jax.lax.scan(advance, begin, jnp.arange(steps, dtype=jnp.float32))
    variance = edm.sigma_max**2 + edm.sigma_data**2
    square = jnp.square(x).reshape(batch, -1).sum(-1) / variance
    return total - 0.5 * (square + size * math.log(2.0 * math.pi * variance))
