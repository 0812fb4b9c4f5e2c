"""Strategies of forecasts (`jaxrl_rollouts.strategies`) for emulators of fields.

fields = windows(pde.read("ks22"), 20)                       # of 20 steps each
direct = Strategy("dir", block=5, horizon=20)
heads = fit_strategy(direct, fields, training=training)
states = forecast(direct, heads, fields.array()[:, 0])       # [20, B, C, *X]

`rec(s)` is temporal bundling, the objective `Mse(bundle=s)`.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.strategies import Strategy, columns, fit_heads

from .adapters import NetworkLike
from .fieldset import FieldSet
from .files import from_arrays
from .fitting import fit
from .objectives import Mse
from .trained import TrainedEmulator
from .training import Training


class Head(NamedTuple):
    """An emulator of one block, whose history is what the block's network reads."""

    emulator: TrainedEmulator

    def __call__(self, state: jax.Array, rest: jax.Array) -> jax.Array:
        """Changes from the newest frame that is read, `[B, s * C, *X]`."""
        read = _frames(jnp.concatenate([state, rest], 1), state.shape[1])
        steps = self.emulator.emulator.bundle
        start = read if self.emulator.history > 1 else read[:, 0]
        return columns(jnp.asarray(self.emulator.roll(start, steps)) - read[:, -1])


def windows(fields: FieldSet, horizon: int, every: int = 1) -> FieldSet:
    """Windows of `horizon` steps as trajectories; their starts are `every` frames apart.

    The first window of each trajectory comes first, then the second of each, and so on.
    """
    u = fields.array()
    starts = range(0, u.shape[1] - horizon, every)
    return _like(fields, np.concatenate([u[:, t : t + horizon + 1] for t in starts]))


def fit_strategy(
    strategy: Strategy,
    fields: FieldSet,
    *,
    network: str | NetworkLike = "resnet",
    training: Training | None = None,
    key: jax.Array | int = 0,
    base: jax.Array | None = None,
) -> tuple[Head, ...]:
    """Fit the networks of a strategy; see `fit_heads`. Conditions are not seen.

    Args:
        strategy: kind and sizes.
        fields: trajectories of `horizon + 1` frames, of `windows`.
        network: of each block, as for `fit`.
        training: of each network.
        key: consumed, or the number to make one of.
        base: of a rectifier, the forecast `[H, B, C, *X]` of these windows.

    Raises:
        ConfigError: windows of another length, or a rectifier without a base forecast.
    """
    u = fields.array()

    def fit_head(i: int, state: jax.Array, rest: jax.Array, change: jax.Array) -> Head:
        read = _frames(jnp.concatenate([state, rest], 1), u.shape[2])
        # As frames after the newest one that is read, changes are what a bundle is trained on.
        rows = np.concatenate([read, read[:, -1:] + _frames(change, u.shape[2])], 1)
        with warnings.catch_warnings():
            # From what is read to a later block there is a jump, and no frame is left out.
            warnings.filterwarnings("ignore", r"array: .*frame")
            fitted = fit(
                Mse(bundle=strategy.block),
                _like(fields, rows),
                network=network,
                conditions=(),
                history=read.shape[1],
                training=training,
                key=jax.random.fold_in(as_key(key), i),
            )
        return Head(fitted.emulator)

    return fit_heads(strategy, fit_head, jnp.moveaxis(jnp.asarray(u), 1, 0), None, base)


def _frames(stacked: jax.Array, channels: int) -> jax.Array:
    """`[B, T * C, *X]` as `[B, T, C, *X]`."""
    return stacked.reshape(len(stacked), -1, channels, *stacked.shape[2:])


def _like(fields: FieldSet, u: np.ndarray) -> FieldSet:
    """Trajectories `[N, T, C, *X]` in the domain of the first one of `fields`."""
    spacing = fields.extent[0] / np.asarray(u.shape[3:])
    known = spacing if np.isfinite(spacing).all() else None
    kinds, names = fields.boundaries or "", fields.channels or None
    made = from_arrays(u, None, known, None, kinds, names, axes=u.ndim - 3)
    return made._replace(equation=fields.equation)  # along a forced axis windows are not moved
