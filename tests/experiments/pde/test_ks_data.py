"""The experiments' trajectories are those of a finer solver."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.pde import ks, ks_settled
from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.generate import GenerateConfig, generate
from jaxrl_rollouts.pde.spectral import resampled

pytest.importorskip("exponax")


@pytest.mark.parametrize(
    "preset",
    [ks.CPU.train, ks.CPU.test, ks_settled.CPU.train, ks_settled.CPU.test],
    ids=("steps of 0.8, train", "test", "steps of 0.1, train", "test"),
)
def test_frames_are_those_of_a_finer_solver(preset: GenerateConfig) -> None:
    """On the attractor, from every frame to the next: twice the points, a quarter of the step."""
    burn_in = round(40 / preset.dt[0])
    few = replace(preset, trajectories=4, frames=6, burn_in=burn_in, chunk=4)
    fields, fine = next(generate(few)).fields, 2 * preset.points
    with jax.enable_x64(True):
        substeps = 4 * preset.substeps
        solver = equation("ks").solver(fine, preset.extent[0], preset.dt[0] / substeps, 1.0)
        solve = jax.jit(lambda u: jax.lax.fori_loop(0, substeps, lambda _, u: solver(u), u))
        before = resampled(jnp.asarray(fields[:, :-1].reshape(-1, 1, preset.points)), fine)
        after = np.asarray(resampled(jax.vmap(solve)(before), preset.points))
    error = np.abs(after.reshape(fields[:, 1:].shape) - fields[:, 1:])
    change = np.abs(np.diff(fields, axis=1))
    assert fields.std() > 1.0 and change.max() > 0.05
    # Emulators' errors of a step are from 1e-3 on.
    assert error.max() < 2e-5, error.max()
