"""The squashed normal: densities against scipy and by integration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jaxrl_rollouts.offline.agents import actors

KEY = jax.random.key(3)


@given(mean=st.floats(-1.5, 1.5), log_std=st.floats(-2.0, 0.5))
def test_densities_integrate_to_one(mean: float, log_std: float) -> None:
    u = np.linspace(-7, 7, 2001)[:, None]  # a = tanh(u), da = (1 - a^2) du
    a = np.tanh(u).astype(np.float32)
    keep = (1 - np.abs(a[:, 0])) > 1e-5
    density = np.exp(actors.log_prob(a[keep], jnp.full(1, mean), jnp.full(1, log_std)))
    mass = np.trapezoid(density * (1 - np.tanh(u[keep, 0]) ** 2), u[keep, 0])
    tails = stats.norm(mean, np.exp(log_std))
    inside = tails.cdf(u[keep, 0].max()) - tails.cdf(u[keep, 0].min())
    np.testing.assert_allclose(mass, inside, atol=5e-3)


def test_log_prob_is_the_change_of_variables() -> None:
    mean, log_std = jnp.array([[0.3, -0.8]] * 50), jnp.array([[-0.5, 0.2]] * 50)
    action, log_prob = actors.sample_and_log_prob(KEY, mean, log_std)
    u = np.arctanh(np.asarray(action, np.float64))
    want = stats.norm.logpdf(u, mean, np.exp(log_std)) - np.log(1 - np.tanh(u) ** 2 + 1e-6)
    np.testing.assert_allclose(log_prob, want.sum(-1), rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(
        actors.log_prob(action, mean, log_std), log_prob, rtol=1e-3, atol=2e-3
    )
    assert log_prob.shape == (50,)


@pytest.mark.parametrize("x", [-30.0, -8.0, -0.3, 0.0, 2.0, 9.0, 30.0])
def test_the_exact_slope_is_that_of_float64(x: float) -> None:
    """`log(1 - tanh(x)^2)` by `cosh`, which float64 has up to 700."""
    found = actors.log_slope(jnp.float32(x), jnp.tanh(jnp.float32(x)), "exact")
    np.testing.assert_allclose(found, -2 * np.log(np.cosh(np.float64(x))), rtol=1e-6, atol=1e-6)


def test_the_exact_density_has_a_gradient_where_the_policy_saturates() -> None:
    """`d/dm -log pi` of `a = tanh(m + s e)` is minus the slope's: -2 tanh(m + s e), and not 0."""
    saturated, narrow = jnp.full((1, 2), 25.0), jnp.full((1, 2), -5.0)

    def entropy(mean: jax.Array, density: actors.Density) -> jax.Array:
        return -actors.sample_and_log_prob(KEY, mean, narrow, density)[1].sum()

    slope = jax.grad(entropy)
    np.testing.assert_allclose(slope(saturated, "exact"), -2.0, rtol=1e-6)
    np.testing.assert_allclose(slope(-saturated, "exact"), 2.0, rtol=1e-6)
    np.testing.assert_array_equal(slope(saturated, "offset"), 0.0)


def test_both_densities_agree_where_nothing_saturates() -> None:
    mean, log_std = jnp.array([[0.3, -0.8]] * 50), jnp.full((50, 2), -1.0)
    exact, offset = (
        actors.sample_and_log_prob(KEY, mean, log_std, density) for density in ("exact", "offset")
    )
    np.testing.assert_array_equal(exact[0], offset[0])
    np.testing.assert_allclose(exact[1], offset[1], atol=1e-4)
    again = actors.log_prob(exact[0], mean, log_std, "exact")
    np.testing.assert_allclose(again, exact[1], atol=1e-4)
