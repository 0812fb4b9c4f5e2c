"""Equations on a circle, solved by exponax (ETDRK4, pseudo-spectral, 2/3 de-aliased; KdV: `etdrk`).

ks         u_t + u u_x + u_xx + viscosity u_xxxx = 0       (conservative form)
burgers    u_t + u u_x = diffusivity u_xx                  (conservative form)
kdv        u_t + 6 u u_x + dispersion u_xxx = 0
advection  u_t + velocity u_x = 0                          (exact)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import did_you_mean
from jaxrl_rollouts.errors import ConfigError, MissingExtraError

from .etdrk import etdrk4, wavenumbers

Solver = Callable[[jax.Array], jax.Array]


class Equation(NamedTuple):
    """One equation with one parameter.

    Attributes:
        name, parameter: of the equation, and of its parameter.
        solver: `(points, extent, dt, value) -> (u [1, points] -> u)`; all but `points` may be
            traced, so that trajectories of different length scales share one program. The result
            is a pytree of its coefficients: `split_solver` makes it once for many steps.
    """

    name: str
    parameter: str
    solver: Callable[[int, Any, Any, Any], Solver]


def sines(key: jax.Array, points: int, *, terms: int = 10, modes: int = 2) -> jax.Array:
    """A random initial field for any domain, on which `x / L` runs from 0 to 1: `[1, points]`.

    The sum of `terms` sines `A sin(2 pi l x / L + phi)` with A in [-.5, .5] and l up to `modes`
    (Brandstetter et al. 2022).
    """
    amplitude_key, mode_key, phase_key = jax.random.split(key, 3)
    amplitude = jax.random.uniform(amplitude_key, (terms, 1), minval=-0.5, maxval=0.5)
    mode = jax.random.randint(mode_key, (terms, 1), 1, modes + 1)
    phase = jax.random.uniform(phase_key, (terms, 1), maxval=2 * jnp.pi)
    x = jnp.arange(points) / points
    return (amplitude * jnp.sin(2 * jnp.pi * mode * x + phase)).sum(0, keepdims=True)


def _stepper(name: str) -> Any:
    try:
        import exponax
    except ImportError:
        raise MissingExtraError("solving equations", "exponax", "pde") from None
    return getattr(exponax.stepper, name)


def _ks(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    return _stepper("KuramotoSivashinskyConservative")(
        1, extent, points, dt, fourth_order_scale=viscosity, order=4
    )


def _burgers(points: int, extent: Any, dt: Any, diffusivity: Any) -> Solver:
    return _stepper("Burgers")(
        1, extent, points, dt, diffusivity=diffusivity, conservative=True, order=4
    )


def _kdv(points: int, extent: Any, dt: Any, dispersion: Any) -> Solver:
    k = wavenumbers(points, extent)
    return etdrk4(1j * dispersion * k**3, 6.0, points, extent, dt)


def _advection(points: int, extent: Any, dt: Any, velocity: Any) -> Solver:
    return _stepper("Advection")(1, extent, points, dt, velocity=jnp.reshape(velocity, (1,)))


EQUATIONS = {
    equation.name: equation
    for equation in (
        Equation("ks", "viscosity", _ks),
        Equation("burgers", "diffusivity", _burgers),
        Equation("kdv", "dispersion", _kdv),
        Equation("advection", "velocity", _advection),
    )
}


def split_solver(solver: Solver) -> tuple[Any, Any]:
    """The arrays of a solver and what is left of it; `join_solver` undoes it."""
    leaves, structure = jax.tree.flatten(solver)
    arrays = [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]
    others = [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    return arrays, (structure, others)


def join_solver(arrays: Any, rest: Any) -> Solver:
    """The solver that was split."""
    structure, others = rest
    leaves = [b if a is None else a for a, b in zip(arrays, others, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def equation(name: str) -> Equation:
    """An equation by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in EQUATIONS:
        names = list(EQUATIONS)
        expected = "one of " + ", ".join(names)
        raise ConfigError("equation", name, expected, did_you_mean(name, names))
    return EQUATIONS[name]
