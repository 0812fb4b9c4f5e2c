"""Rollouts that begin shortly before a high reward (keyframes; WoVR has them for robots).

Where a reward is rare, few rollouts of five steps from uniform rows meet it. A share of them begins
0 to `lead` rows before one of the top tenth of the rewards, in the same episode.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.rollouts import Trajectory
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions, episodes

QUANTILE = 0.9


class Keyframes(NamedTuple):
    """Rows with a high reward.

    Attributes:
        rows: `[K]` int32, their numbers.
        ages: `[K]` int32, rows of the episode before each.
        least: the lowest of their rewards.
    """

    rows: jax.Array
    ages: jax.Array
    least: jax.Array


def keyframes_of(transitions: Transitions) -> Keyframes:
    """Rows whose reward is above the 0.9 quantile; those at it where none is above."""
    rewards, parts = np.asarray(transitions.rewards), episodes(transitions)
    level = np.quantile(rewards, QUANTILE)
    rows = np.flatnonzero(rewards > level)
    rows = rows if len(rows) else np.flatnonzero(rewards >= level)
    ages = np.arange(len(rewards)) - np.repeat(parts.starts, parts.lengths)
    numbers, before = (jnp.asarray(x, jnp.int32) for x in (rows, ages[rows]))
    return Keyframes(numbers, before, jnp.asarray(rewards[rows].min(), jnp.float32))


def rows_before(frames: Keyframes, key: jax.Array, count: int, lead: int) -> jax.Array:
    """`count` rows that are 0 to `lead` rows before a keyframe, at least the episode's first."""
    # Folded: the uniform rows of the same epoch are those of a share of 0.
    frame_key, lead_key = jax.random.split(jax.random.fold_in(key, 1))
    chosen = jax.random.randint(frame_key, (count,), 0, len(frames.rows))
    steps = jax.random.randint(lead_key, (count,), 0, lead + 1)
    return frames.rows[chosen] - jnp.minimum(steps, frames.ages[chosen])


def some_before(
    frames: Keyframes, starts: PyTree, key: jax.Array, observations: jax.Array, size: Any
) -> PyTree:
    """`starts [B, S]`, the first `size.keyframe_share` of them replaced by such rows."""
    if not (count := round((size.keyframe_share or 0.0) * size.batch_size)):
        return starts
    rows = rows_before(frames, key, count, size.keyframe_lead)
    return starts.at[:count].set(observations[rows])


def depths(frames: Keyframes, trajectory: Trajectory) -> dict[str, jax.Array]:
    """`reward_met`, share of the rollouts that meet a reward as high as a keyframe's, and
    `reward_depth`, their mean number of steps to the first one (0 where none does)."""
    high = trajectory.valid & (trajectory.steps.rewards >= frames.least)
    met, depth = high.any(0), 1.0 + high.argmax(0)
    mean = jnp.where(met, depth, 0.0).sum() / jnp.maximum(met.sum(), 1)
    return {"reward_met": met.mean(dtype=jnp.float32), "reward_depth": mean}
