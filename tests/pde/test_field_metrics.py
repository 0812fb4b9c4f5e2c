"""Metrics and spectra of field rollouts against plain numpy and on known curves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.comparison import kept_bins
from jaxrl_rollouts.pde.generate import quality
from jaxrl_rollouts.pde.metrics import shells, spectrum
from jaxrl_rollouts.pde.spectral import filtered, lengths

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


def test_normalised_errors_are_those_of_the_wells_package() -> None:
    """Of `the_well` 1.2.0, `benchmark.metrics.NRMSE` and `VRMSE`, on the same fields, run once."""
    n = np.arange(576).reshape(2, 3, 2, 6, 8)
    truth = np.sin(0.37 * n) + 0.01 * n
    both = truth + 0.1 * np.cos(0.73 * n), truth
    theirs = [
        [0.081503707, 0.044291406, 0.028862416],
        [0.020550847, 0.016272656, 0.01329256],
    ]
    np.testing.assert_allclose(metrics.nrmse(*both), theirs, rtol=1e-5)
    theirs = [
        [0.100129394, 0.092544988, 0.099892702],
        [0.099337264, 0.093687417, 0.099676076],
    ]
    np.testing.assert_allclose(metrics.vrmse(*both), theirs, rtol=1e-5)


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


TURN = 2 * np.pi


@pytest.mark.parametrize("extent", [(4.0, 1.0), ()])
def test_the_same_wave_is_in_the_same_shell_along_either_axis(extent: tuple[float, ...]) -> None:
    """On 128 x 32 points of equal cells, of a wave of two thirds of the shorter axis's Nyquist."""
    x, y = np.arange(128) / 128 * TURN, np.arange(32) / 32 * TURN
    along = (
        np.broadcast_to(np.cos(16 * x)[:, None], (128, 32)),
        np.broadcast_to(np.cos(4 * y)[None], (128, 32)),
    )
    found = [np.asarray(spectrum(w[None], space_dims=2, extent=extent))[0] for w in along]
    assert [int(f.argmax()) for f in found] == [16, 16] and len(found[0]) == 65


def test_shells_reach_to_the_highest_wavenumber_of_the_longest_axis() -> None:
    assert shells((64, 16), (1.0, 1.0))[1] == 33 and shells((16, 64), (1.0, 1.0))[1] == 33
    bins, count = shells((64, 16), (2.0, 1.0))
    assert count == 33 and bins[0, 3] == 6 and bins[3, 0] == 3  # 3 waves along 1 are 6 along 2
    square, count = shells((16, 16))
    np.testing.assert_array_equal(square, np.rint(lengths((16, 16))))
    assert count == 9
    # No bin of the axes themselves is left out.
    assert shells((48, 96))[0][:, 0].max() <= shells((48, 96))[1] - 1


def test_a_spectrum_across_walls_knows_no_jump_at_the_ends() -> None:
    """A half wave between walls is wavenumber 1/2; a Fourier spectrum smears it over all."""
    x = (np.arange(64) + 0.5) / 64
    ramp = np.cos(np.pi * 5 * x)[None]  # five half waves: from 1 to -1
    walled = np.asarray(spectrum(ramp, boundaries=("wall",)))[0]
    joined = np.asarray(spectrum(ramp))[0]
    assert len(walled) == len(joined) == 33
    assert int(walled.argmax()) == 3 and walled[4:].max() < 1e-4 * walled.max()
    assert joined[16:].min() > 1e-3 * joined.max()
    # A cosine of amplitude 1 has N / 2 in its bin, of the two half wavenumbers of a shell.
    whole = np.asarray(spectrum(np.cos(TURN * 4 * x)[None], boundaries=("neumann",)))[0]
    assert whole[4] == pytest.approx(32 / 2, rel=1e-4)
    x, y = np.arange(32) / 32, (np.arange(16) + 0.5) / 16
    field = (np.cos(TURN * 3 * x)[:, None] * np.cos(np.pi * 8 * y))[None]  # 3 and 4 waves
    found = np.asarray(
        spectrum(field, space_dims=2, extent=(1.0, 1.0), boundaries=("periodic", "wall"))
    )[0]
    assert int(found.argmax()) == 5


@pytest.mark.parametrize("grid", [(48, 48), (64, 16)])
def test_a_low_pass_with_nothing_to_cut_cuts_nothing(grid: tuple[int, int]) -> None:
    extent = (1.0, 1.0)
    count = shells(grid, extent)[1]
    u = np.random.default_rng(0).normal(size=(1, *grid))
    gain = kept_bins(grid, extent, np.array([count, 3]), count)
    np.testing.assert_allclose(filtered(jnp.asarray(u), gain[0], 2), u, atol=1e-5)
    np.testing.assert_array_equal(gain[1], lengths(grid, extent) < 2.5)


def test_a_tail_is_at_the_wavenumbers_that_the_grid_resolves() -> None:
    """On 64 x 16 points waves of 20 along the long axis are seen."""
    x = np.arange(64) / 64
    u = np.cos(TURN * 20 * x)[:, None] * np.ones((3, 2, 1, 64, 16))
    assert quality(u, (1.0, 1.0)).tail > 0.1
    assert metrics.vrmse(jnp.asarray(u), jnp.asarray(u)).shape == (3, 2)
