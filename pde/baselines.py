"""Baselines of emulators besides persistence: a linear map, a low-pass, a solver.

Each is an `Emulator`, so that it is rolled and measured as trained ones are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.trees import PyTree

from .emulator import Conditioning, Conditions, Emulator, latest, persistence, pushed
from .equations import Equation
from .fieldset import Scaling, from_units, to_units
from .spectral import filtered

RIDGE = 1e-10  # of the mean power of a wavenumber's inputs


def fit_linear(
    parts: Iterable[np.ndarray],
    history: int = 1,
    stride: int = 1,
    constant: Iterable[np.ndarray] | None = None,
) -> np.ndarray:
    """The best linear map for every wavenumber, in closed form.

    `u_{t+1}(k) = A(k) [u_{t-H+1}(k); ...; u_t(k)]` with `A = S_yx (S_xx + ridge)^-1`, least squares
    over all windows of all trajectories. Constant channels stand behind the frames that are seen.

    Args:
        parts: standardised fields `[n, T, C, *space]`, some trajectories at a time; periodic.
        history: frames that are seen, `H`.
        stride: frames per step.
        constant: `[n, S, *space]` of the same trajectories, standardised.

    Returns:
        Parameters of `make_linear`, `[2, *bins, C, H * C + S]` float32: real and imaginary parts.
    """
    above, below = 0.0, 0.0
    beside = constant if constant is not None else itertools.repeat(None)
    for part, held in zip(parts, beside, strict=False):
        axes = tuple(range(3, part.ndim))
        modes = np.fft.rfftn(part, axes=axes)
        windows = part.shape[1] - history * stride
        seen = [modes[:, h * stride : h * stride + windows] for h in range(history)]
        if held is not None:
            once = np.fft.rfftn(held, axes=tuple(range(2, held.ndim)))[:, None]
            seen.append(np.broadcast_to(once, (len(once), windows, *once.shape[2:])))
        after = np.moveaxis(modes[:, history * stride :], 2, -1)
        before = np.moveaxis(np.concatenate(seen, 2), 2, -1)
        above = above + np.einsum("nt...c,nt...d->...cd", after, before.conj())
        below = below + np.einsum("nt...c,nt...d->...cd", before, before.conj())
    below = np.asarray(below)
    width = below.shape[-1]
    power = np.trace(below, axis1=-2, axis2=-1).real / width
    least = np.finfo(np.float64).tiny
    below = below + (RIDGE * power + least)[..., None, None] * np.eye(width)
    # A S_xx = S_yx, and S_xx is its own conjugate transpose: S_xx A^H = S_yx^H.
    found = np.linalg.solve(below, np.swapaxes(above, -1, -2).conj())
    found = np.swapaxes(found, -1, -2).conj()
    return np.stack([found.real, found.imag]).astype(np.float32)


def make_linear(axes: int, history: int = 1) -> Emulator:
    """The emulator of `fit_linear`'s parameters; a step is one product per wavenumber."""

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions) -> jax.Array:
        del key
        over = tuple(range(-axes, 0))
        beside = [conditions.constant] if isinstance(conditions, Conditioning) else []
        modes = jnp.fft.rfftn(jnp.concatenate([field, *beside]), axes=over)
        real, imaginary = params
        mixed = jnp.einsum("...cd,d...->c...", real + 1j * imaginary, modes)
        after = jnp.fft.irfftn(mixed, s=field.shape[-axes:], axes=over)
        return pushed(field, after - latest(field, history))

    return persistence(history)._replace(step=step)


def make_low_pass(emulator: Emulator, axes: int) -> Emulator:
    """The emulator with some wavenumbers of every prediction set to zero.

    Its parameters are those of the emulator and a gain per bin `[*bins]`, as for `filtered`.
    """

    def cut(after: jax.Array, gain: jax.Array) -> jax.Array:
        newest = emulator.made(after).reshape(-1, *after.shape[1:])
        return after.at[-len(newest) :].set(filtered(newest, gain, axes))

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        return cut(emulator.step(params[0], key, field, conditions), params[1])

    def stages(
        params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
    ) -> jax.Array:
        assert emulator.stages is not None
        fields = emulator.stages(params[0], key, field, conditions)
        return jax.vmap(cut, (0, None))(fields, params[1])

    return emulator._replace(step=step, stages=stages if emulator.stages else None)


def low_pass_cut(error: np.ndarray, amplitude: np.ndarray) -> int:
    """The first wavenumber at which a step's error is larger than the field itself, `K` if none is.

    Args:
        error: `[K]` mean amplitudes of prediction minus truth after a step, by shell.
        amplitude: `[K]` of the truth.
    """
    above = np.flatnonzero(np.asarray(error)[1:] > np.asarray(amplitude)[1:])
    return int(above[0]) + 1 if len(above) else len(error)


def make_solver(
    equation: Equation, points: int, units: tuple[Scaling, ...], substeps: int
) -> Emulator:
    """The equation's solver on a grid, as an emulator of standardised fields.

    Conditions are a trajectory's extent, time per step and parameter, `[3]`, in its own units.

    Args:
        equation: equation of the fields.
        points: points of the emulator's grid, along every axis.
        units: units of every channel.
        substeps: substeps of the solver per step.
    """

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        del params, key
        extent, dt, value = conditions
        solver: Any = equation.solver(points, extent, dt / substeps, value)
        u = from_units(units, field, equation.axes)
        u = jax.lax.fori_loop(0, substeps, lambda _, u: solver(u), u)
        return to_units(units, u, equation.axes)

    return persistence()._replace(step=step)
