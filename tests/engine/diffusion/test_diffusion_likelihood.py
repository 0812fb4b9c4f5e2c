"""Log-likelihood by the ODE against the density of normal data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import EdmConfig, log_likelihood
from jaxrl_rollouts.diffusion.edm import gaussian_denoise, gaussian_log_density
from jaxrl_rollouts.errors import ConfigError

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
