"""Strategies of forecasts (`jaxrl_rollouts.strategies`) for world models, open loop."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.strategies import Strategy, fit_heads

from .dynamics import WorldModelParams, predict
from .fit import fit_model, regression
from .open_loop import LoggedWindows


class Head(NamedTuple):
    """A network of one block: from what it reads to the changes over the block's steps."""

    fitter: Fitter
    world: WorldModelParams

    def __call__(self, state: jax.Array, rest: jax.Array) -> jax.Array:
        """Mean change, `[B, s * S]`."""
        return predict(self.fitter, self.world, state, rest).mean.mean(0)


def fit_strategy(
    strategy: Strategy,
    config: EnsembleConfig,
    logged: LoggedWindows,
    key: jax.Array,
    base: jax.Array | None = None,
) -> tuple[Head, ...]:
    """Fit the networks of a strategy; see `fit_heads`.

    Args:
        strategy: kind and sizes.
        config: of each network.
        logged: windows of `horizon` steps.
        key: consumed.
        base: of a rectifier, the forecast of these windows.

    Raises:
        ConfigError: windows of another length, or a rectifier without a base forecast.
    """

    def fit(i: int, state: jax.Array, rest: jax.Array, change: jax.Array) -> Head:
        x, y = np.concatenate([state, rest], 1), np.asarray(change)
        model = regression(config, x, y, "change")
        return Head(model.fitter, fit_model(model, config, jax.random.fold_in(key, i)).world())

    return fit_heads(strategy, fit, logged.observations, logged.actions, base)
