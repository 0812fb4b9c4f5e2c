"""Periodic equations, solved by exponax (ETDRK4, pseudo-spectral, 2/3 de-aliased,
Gray-Scott, which is cubic, 1/2; KdV: `etdrk`).

ks                u_t + u u_x + u_xx + viscosity u_xxxx = 0       (conservative form)
burgers           u_t + u u_x = diffusivity u_xx                  (conservative form)
kdv               u_t + 6 u u_x + dispersion u_xxx = 0
advection         u_t + velocity u_x = 0                          (exact)
navier_stokes_2d  w_t + (v . grad) w = viscosity lap w            (w the curl of v)
kolmogorov_2d     the same with a force -sin(4 y) along x and - 0.1 w: steady on average
ks_2d             u_t + |grad u|^2 / 2 + lap u + viscosity (u_xxxx + u_yyyy) = 0, without its mean
                  (no mixed derivative as in lap^2: that is how exponax has it)
burgers_2d        v_t + (v . grad) v = diffusivity lap v          (two channels)
gray_scott_2d     a_t = 2e-5 lap a + feed (1 - a) - a b^2,
                  b_t = 1e-5 lap b - (feed + 0.06) b + a b^2      (two channels, a and b)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.etdrk import etdrk4, wavenumbers

from .starts import STARTS, Domain

Solver = Callable[[jax.Array], jax.Array]


class Equation(NamedTuple):
    """One equation with one parameter.

    Attributes:
        name, parameter: names of the equation and of its parameter.
        solver: `(points, extent, dt, value) -> (u [C, *points] -> u)`; all but `points` may be
            traced, so that trajectories of different length scales share one program. The result
            is a pytree of its coefficients: `split_solver` makes it once for many steps.
        axes: number of spatial axes, `points` long each.
        channels: a name for each of `C`.
        starts: names of its initial conditions in `starts.STARTS`; the first is the default.
        forced: axes along which it is not the same everywhere: fields may not be moved there.
    """

    name: str
    parameter: str
    solver: Callable[[int, Any, Any, Any], Solver]
    axes: int = 1
    channels: tuple[str, ...] = ("u",)
    starts: tuple[str, ...] = ("sines",)
    forced: tuple[int, ...] = ()

    def initial(
        self, key: jax.Array, points: int, extent: jax.Array | float = 1.0, start: str = ""
    ) -> jax.Array:
        """A random initial field `[C, *points]`."""
        on = Domain(points, extent, len(self.channels))
        return STARTS[start or self.starts[0]](key, on)


def _stepper(name: str) -> Any:
    try:
        from exponax import stepper
    except ImportError:
        raise MissingExtraError("solving equations", "exponax", "pde") from None
    return getattr(stepper.reaction if name == "GrayScott" else stepper, name)


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


def _mirrored(solver: Solver) -> Solver:
    """A solver of exponax on the vorticity of the velocity that moves it.

    exponax moves its state `w` with `v = (d_1 psi, -d_0 psi)`, `lap psi = w`, whose curl is `-w`.
    """
    return jax.tree_util.Partial(_negated, solver)


def _negated(solver: Solver, vorticity: jax.Array) -> jax.Array:
    return -solver(-vorticity)


def _navier_stokes(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    stepper = _stepper("NavierStokesVorticity")
    return _mirrored(stepper(2, extent, points, dt, diffusivity=viscosity, order=4))


def _kolmogorov(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    # exponax multiplies the force by its wavenumber on a domain of length 2 pi.
    return _mirrored(
        _stepper("KolmogorovFlowVorticity")(
            2,
            extent,
            points,
            dt,
            diffusivity=viscosity,
            drag=-DRAG,
            injection_mode=WAVES,
            injection_scale=2 * jnp.pi / extent,
            order=4,
        )
    )


def _ks_2d(points: int, extent: Any, dt: Any, viscosity: Any) -> Solver:
    return _stepper("KuramotoSivashinsky")(
        2, extent, points, dt, fourth_order_scale=viscosity, order=4
    )


def _burgers_2d(points: int, extent: Any, dt: Any, diffusivity: Any) -> Solver:
    return _stepper("Burgers")(2, extent, points, dt, diffusivity=diffusivity, order=4)


def _gray_scott(points: int, extent: Any, dt: Any, feed: Any) -> Solver:
    return _stepper("GrayScott")(2, extent, points, dt, feed_rate=feed, kill_rate=KILL, order=4)


DRAG, WAVES = 0.1, 4  # of the Kolmogorov flow
KILL = 0.06  # of Gray-Scott
_VELOCITY = 2, ("velocity_x", "velocity_y"), ("ripples",)
_VORTICITY = 2, ("vorticity",), ("vortices", "shear_layer", "piecewise")

EQUATIONS = {
    equation.name: equation
    for equation in (
        Equation("ks", "viscosity", _ks, starts=("sines", "faint")),
        Equation("burgers", "diffusivity", _burgers),
        Equation("kdv", "dispersion", _kdv),
        Equation("advection", "velocity", _advection),
        Equation("navier_stokes_2d", "viscosity", _navier_stokes, *_VORTICITY),
        Equation("kolmogorov_2d", "viscosity", _kolmogorov, *_VORTICITY, (1,)),
        Equation("ks_2d", "viscosity", _ks_2d, 2, ("u",), ("ripples",)),
        Equation("burgers_2d", "diffusivity", _burgers_2d, *_VELOCITY),
        Equation("gray_scott_2d", "feed", _gray_scott, 2, ("a", "b"), ("squares",)),
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
    """An equation by name."""
    if name not in EQUATIONS:
        raise unknown("equation", name, EQUATIONS)
    return EQUATIONS[name]
