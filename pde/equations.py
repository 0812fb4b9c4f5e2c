"""Periodic equations, solved by exponax (ETDRK4, pseudo-spectral, 2/3 de-aliased; KdV: `etdrk`).

ks                u_t + u u_x + u_xx + viscosity u_xxxx = 0       (conservative form)
burgers           u_t + u u_x = diffusivity u_xx                  (conservative form)
kdv               u_t + 6 u u_x + dispersion u_xxx = 0
advection         u_t + velocity u_x = 0                          (exact)
navier_stokes_2d  w_t + (v . grad) w = viscosity lap w            (v = `flows.to_velocity(w)`)
kolmogorov_2d     the same with a forcing of four waves along y, and - 0.1 w: steady on average
ks_2d             u_t + |grad u|^2 / 2 + lap u + viscosity lap^2 u = 0, without its mean
burgers_2d        v_t + (v . grad) v = diffusivity lap v          (two channels, v_0 and v_1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import did_you_mean
from jaxrl_rollouts.errors import ConfigError, MissingExtraError

from .etdrk import etdrk4, wavenumbers
from .flows import ripples, vortices

Solver = Callable[[jax.Array], jax.Array]


class Equation(NamedTuple):
    """One equation with one parameter.

    Attributes:
        name, parameter: of the equation, and of its parameter.
        solver: `(points, extent, dt, value) -> (u [C, *points] -> u)`; all but `points` may be
            traced, so that trajectories of different length scales share one program. The result
            is a pytree of its coefficients: `split_solver` makes it once for many steps.
        axes: of space, `points` long each.
        channels: a name for each of `C`.
        start: `(key, points) -> u`, a random initial field.
        suited: settings of a `GenerateConfig` that suit it, where those of KS do not.
    """

    name: str
    parameter: str
    solver: Callable[[int, Any, Any, Any], Solver]
    axes: int = 1
    channels: tuple[str, ...] = ("u",)
    start: Callable[[jax.Array, int], jax.Array] | None = None
    suited: Mapping[str, Any] = MappingProxyType({})

    def initial(self, key: jax.Array, points: int) -> jax.Array:
        """A random initial field `[C, *points]`; a sum of sines unless the equation has another."""
        return (self.start or sines)(key, points)


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


def _navier_stokes(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    return _stepper("NavierStokesVorticity")(2, extent, points, dt, diffusivity=viscosity, order=4)


def _kolmogorov(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    # exponax multiplies the force by its wavenumber on a domain of length 2 pi.
    return _stepper("KolmogorovFlowVorticity")(
        2, extent, points, dt, diffusivity=viscosity, drag=-DRAG, injection_mode=WAVES,
        injection_scale=2 * jnp.pi / extent, order=4,
    )  # fmt: skip


def _ks_2d(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    return _stepper("KuramotoSivashinsky")(
        2, extent, points, dt, fourth_order_scale=viscosity, order=4
    )


def _burgers_2d(points: int, extent: Any, dt: Any, diffusivity: Any) -> Solver:
    return _stepper("Burgers")(2, extent, points, dt, diffusivity=diffusivity, order=4)


DRAG, WAVES = 0.1, 4  # of the Kolmogorov flow
_TURN = (2 * math.pi, 2 * math.pi)


def _suited(extent: tuple, dt: float, value: float, burn_in: int, substeps: int) -> dict[str, Any]:
    """64 x 64 points, 128 trajectories of 60 frames: minutes on two cores."""
    size = {"points": 64, "trajectories": 128, "frames": 60, "chunk": 16, "extent": extent}
    once = {"dt": (dt, dt), "parameter": (value, value), "burn_in": burn_in, "substeps": substeps}
    return size | once


_FLOW = {"axes": 2, "channels": ("vorticity",), "start": vortices}

# fmt: off
EQUATIONS = {
    equation.name: equation
    for equation in (
        Equation("ks", "viscosity", _ks),
        Equation("burgers", "diffusivity", _burgers),
        Equation("kdv", "dispersion", _kdv),
        Equation("advection", "velocity", _advection),
        Equation(
            "navier_stokes_2d", "viscosity", _navier_stokes, **_FLOW,
            suited=_suited(_TURN, 0.1, 0.01, 0, 4),
        ),
        Equation(
            "kolmogorov_2d", "viscosity", _kolmogorov, **_FLOW,
            suited=_suited(_TURN, 0.2, 0.025, 100, 8),
        ),
        Equation(
            "ks_2d", "viscosity", _ks_2d, 2, ("u",), partial(ripples, channels=1),
            suited=_suited((30.0, 30.0), 0.5, 1.0, 200, 5),
        ),
        Equation(
            "burgers_2d", "diffusivity", _burgers_2d, 2, ("v_0", "v_1"),
            partial(ripples, channels=2), suited=_suited(_TURN, 0.05, 0.05, 0, 2),
        ),
    )
}
# fmt: on


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
