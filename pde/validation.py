"""The error of a step on validation trajectories, and the weights where it was lowest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.descent import AveragedState
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.trees import PyTree

from .constant import changing, check_constant
from .emulator import Conditions, Emulator
from .fieldset import FieldSet
from .frames import narrowed
from .trained import TrainedEmulator
from .units import standardised

STARTS = 8  # steps of a trajectory that are measured
KEY = 0  # of a stochastic emulator's noise: the same at every evaluation, so that they compare


class Validation:
    """An `evaluate` of `train_loop` that keeps the best averaged weights of every seed.

    Args:
        emulator: the emulator to measure.
        before: fields `[n, H * C, *space]` to step from.
        after: the frames `[n, C, *space]` that follow.
        conditions: conditions of each.
    """

    def __init__(
        self, emulator: Emulator, before: jax.Array, after: jax.Array, conditions: Conditions
    ) -> None:
        self._errors = _errors(emulator)
        self._pairs = before, after, conditions
        self.kept: PyTree = ()
        self.lost: Any = False

    @staticmethod
    def of(own: TrainedEmulator, fields: FieldSet) -> Validation:
        """On trajectories in the units of an emulator."""
        history, stride = own.history, own.stride
        shape = (own.width, *own.grid)
        if fields.shape[2:] != shape:
            expected = f"those that are trained on, {list(shape)}"
            raise DataError(fields.path, "channels, points", list(fields.shape[2:]), expected)
        u = narrowed(fields.read(slice(None), slice(0, None, stride)))
        if u.shape[1] <= history:
            raise DataError(fields.path, "frames", fields.shape[1], f"more than {history * stride}")
        check_constant(fields.path, u, own.constant, own.names)
        moving = u[:, :, list(own.changing)] if own.constant else u
        seen = fields._replace(constant=tuple(own.constant)) if own.constant else changing(fields)
        data = standardised(seen, moving, own.units, own.conditions, own.constant)
        at = np.unique(np.linspace(0, u.shape[1] - 1 - history, STARTS).astype(int))
        before = jnp.concatenate(
            [data.fields[:, t : t + history].reshape(len(u), -1, *own.grid) for t in at]
        )
        after = jnp.concatenate([data.fields[:, t + history] for t in at])
        repeated = jax.tree.map(lambda x: jnp.concatenate([x] * len(at)), data.conditions)
        return Validation(own.emulator, before, after, repeated)

    @property
    def best(self) -> PyTree:
        """Averaged weights `[seeds, ...]` of the lowest error."""
        return self.kept["params"]

    def begin(self, state: AveragedState) -> None:
        """Nothing was measured yet: any error is lower."""
        seeds = jax.tree.leaves(state.average)[0].shape[0]
        params = jax.tree.map(jnp.copy, state.average)
        self.kept = {"params": params, "error": jnp.full((seeds,), jnp.inf)}

    def __call__(self, state: AveragedState, iteration: int) -> Mapping[str, Any]:
        del iteration
        error = jnp.where(self.lost, jnp.nan, self._errors(state.average, *self._pairs))
        self.kept = _lower(self.kept, {"params": state.average, "error": error})
        return {"validation_error": np.asarray(error)}


@jax.jit
def _lower(kept: PyTree, new: PyTree) -> PyTree:
    """Of each seed that of the two whose error is lower."""
    better = new["error"] < kept["error"]

    def chosen(old: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *(1,) * (old.ndim - 1)), other, old)

    return jax.tree.map(chosen, kept, new)


@functools.lru_cache(maxsize=8)
def _errors(emulator: Emulator) -> Callable[..., jax.Array]:
    """Root mean square error `[seeds]` of steps, in standard deviations of the training data."""

    def error(params: PyTree, before: jax.Array, after: jax.Array, given: Conditions) -> jax.Array:
        def one(pair: tuple) -> jax.Array:
            field, truth, key, conditions = pair
            prediction = emulator.made(emulator.step(params, key, field, conditions))[0]
            return jnp.square(prediction - truth).mean()

        keys = jax.random.split(jax.random.key(KEY), len(before))
        return jnp.sqrt(jax.lax.map(one, (before, after, keys, given), batch_size=32).mean())

    return jax.jit(lambda params, *pairs: jax.lax.map(lambda p: error(p, *pairs), params))
