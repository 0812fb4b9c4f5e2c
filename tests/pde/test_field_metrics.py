"""Metrics of field rollouts against plain numpy and on curves with a known answer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.pde import metrics

pytestmark = pytest.mark.usefixtures("as_users_compile")


def fields(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_correlation_is_pearsons_per_trajectory_and_step() -> None:
    p, t = fields(0, 3, 4, 2, 16) + 5.0, fields(1, 3, 4, 2, 16) - 2.0
    found = np.asarray(metrics.correlation(p, t))
    for i in range(3):
        for j in range(4):
            expected = np.corrcoef(p[i, j].ravel(), t[i, j].ravel())[0, 1]
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


@given(st.integers(0, 10_000), st.floats(0.1, 100.0), st.floats(-50.0, 50.0))
def test_correlation_ignores_offset_and_positive_scale(seed: int, scale: float, at: float) -> None:
    u = fields(seed, 1, 1, 1, 12)
    same = float(metrics.correlation(scale * u + at, u)[0, 0])
    assert same == pytest.approx(1.0, abs=1e-3)
    assert float(metrics.correlation(-scale * u + at, u)[0, 0]) == pytest.approx(-same, abs=1e-3)


def test_constant_and_tiny_fields_have_a_correlation() -> None:
    u = fields(0, 1, 1, 1, 8)
    assert metrics.correlation(np.ones_like(u), u) == 0.0
    assert float(metrics.correlation(1e-18 * u, u)[0, 0]) == pytest.approx(1.0, abs=1e-5)


def test_the_two_high_correlation_times_differ_as_they_should() -> None:
    # One trajectory fails at once, three hold for 10 steps: the mean curve is 0.75 all along.
    curves = np.zeros((20, 4))
    curves[:10, :3] = 1.0
    assert metrics.high_correlation_time(curves, 0.5, 0.8) == 0.0
    assert metrics.high_correlation_time(curves, 0.5, 0.7) == 5.0
    np.testing.assert_array_equal(metrics.correlation_horizons(curves, 0.5), [5, 5, 5, 0])


def test_horizons_end_at_the_first_fall_and_at_the_end_of_the_rollout() -> None:
    curves = np.array([[1.0, 1.0], [0.5, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(metrics.correlation_horizons(curves, 2.0), [2.0, 6.0])


def test_relative_errors_against_numpy() -> None:
    p, t = fields(0, 2, 3, 2, 10), fields(1, 2, 3, 2, 10) + 1.0
    mse = np.square(p - t).mean(-1)
    expected = np.sqrt(mse / np.square(t).mean(-1)).mean(-1)
    np.testing.assert_allclose(metrics.nrmse(p, t), expected, rtol=1e-5)
    expected = np.sqrt(mse / (t.var(-1, ddof=1) + 1e-7)).mean(-1)  # as The Well: unbiased
    np.testing.assert_allclose(metrics.vrmse(p, t), expected, rtol=1e-5)
    mean = np.broadcast_to(t.mean(-1, keepdims=True), t.shape)
    points = t.shape[-1]
    np.testing.assert_allclose(metrics.vrmse(mean, t), np.sqrt(1 - 1 / points), rtol=1e-4)


def test_a_sine_has_one_wavenumber() -> None:
    x = np.arange(32) / 32 * 2 * np.pi
    found = np.asarray(metrics.spectrum(3.0 * np.sin(5 * x)[None]))[0]
    assert found[5] == pytest.approx(3.0 * 16, rel=1e-5)
    assert np.delete(found, 5).max() < 1e-4


def test_a_plane_wave_lands_in_its_shell() -> None:
    x, y = np.meshgrid(*[np.arange(16) / 16 * 2 * np.pi] * 2, indexing="ij")
    found = np.asarray(metrics.spectrum(np.cos(3 * x - 4 * y)[None], space_dims=2))[0]
    assert found.shape == (9,) and found.argmax() == 5
    members = (metrics.shells((16, 16))[0] == 5).sum()
    assert found[5] == pytest.approx(128 / members, rel=1e-5)


def test_white_noise_amplitude() -> None:
    found = np.asarray(metrics.spectrum(fields(0, 4000, 1, 256)))[:, 0, 1:-1].mean()
    assert found == pytest.approx(metrics.white_noise_amplitude(256), rel=0.01)
    assert metrics.white_noise_amplitude(256) == pytest.approx(14.2, abs=0.05)  # the paper's


def test_error_spectrum_sees_the_difference_only() -> None:
    u = fields(0, 2, 3, 1, 16)
    bump = np.cos(np.arange(16) / 16 * 2 * np.pi * 7).astype(np.float32)
    found = np.asarray(metrics.mean_spectrum(u + 0.1 * bump - u))
    assert found.shape == (9,) and found[7] == pytest.approx(0.8, rel=1e-4)
    assert np.delete(found, 7).max() < 1e-4


def test_spread_and_error_of_a_calibrated_ensemble() -> None:
    """Truth and S samples from one distribution: MSE of the mean is (1 + 1/S) times the spread."""
    drawn = fields(0, 5, 1, 3000, 1, 20)
    spread, error = metrics.spread_and_error(jnp.asarray(drawn[1:]), jnp.asarray(drawn[0]))
    ratio = float(np.square(error).mean() / np.square(spread).mean())
    assert ratio == pytest.approx(1.25, rel=0.03)


def test_cross_correlation_is_the_mean_over_pairs() -> None:
    samples = fields(0, 4, 2, 3, 1, 12)
    found = np.asarray(metrics.cross_correlation(jnp.asarray(samples)))
    pairs = [
        np.asarray(metrics.correlation(samples[i], samples[j]))
        for i in range(4)
        for j in range(i + 1, 4)
    ]
    np.testing.assert_allclose(found, np.mean(pairs, 0), atol=1e-5)
    same = jax.numpy.broadcast_to(samples[0], samples.shape)
    np.testing.assert_allclose(metrics.cross_correlation(same), 1.0, atol=1e-5)
