"""Which wavenumbers end an emulator's rollouts: the true solver steps those from one number on.

A refinement can repair small amplitudes; whether rollouts become longer depends on whether those
are what ends them. An emulator whose high wavenumbers are stepped by the solver shows the most
that repairing them could gain.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.evaluation import roll_emulator
from jaxrl_rollouts.pde.study.train import KsData, StudyConfig, per_seed_keys
from jaxrl_rollouts.trees import PyTree


def solved_from(emulator: Emulator, study: StudyConfig, lowest: int) -> Emulator:
    """The emulator, with wavenumbers from `lowest` on stepped by the true solver.

    The solver starts from the same field, on twice the grid, so that what its de-aliasing drops is
    above the emulator's grid. `lowest = 0` is the solver itself.
    """
    solved, points = study.test, study.points
    substeps = max(1, solved.substeps * study.every // 2)
    span = solved.dt[0] * study.every
    solver = equation(solved.equation).solver(
        2 * points, solved.extent[0], span / substeps, solved.parameter[0]
    )
    high = jnp.arange(points // 2 + 1) >= lowest

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        said = emulator.step(params, key, field, conditions)
        fine = 2.0 * jnp.fft.irfft(jnp.fft.rfft(field), 2 * points)
        true = jax.lax.fori_loop(0, substeps, lambda _, u: solver(u), fine)[..., ::2]
        mixed = jnp.where(high, jnp.fft.rfft(true), jnp.fft.rfft(said))
        return jnp.fft.irfft(mixed, points)

    return emulator._replace(step=step)


def correlation_solved_from(
    emulator: Emulator, params: PyTree, study: StudyConfig, data: KsData, lowest: int
) -> np.ndarray:
    """Correlation `[seeds, T, B]` of the rollouts of `solved_from(emulator, study, lowest)`."""
    helped = solved_from(emulator, study, lowest)

    def roll(of_seed: tuple, shared: tuple) -> jax.Array:
        (params, key), (start, truth, given) = of_seed, shared
        fields = roll_emulator(helped, params, start, given, key, study.steps)
        return metrics.correlation(fields, truth)

    shared = (data.opening(1), data.truth(study.steps), data.test.conditions)
    return np.asarray(map_seeds(roll, (params, per_seed_keys(study, 1)), shared))
