"""EDM: scales, noise levels, the loss in numpy, and log-likelihood by the ODE."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.diffusion import log_likelihood
from jaxrl_rollouts.diffusion.edm import (
    EdmConfig,
    gaussian_denoise,
    make_denoiser,
    noise_levels,
    scales,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Network

PARAMS = {"w": jnp.float32(0.7), "b": jnp.float32(-0.4)}
LINEAR = Network(
    lambda key: PARAMS, lambda p, x, c: p["w"] * x + p["b"] * c.reshape(-1, *(1,) * (x.ndim - 1))
)


def gaussian_log_density(
    x: jax.Array, mean: jax.Array, covariance: jax.Array, sigma: float = 0.0
) -> jax.Array:
    """Log-density in nats of `[B, F]` rows under normal data with noise `sigma` added, `[B]`."""
    values, vectors = jnp.linalg.eigh(covariance)
    total = values + sigma**2
    turned = jnp.matmul(x - mean, vectors, precision="highest")
    exponent = (jnp.square(turned) / total).sum(-1) + jnp.log(total).sum()
    return -0.5 * (exponent + x.shape[-1] * math.log(2.0 * math.pi))


@given(sigma=st.floats(0.002, 80.0), spread=st.floats(0.3, 2.0))
def test_scales(sigma: float, spread: float) -> None:
    c = scales(jnp.float32(sigma), spread)
    total = sigma**2 + spread**2
    np.testing.assert_allclose(float(c.into) ** 2 * total, 1.0, rtol=1e-5)
    weight = total / (sigma * spread) ** 2
    np.testing.assert_allclose(weight * float(c.out) ** 2, 1.0, rtol=1e-5)
    np.testing.assert_allclose(c.skip, spread**2 / total, rtol=1e-5)
    np.testing.assert_allclose(c.noise, np.log(sigma) / 4, rtol=1e-5, atol=1e-6)


def test_without_noise_the_denoiser_returns_its_input_and_with_much_its_network() -> None:
    x = jax.random.normal(jax.random.key(0), (5, 3))
    denoiser = make_denoiser(LINEAR)
    np.testing.assert_allclose(denoiser.denoise(PARAMS, x, jnp.float32(1e-6)), x, atol=1e-4)
    noise = jnp.full((5,), np.log(80.0) / 4, jnp.float32)
    want = LINEAR.apply(PARAMS, x, noise)
    got = denoiser.denoise(PARAMS, 80.0 * x, jnp.float32(80.0))
    np.testing.assert_allclose(got, want, atol=0.05)  # 1 / 80 of x is left


def test_one_noise_per_row_is_one_row_at_a_time() -> None:
    denoiser, sigma = make_denoiser(LINEAR), jnp.array([0.1, 1.0, 30.0])
    x = jax.random.normal(jax.random.key(0), (3, 4, 2))
    got = denoiser.denoise(PARAMS, x, sigma)
    for i in range(3):
        np.testing.assert_allclose(
            got[i], denoiser.denoise(PARAMS, x[i : i + 1], sigma[i])[0], rtol=1e-5, atol=1e-6
        )


def test_levels() -> None:
    levels = noise_levels(18, EdmConfig())
    assert levels.shape == (19,) and levels[-1] == 0.0
    np.testing.assert_allclose(levels[[0, 17]], [80.0, 0.002], rtol=1e-12)
    i = 5
    want = (80.0 ** (1 / 7) + i / 17 * (0.002 ** (1 / 7) - 80.0 ** (1 / 7))) ** 7
    np.testing.assert_allclose(levels[i], want, rtol=1e-10)
    assert (np.diff(levels) < 0).all()
    # Of 256 levels 103 lie below 1 and 54 below 0.1.
    many = noise_levels(256, EdmConfig())[:-1]
    assert ((many < 1).sum(), (many < 0.1).sum()) == (103, 54)


@pytest.mark.parametrize("shape", [(64, 3), (64, 5, 2)])
@pytest.mark.parametrize("spread", [1.0, 0.5])
def test_loss_is_the_weighted_error_of_the_denoised_row(shape: Any, spread: float) -> None:
    config = EdmConfig(sigma_data=spread)
    rows = spread * jax.random.normal(jax.random.key(1), shape)
    key = jax.random.key(2)
    got = make_denoiser(LINEAR, config).loss(PARAMS, key, rows)

    sigma_key, noise_key = jax.random.split(key)
    wide = (len(rows), *(1,) * (rows.ndim - 1))
    sigma = np.exp(-1.2 + 1.2 * np.asarray(jax.random.normal(sigma_key, wide[:1]), np.float64))
    sigma, y = sigma.reshape(wide), np.asarray(rows, np.float64)
    x = y + sigma * np.asarray(jax.random.normal(noise_key, shape), np.float64)
    total = np.sqrt(sigma**2 + spread**2)
    network = 0.7 * (x / total) - 0.4 * np.log(sigma) / 4
    clean = spread**2 / total**2 * x + sigma * spread / total * network
    want = (total**2 / (sigma * spread) ** 2 * (clean - y) ** 2).mean()
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_weights_leave_entries_out() -> None:
    rows = jax.random.normal(jax.random.key(1), (8, 4, 2))
    weights = jnp.ones((8, 4, 1)).at[:, 2:].set(0.0)
    loss, key = make_denoiser(LINEAR).loss, jax.random.key(2)
    kept = loss(PARAMS, key, rows, weights)
    # The network works on each entry by itself: what is left out cannot matter.
    other = loss(PARAMS, key, rows.at[:, 2:].set(9.0), weights)
    np.testing.assert_allclose(kept, other, rtol=1e-6)
    np.testing.assert_allclose(
        loss(PARAMS, key, rows, jnp.ones((1,))), loss(PARAMS, key, rows), rtol=1e-5
    )
    assert float(loss(PARAMS, key, rows, jnp.zeros((1,)))) == 0.0


def test_exact_denoiser_is_the_conditional_mean() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3, 3))
    mean, covariance, sigma = rng.normal(size=3), factor @ factor.T, 0.8
    x = rng.normal(size=(6, 3)).astype(np.float32)
    got = gaussian_denoise(jnp.asarray(mean), jnp.asarray(covariance))(None, x, jnp.float32(sigma))
    gain = covariance @ np.linalg.inv(covariance + sigma**2 * np.eye(3))
    np.testing.assert_allclose(got, mean + (x - mean) @ gain.T, rtol=1e-4, atol=1e-5)
    # Tweedie: the denoised row is x + sigma^2 times the gradient of the noised log-density.
    slope = jax.vmap(
        jax.grad(lambda r: gaussian_log_density(r[None], jnp.asarray(mean), covariance, sigma)[0])
    )(x)
    np.testing.assert_allclose(got, x + sigma**2 * slope, rtol=1e-3, atol=1e-4)


def test_edm_settings_are_checked() -> None:
    for change, setting in (
        ({"sigma_data": 0.0}, "sigma_data"),
        ({"sigma_min": 3.0, "sigma_max": 2.0}, "sigma_min, sigma_max"),
        ({"sigma_min": 0.0}, "sigma_min, sigma_max"),
        ({"rho": 0.0}, "rho, log_sigma_std"),
    ):
        with pytest.raises(ConfigError) as caught:
            make_denoiser(LINEAR, EdmConfig(**change))
        assert caught.value.setting == setting
    with pytest.raises(ConfigError, match="steps: found 1, expected at least 2"):
        noise_levels(1, EdmConfig())


MEAN = jnp.zeros(3)  # as of standardised data
COVARIANCE = jnp.array([[1.2, 0.6, 0.0], [0.6, 0.7, -0.2], [0.0, -0.2, 0.9]])
EXACT = gaussian_denoise(MEAN, COVARIANCE)
KEY = jax.random.key(0)
ROWS = jax.random.normal(jax.random.key(1), (32, 3))
DENSITY = np.asarray(gaussian_log_density(ROWS, MEAN, COVARIANCE, 0.002))


def said(**settings: Any) -> np.ndarray:
    return np.asarray(log_likelihood(EXACT, None, KEY, ROWS, **settings))


def test_it_is_the_density() -> None:
    np.testing.assert_allclose(said(trace="exact"), DENSITY, atol=5e-3)


def test_its_error_falls_with_the_fourth_power_of_the_step() -> None:
    errors = [np.abs(said(trace="exact", steps=n) - DENSITY).max() for n in (12, 24)]
    assert errors[0] > 8.0 * errors[1], errors


def test_random_directions_agree_on_average() -> None:
    exact = said(trace="exact", steps=64)
    one, many = (np.abs(said(steps=64, probes=n) - exact).mean() for n in (1, 64))
    # The off-diagonal terms are all there is to get wrong; 64 probes leave an eighth of them.
    assert many < 0.25 * one, (one, many)


def test_windows_are_rows_of_more_entries() -> None:
    def denoise(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        return EXACT(params, x.reshape(-1, 3), sigma).reshape(x.shape)

    windows = ROWS.reshape(8, 4, 3)
    got = log_likelihood(denoise, None, KEY, windows, trace="exact")
    np.testing.assert_allclose(got, DENSITY.reshape(8, 4).sum(1), atol=2e-2)


def test_sigma_data_is_the_prior_of_wide_data() -> None:
    """Data five times as wide with noise up to 40: without it the prior would be off by 0.8 %."""
    wide = gaussian_denoise(jnp.zeros(1), jnp.full((1, 1), 25.0))
    rows = jnp.linspace(-8.0, 8.0, 9)[:, None]
    edm = EdmConfig(sigma_data=5.0, sigma_max=40.0)
    got = log_likelihood(wide, None, KEY, rows, edm=edm, trace="exact", steps=128)
    want = gaussian_log_density(rows, jnp.zeros(1), jnp.full((1, 1), 25.0), 0.002)
    np.testing.assert_allclose(got, want, atol=2e-3)


def test_likelihood_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="steps, probes"):
        said(steps=0)
