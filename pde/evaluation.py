"""Rollouts of emulators against the truth, through the engine's one rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.trees import PyTree

from . import metrics
from .emulator import Conditions, Emulator
from .field import roll_field


def roll_emulator(
    emulator: Emulator,
    params: PyTree,
    start: jax.Array,
    conditions: Conditions,
    key: jax.Array,
    steps: int,
) -> jax.Array:
    """Roll an emulator forward.

    Args:
        emulator, params: what to roll.
        start: `[B, H * C, *space]`, the emulator's history, oldest frame first.
        conditions: `[B, P]`; `Told` where there are constant channels.
        key: consumed; every field, step and refinement draws its own noise from it.
        steps: how many.

    Returns:
        `[steps, B, C, *space]`, the newest frame after every step; the start is left out.
    """

    def step(conditions: Conditions, key: jax.Array, field: jax.Array) -> jax.Array:
        return emulator.step(params, key, field, conditions)

    fields = roll_field(step, conditions, start, key, steps, own_params=True)
    return fields[:, :, -(start.shape[1] // emulator.history) :]


class Rolled(NamedTuple):
    """A rollout compared with the truth; time-major.

    Attributes:
        correlation: `[T, B]`, centred Pearson.
        nrmse, relative_l1, vrmse: `[T, B]`.
        first_error: `[K]` error spectrum after one step.
        last_spectrum: `[K]` of the rollout itself, see `late_spectrum`.
    """

    correlation: jax.Array
    nrmse: jax.Array
    relative_l1: jax.Array
    vrmse: jax.Array
    first_error: jax.Array
    last_spectrum: jax.Array


def late_spectrum(fields: jax.Array) -> jax.Array:
    """Mean amplitudes `[K]` over the last quarter of `[T, B, C, *space]`, by shell."""
    return metrics.mean_spectrum(fields[3 * len(fields) // 4 :], space_dims=fields.ndim - 3)


def compare(
    prediction: jax.Array, truth: jax.Array, own: Callable[[jax.Array], jax.Array] = lambda u: u
) -> Rolled:
    """Compare `[T, B, C, *space]` with the truth of the same shape.

    `own` brings fields to their own units, in which relative errors are asked.
    """
    units = own(prediction), own(truth)
    return Rolled(
        metrics.correlation(prediction, truth),
        metrics.nrmse(prediction, truth),
        metrics.relative_l1(*units),
        metrics.vrmse(*units),
        metrics.error_spectrum(prediction[0], truth[0], space_dims=truth.ndim - 3),
        late_spectrum(prediction),
    )


def sampled_horizon(
    emulator: Emulator,
    params: PyTree,
    start: jax.Array,
    conditions: Conditions,
    key: jax.Array,
    steps: int,
    samples: int,
) -> jax.Array:
    """Cross-correlation of `samples` stochastic rollouts, `[steps, B]`; no truth needed."""
    keys = jax.random.split(key, samples)
    rolled = jax.lax.map(
        lambda k: roll_emulator(emulator, params, start, conditions, k, steps), keys
    )
    return metrics.cross_correlation(jnp.asarray(rolled))
