"""Statistics of a collection of rollouts: how long they were and what ended them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import Trajectory

from ..recurrent.histories import Drawn


class RolloutStats(NamedTuple):
    """Scalars over the rollouts of one collection; zero before the first.

    Rows at the end of a logged episode, from where nothing is imagined, count in `timesteps` only.

    Attributes:
        horizon_low, horizon_median, horizon_high, horizon_longest: quartiles and maximum of the
            imagined steps.
        ended_threshold, ended_termination, ended_limit: shares of what ended them; the limit is
            the environment's time limit or `rollouts.length`.
        imagined_reward, imagined_uncertainty: means over imagined steps, without any penalty.
        timesteps: stored, real ones and final observations included.
        imagined_share: share of them that were imagined.
    """

    horizon_low: jax.Array
    horizon_median: jax.Array
    horizon_high: jax.Array
    horizon_longest: jax.Array
    ended_threshold: jax.Array
    ended_termination: jax.Array
    ended_limit: jax.Array
    imagined_reward: jax.Array
    imagined_uncertainty: jax.Array
    timesteps: jax.Array
    imagined_share: jax.Array


def no_rollouts() -> RolloutStats:
    """The statistics before the first collection."""
    return RolloutStats(*(jnp.float32(0.0) for _ in RolloutStats._fields))


def measure_rollouts(
    rolled: Trajectory, drawn: Drawn, lengths: jax.Array, uncertainty_threshold: jax.Array | float
) -> RolloutStats:
    """Measure a collection.

    Args:
        rolled: `[T, K, ...]` steps with rewards, terminations and uncertainties; rows of finished
            moments have no valid step.
        lengths: `[K]` timesteps that are stored.
    """
    going, steps = ~drawn.finished, rolled.lengths
    count = jnp.maximum(going.sum(), 1).astype(jnp.float32)
    # NaN where nothing was imagined, which quantiles then leave out.
    imagined = jnp.where(going, steps.astype(jnp.float32), jnp.nan)
    quartiles = jnp.nan_to_num(jnp.nanquantile(imagined, jnp.array([0.25, 0.5, 0.75, 1.0])))
    terminated = rolled.steps.terminations.any(0)
    cut = (rolled.steps.uncertainties > uncertainty_threshold).any(0) & ~terminated
    total = jnp.maximum(steps.sum(), 1)
    timesteps = lengths.sum().astype(jnp.float32)
    shares = (cut.sum() / count, terminated.sum() / count)
    return RolloutStats(
        quartiles[0],
        quartiles[1],
        quartiles[2],
        quartiles[3],
        *shares,
        going.sum() / count - shares[0] - shares[1],
        rolled.steps.rewards.sum() / total,
        rolled.steps.uncertainties.sum() / total,
        timesteps,
        steps.sum() / timesteps,
    )
