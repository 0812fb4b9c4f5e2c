"""Datasets of solved equations: made on the device in chunks, in float64, written as they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.record.loggers import Progress

from .equations import equation, join_solver, split_solver
from .field import advance_field, roll_field
from .generate_settings import Simulation as Simulation
from .metrics import spectrum
from .spectral import resampled


class Solved(NamedTuple):
    """One chunk, float64.

    Attributes:
        fields: `[b, frames, C, *points]`.
        extent, dt, parameter: `[b]`.
    """

    fields: np.ndarray
    extent: np.ndarray
    dt: np.ndarray
    parameter: np.ndarray


def _solve(config: Simulation, keys: jax.Array) -> Solved:
    """Trajectories of `keys` `[b]`; traced under float64."""
    which, fine = equation(config.equation), config.points * config.oversampling

    def draw(key: jax.Array) -> tuple:
        extent_key, dt_key, value_key, start_key = jax.random.split(key, 4)
        ranges = (config.extent, config.dt, config.parameter_range)
        drawn = [
            jax.random.uniform(k, (), jnp.float64, *limits)
            for k, limits in zip((extent_key, dt_key, value_key), ranges, strict=True)
        ]
        return which.initial(start_key, fine, drawn[0], config.initial_condition), *drawn

    rest: Any = None

    def coefficients(extent: jax.Array, dt: jax.Array, value: jax.Array) -> Any:
        nonlocal rest
        solver = which.solver(fine, extent, dt / config.substeps, value)
        arrays, rest = split_solver(solver)
        return arrays

    def frame(arrays: Any, key: jax.Array, u: jax.Array) -> jax.Array:
        solver = join_solver(arrays, rest)
        return jax.lax.fori_loop(0, config.substeps, lambda _, u: solver(u), u)

    def kept(u: jax.Array) -> jax.Array:
        return u if config.oversampling == 1 else resampled(u, config.points, which.axes)

    start, *params = jax.vmap(draw)(keys)
    solvers = jax.vmap(coefficients)(*params)  # once, and not in every step
    unused = jax.random.key(0)  # the equations are deterministic
    settled = start
    if config.burn_in:
        settled = advance_field(frame, solvers, start, unused, config.burn_in, own_params=True)
    first = kept(settled)[None]
    if config.frames > 1:
        later = roll_field(
            frame, solvers, settled, unused, config.frames - 1, own_params=True, record=kept
        )
        first = jnp.concatenate([first, later])
    return Solved(jnp.swapaxes(first, 0, 1), *params)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=8)
def _solver(config: Simulation) -> Callable[[jax.Array], Solved]:
    """Compiled once for all seeds and numbers of trajectories."""
    return jax.jit(lambda keys: _solve(config, keys))


def generate(config: Simulation, *, progress: bool = False) -> Iterator[Solved]:
    """Solve chunk after chunk.

    Trajectory `i` depends on the seed and on `i` only.
    """
    check(config)
    solve = _solver(replace(config, trajectories=1, seed=0))
    bar = Progress("solve", total=config.trajectories, unit="trajectories", enabled=progress)
    with bar:
        for begin in range(0, config.trajectories, config.chunk):
            count = min(config.chunk, config.trajectories - begin)
            index = jnp.minimum(jnp.arange(config.chunk), count - 1) + begin
            keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(config.seed), i))(index)
            with jax.enable_x64(True):
                solved = Solved(*(np.asarray(x)[:count] for x in solve(keys)))
            _check(solved, begin)
            bar.advance(count, {})
            yield solved


def _check(solved: Solved, begin: int) -> None:
    bad = np.flatnonzero(~np.isfinite(solved.fields).all(tuple(range(1, solved.fields.ndim))))
    if len(bad):
        i = int(bad[0])
        raise DivergenceError(
            f"trajectory {begin + i} (extent {solved.extent[i]:.4g}, dt {solved.dt[i]:.4g}, "
            f"parameter {solved.parameter[i]:.4g}) is not finite; try more substeps or points"
        )


class Quality(NamedTuple):
    """Statistics to check before training on a set.

    Attributes:
        std: standard deviation of all values.
        increment: `[trajectories]` standard deviation of the change from frame to frame.
        steady: share of nearly stationary trajectories (increment below a twentieth of the median).
        tail: amplitude at the highest resolved wavenumbers relative to the highest amplitude.
    """

    std: float
    increment: np.ndarray
    steady: float
    tail: float


def quality(fields: Any, extent: Sequence[float] = (), boundaries: Sequence[str] = ()) -> Quality:
    """Look at `[n, T, C, *space]`; `T` at least 2. A tail is the mean of the channels'.

    Args:
        fields: trajectories.
        extent, boundaries: those of every axis, as for `metrics.spectrum`.
    """
    fields = np.asarray(fields, np.float64)
    increment = np.diff(fields, axis=1).std(tuple(range(1, fields.ndim)))
    with jax.enable_x64(True):
        domain: Any = {"space_dims": fields.ndim - 3, "extent": extent, "boundaries": boundaries}
        amplitude = np.asarray(spectrum(jnp.asarray(fields), **domain).mean((0, 1)))
    kept = int(2 * (amplitude.shape[1] - 1) / 3)  # what 2/3 de-aliasing leaves
    resolved = amplitude[:, : max(kept, 2)]
    highest = np.maximum(amplitude.max(1), np.finfo(float).tiny)
    return Quality(
        float(fields.std()),
        increment,
        float((increment < np.median(increment) / 20).mean()),
        float((resolved[:, -3:].mean(1) / highest).mean()),
    )
