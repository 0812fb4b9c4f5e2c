"""The uncertainty of world models on the data they were fitted to, and the threshold it gives.

NEUBAY, section 4: the spread of the members' means at every row of the dataset; rollouts
stop where the spread exceeds a quantile of that, the maximum in the paper's main setting.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter

from ..data import Dataset, Transitions, to_device
from .dynamics import WorldModelParams, uncertainties
from .fit import FittedWorlds


class UncertaintyStats(NamedTuple):
    """Statistics of the spread over the rows of a dataset.

    Attributes:
        levels: `[L]` quantile levels, ascending.
        quantiles: `[L]` of the spread over the rows.
        mean: over the rows; a reward penalty's unit (NEUBAY).
    """

    levels: jax.Array
    quantiles: jax.Array
    mean: jax.Array


LEVELS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)


def uncertainty_stats(
    fitter: Fitter,
    world: WorldModelParams,
    transitions: Transitions,
    levels: tuple[float, ...] = LEVELS,
) -> UncertaintyStats:
    """Measure `spread_of_means` over every row of a dataset, of one seed's world model."""
    if any(not 0 <= level <= 1 for level in levels):
        raise ConfigError("levels", levels, "each from 0 to 1")
    if not len(transitions.rewards):
        raise ConfigError("transitions", "no rows", "at least one")
    spread = uncertainties(fitter, world, transitions.observations, transitions.actions)
    at = jnp.asarray(sorted(levels), jnp.float32)
    return UncertaintyStats(at, jnp.quantile(spread, at), spread.mean())


def uncertainty_stats_of_seeds(
    fitter: Fitter,
    worlds: WorldModelParams,
    transitions: Transitions,
    levels: tuple[float, ...] = LEVELS,
) -> UncertaintyStats:
    """`uncertainty_stats` of every seed's world: leaves `[seeds, ...]`, the dataset shared."""
    return jax.vmap(lambda world: uncertainty_stats(fitter, world, transitions, levels))(worlds)


def uncertainty_threshold(worlds: FittedWorlds, data: Dataset, quantile: float = 1.0) -> jax.Array:
    """Compute the uncertainty at which a rollout stops: `[seeds]`.

        dynamics = worlds.dynamics(env, spread_of_means, normalised=True)
        stops_at = uncertainty_threshold(worlds, data)
        rollout(dynamics.model, world, ..., threshold=stops_at[seed])

    Args:
        worlds: result of `fit_world_models`.
        data: their training data.
        quantile: quantile of the members' spread (`spread_of_means`, normalised) over its rows; 1.0
            is the maximum, NEUBAY's main setting.

    Raises:
        ConfigError: a quantile outside [0, 1].
    """
    rows = to_device(data.with_successors)
    stats = uncertainty_stats_of_seeds(worlds.model.fitter, worlds.worlds, rows, (quantile,))
    return threshold_at(stats, quantile)


def threshold_at(stats: UncertaintyStats, quantile: float) -> jax.Array:
    """The spread at which a rollout stops: a quantile over the dataset, 1.0 its maximum.

    A negative quantile means no threshold at all (infinity), as in the published code. The last
    axis of `stats` is the levels'; a leading seed axis stays.
    """
    if quantile < 0:
        return jnp.full(stats.quantiles.shape[:-1], jnp.inf)
    known = np.asarray(stats.levels).reshape(-1, stats.levels.shape[-1])[0]
    at = np.flatnonzero(np.isclose(known, quantile, atol=1e-6))
    if not len(at):
        expected = "one of " + ", ".join(f"{x:g}" for x in known) + ", or negative for none"
        hint = "uncertainty_stats(..., levels=...) measures others"
        raise ConfigError("uncertainty_quantile", quantile, expected, hint)
    return stats.quantiles[..., int(at[0])]
