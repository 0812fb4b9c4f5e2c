"""Where model rollouts from data on the plane can lead, and the edge of that reach.

Rollouts of k steps end at a Chebyshev distance of at most k from the data, since an action moves
each coordinate by at most one. States at a distance in (k - 1, k] are reached in exactly k steps
and in no fewer: values are bootstrapped from them and never updated (RAVL, Sims et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .plane import ValueGrid


class BoxDistance(NamedTuple):
    """Chebyshev distance from a box `[-half_width, half_width]^2` that is full of data, exactly."""

    half_width: float
    low: float = -32.0  # of the square that is looked at, as a `ValueGrid` has it

    def __call__(self, states: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.abs(states).max(-1) - self.half_width, 0.0)


class Reach(NamedTuple):
    """Where `horizon` steps (k) from the data can lead; `distance` from them is Chebyshev's."""

    distance: ValueGrid | BoxDistance
    horizon: int

    def within(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in fewer than k steps, `[...]` bool."""
        return self.distance(states) <= self.horizon - 1

    def edge(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in exactly k steps only, `[...]` bool."""
        distance = self.distance(states)
        return (distance > self.horizon - 1) & (distance <= self.horizon)


def measure_reach(
    observations: np.ndarray, horizon: int, *, half_width: int = 32, per_unit: int = 8
) -> Reach:
    """Distances from `[N, 2]` dataset states on a grid, exact within half its spacing.

    Raises:
        ValueError: data outside the grid.
    """
    if np.abs(observations).max() > half_width:
        raise ValueError(f"observations: found some beyond +-{half_width}, expected none")
    size = 2 * half_width * per_unit + 1
    occupied = np.zeros((size, size), bool)
    cells = np.rint((observations + half_width) * per_unit).astype(int)
    occupied[cells[:, 0], cells[:, 1]] = True
    # The Chebyshev distance is a minimum over rows of a maximum, so one axis goes after the other.
    gaps = np.abs(np.arange(size)[:, None] - np.arange(size)).astype(np.float32)
    along = np.stack([np.where(row, gaps, np.inf).min(1) for row in occupied])  # [row, column]
    distance = np.stack([np.maximum(gap[:, None], along).min(0) for gap in gaps])
    grid = ValueGrid(jnp.asarray(distance / per_unit), float(-half_width), 1.0 / per_unit)
    return Reach(grid, horizon)


def sample_region(
    reach: Reach, member: Callable[[jax.Array], jax.Array], count: int, *, seed: int = 0
) -> jax.Array:
    """`[count, 2]` states drawn uniformly from where `member` (of `reach`) is true."""
    width = -reach.distance.low
    drawn = np.random.default_rng(seed).uniform(-width, width, (200 * count, 2)).astype(np.float32)
    return jnp.asarray(drawn[np.asarray(member(jnp.asarray(drawn)))][:count])
