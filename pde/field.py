"""Fields in the engine's rollout: a stepper `u -> u` is a transition without actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import Model, StepResult, rollout, step_result
from jaxrl_rollouts.trees import PyTree

from .emulator import Conditions, Emulator

Stepper = Callable[..., jax.Array]


def field_model(stepper: Stepper, *, own_params: bool = False) -> Model:
    """A rollout `Model` of `B` fields `[B, C, *space]`.

    Args:
        stepper: `(params, key, field [C, *space]) -> field`, one time step of one field; an
            exponax stepper is `lambda params, key, u: stepper(u)`. Each field of the batch gets
            a key of its own.
        own_params: each field has parameters of its own, leaves `[B, ...]`.
    """

    def step(
        params: PyTree, key: jax.Array, state: jax.Array, action: Any, member: Any
    ) -> tuple[jax.Array, StepResult]:
        batch = state.shape[0]
        keys = jax.random.split(key, batch)
        axes = (0 if own_params else None, 0, 0)
        following = jax.vmap(stepper, in_axes=axes)(params, keys, state)
        return following, step_result(batch)

    return Model(step)


def roll_field(
    stepper: Stepper,
    params: PyTree,
    start: jax.Array,
    key: jax.Array,
    steps: int,
    *,
    own_params: bool = False,
    record: Callable[[jax.Array], jax.Array] = lambda fields: fields,
) -> jax.Array:
    """Roll fields forward: `start` `[B, C, *space]` to `[steps, B, C, *space]`, start left out.

    `record` of the fields `[B, C, *space]` of every step, where it is given.
    """
    trajectory = rollout(
        field_model(stepper, own_params=own_params),
        params,
        start,
        key,
        horizon=steps,
        record=lambda step: record(step.next_observations),
    )
    return trajectory.steps


def advance_field(
    stepper: Stepper,
    params: PyTree,
    start: jax.Array,
    key: jax.Array,
    steps: int,
    *,
    own_params: bool = False,
) -> jax.Array:
    """The last of `roll_field`'s fields, without keeping the others."""
    model = field_model(stepper, own_params=own_params)
    return rollout(model, params, start, key, horizon=steps, record=lambda step: ()).state


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
        conditions: `[B, P]`; `Conditioning` where there are constant channels.
        key: consumed; every field, step and refinement has its own noise from it.
        steps: number of frames; surplus frames of a bundle's last call are dropped.

    Returns:
        `[steps, B, C, *space]`, the frames after every step; the start is left out.
    """

    seen, size = start.shape[1], start.shape[1] // emulator.history

    def step(conditions: Conditions, key: jax.Array, field: jax.Array) -> jax.Array:
        return emulator.step(params, key, field[-seen:], conditions)

    if emulator.bundle == 1:
        fields = roll_field(step, conditions, start, key, steps, own_params=True)
        return fields[:, :, -size:]
    more = emulator.held - emulator.history  # frames that a step leaves and does not see
    start = jnp.concatenate([jnp.zeros_like(start[:, :size])] * more + [start], 1)
    calls = -(-steps // emulator.bundle)
    fields = roll_field(step, conditions, start, key, calls, own_params=True)
    made = jax.vmap(jax.vmap(emulator.made))(fields)  # [calls, B, k, C, *space]
    return jnp.moveaxis(made, 2, 1).reshape(-1, *start.shape[:1], size, *start.shape[2:])[:steps]
