"""Spectra by physical wavenumber, across walls too, and what a low-pass cuts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.comparison import kept_bins
from jaxrl_rollouts.pde.generate import quality
from jaxrl_rollouts.pde.metrics import shells, spectrum
from jaxrl_rollouts.pde.spectral import filtered, lengths

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


def test_along_a_wall_axis_only_that_axis_is_mirrored() -> None:
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
