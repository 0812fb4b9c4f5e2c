"""Solvers against exact solutions, their order in the time step, and what exponax says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_solving import march

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.etdrk import etdrk4, wavenumbers
from jaxrl_rollouts.pde.equations import EQUATIONS, equation
from jaxrl_rollouts.pde.starts import Domain, sines


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def errors(
    name: str,
    steps: list[int],
    time: float,
    extent: float,
    points: int,
    value: float,
    exact: Callable,
) -> list[float]:
    """Largest error at `time` for each number of steps."""
    x = jnp.arange(points) / points * extent
    found = []
    for count in steps:
        solver = EQUATIONS[name].solver(points, extent, time / count, value)
        found.append(
            float(np.abs(march(solver, exact(x, 0.0)[None], count)[0] - exact(x, time)).max())
        )
    return found


def test_advection_is_exact_whatever_the_step() -> None:
    def wave(x: jax.Array, t: float) -> jax.Array:
        return jnp.sin(2 * jnp.pi * 3 * (x - 2.0 * t) / 40.0)

    assert max(errors("advection", [1, 7], 3.0, 40.0, 64, 2.0, wave)) < 1e-12


def test_burgers_by_cole_hopf() -> None:
    def exact(x: jax.Array, t: float, nu: float = 0.1) -> jax.Array:
        decay = jnp.exp(-nu * t)
        return 2 * nu * decay * jnp.sin(x) / (2.0 + decay * jnp.cos(x))

    coarse, fine = errors("burgers", [5, 10], 2.0, 2 * np.pi, 64, 0.1, exact)
    assert coarse < 1e-6
    assert 3.5 < np.log2(coarse / fine) < 4.5


def test_kdv_carries_a_soliton() -> None:
    def soliton(x: jax.Array, t: float, speed: float = 1.0) -> jax.Array:
        place = jnp.mod(x - speed * t - 10.0 + 30.0, 60.0) - 30.0
        return speed / 2 / jnp.cosh(jnp.sqrt(speed) / 2 * place) ** 2

    coarse, fine = errors("kdv", [50, 100], 4.0, 60.0, 256, 1.0, soliton)
    assert coarse < 1e-4
    assert 3.5 < np.log2(coarse / fine) < 4.6


def test_ks_converges_with_fourth_order() -> None:
    start = sines(jax.random.key(0), Domain(128, 1.0))
    ends = []
    for steps in (50, 100, 200):
        solver = EQUATIONS["ks"].solver(128, 64.0, 5.0 / steps, 1.0)
        ends.append(march(solver, start, steps))
    coarse, fine = (np.abs(a - b).max() for a, b in zip(ends, ends[1:], strict=False))
    assert 3.5 < np.log2(coarse / fine) < 4.5


def test_ks_grows_and_decays_small_waves_as_its_linear_part_does() -> None:
    """Rate k^2 - viscosity k^4."""
    extent = 22.0
    x = jnp.arange(64) / 64 * extent
    for mode, viscosity in ((2, 1.0), (2, 0.5), (5, 1.0)):
        k = 2 * np.pi * mode / extent
        u = 1e-8 * jnp.cos(k * x)[None]
        solver = EQUATIONS["ks"].solver(64, extent, 0.1, viscosity)
        grown = np.abs(march(solver, u, 10)).max() / 1e-8
        assert grown == pytest.approx(np.exp(k**2 - viscosity * k**4), rel=1e-5)


def test_the_mean_is_conserved() -> None:
    for name, value in (("ks", 1.0), ("burgers", 0.05), ("kdv", 1.0), ("advection", 1.0)):
        start = sines(jax.random.key(1), Domain(64, 1.0)) + 0.3
        end = march(EQUATIONS[name].solver(64, 30.0, 0.01, value), start, 50)
        assert end.mean() == pytest.approx(0.3, abs=1e-10), name


def test_our_scheme_is_exponaxs_where_the_linear_part_is_real() -> None:
    points, extent, nu = 128, 10.0, 0.3  # smooth, so that where de-aliasing cuts is all one
    k = wavenumbers(points, extent)
    ours = etdrk4(-nu * k**2 + 0j, 1.0, points, extent, 0.05)
    u = sines(jax.random.key(2), Domain(points, 1.0))
    theirs = EQUATIONS["burgers"].solver(points, extent, 0.05, nu)
    np.testing.assert_allclose(march(ours, u, 20), march(theirs, u, 20), atol=1e-9)


def test_extent_step_and_parameter_may_differ_per_trajectory() -> None:
    def one(extent: Any, dt: Any, value: Any, u: jax.Array) -> jax.Array:
        return EQUATIONS["ks"].solver(64, extent, dt, value)(u)

    u = sines(jax.random.key(0), Domain(64, 1.0))
    settings = np.array([[20.0, 0.05, 0.6], [24.0, 0.1, 1.4]])
    together = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None)))(*settings.T, u)
    for row, setting in zip(together, settings, strict=True):
        np.testing.assert_allclose(row, one(*setting, u), atol=1e-12)


def test_initial_fields_are_low_modes_of_bounded_size() -> None:
    u = np.asarray(sines(jax.random.key(3), Domain(64, 1.0)))
    amplitude = np.abs(np.fft.rfft(u[0]))
    assert amplitude[1:3].min() > 0 and amplitude[3:].max() < 1e-9 and np.abs(u).max() <= 5.0


def test_unknown_equation() -> None:
    with pytest.raises(ConfigError, match="did you mean ks"):
        equation("kss")
