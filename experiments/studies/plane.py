"""What is known exactly of the plane: its optimum, where rollouts from data can lead, and the edge.

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

from jaxrl_rollouts.offline.environments.plane import GOAL, MAX_EPISODE_STEPS, WIDTH, reward


def optimal_policy(
    params: object, key: jax.Array, observation: jax.Array, memory: tuple
) -> tuple[jax.Array, tuple]:
    """Straight to the goal in each coordinate.

    The reward falls with each coordinate's distance and the coordinates move independently, so
    the policy that is nearest in both at every time is optimal for any horizon and discount.
    """
    return jnp.clip(jnp.array(GOAL) - observation, -1.0, 1.0), memory


def optimal_return(
    state: jax.Array, *, discount: float = 1.0, horizon: int | None = MAX_EPISODE_STEPS
) -> jax.Array:
    """Exact optimal (discounted) return from `[..., 2]` positions.

    Returns:
        `[...]`, the sum over time of what `optimal_policy` earns. Without a horizon the sum is
        exact up to 128 steps from the goal and the position is clipped there.
    """
    if horizon is None and discount >= 1.0:
        raise ValueError(f"discount: found {discount}, expected below 1 without a horizon")
    steps = 128 if horizon is None else horizon
    distance = jnp.abs(state - jnp.array(GOAL))
    if horizon is None:
        distance = jnp.minimum(distance, float(steps))
    time = jnp.arange(steps, dtype=jnp.float32)
    left = jnp.maximum(distance[..., None, :] - (time[:, None] + 1.0), 0.0)
    rewards = jnp.exp(-(left**2).sum(-1) / (2 * WIDTH**2))
    total = (rewards * discount**time).sum(-1)
    return total if horizon is not None else total + discount**steps / (1.0 - discount)


class ValueGrid(NamedTuple):
    """A value function on a square grid.

    Attributes:
        values: `[N, N]`, indexed by the first and the second coordinate.
        low: coordinate of index 0.
        spacing: distance between neighbours.
    """

    values: jax.Array
    low: float
    spacing: float

    def __call__(self, state: jax.Array) -> jax.Array:
        """Bilinear interpolation at `[..., 2]` positions, clipped to the grid; `[...]`."""
        last = self.values.shape[0] - 1
        place = jnp.clip((state - self.low) / self.spacing, 0.0, float(last))
        cell = jnp.minimum(place.astype(jnp.int32), last - 1)
        (i, j), (u, v) = jnp.moveaxis(cell, -1, 0), jnp.moveaxis(place - cell, -1, 0)
        below = self.values[i, j] * (1 - v) + self.values[i, j + 1] * v
        above = self.values[i + 1, j] * (1 - v) + self.values[i + 1, j + 1] * v
        return below * (1 - u) + above * u


def optimal_value(
    discount: float = 0.99, *, half_width: int = 32, per_unit: int = 4, sweeps: int = 2000
) -> ValueGrid:
    """Optimal value function by dynamic programming: `V(s) = max_a r(s + a) + discount V(s + a)`.

    The maximum over actions is a maximum filter of radius one over the grid. Within 20 of the
    origin the default grid is within 0.01 of the exact value (`optimal_return`); that is its use:
    the same method works where no closed form exists.

    Args:
        half_width: the grid spans `[-half_width, half_width]^2`.

    Returns:
        A `ValueGrid`; can be called under jit.
    """
    axis = jnp.linspace(-half_width, half_width, 2 * half_width * per_unit + 1)
    grid = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)
    rewards = reward(grid, grid, grid)
    window = 2 * per_unit + 1

    def backup(_: int, values: jax.Array) -> jax.Array:
        gain = rewards + discount * values
        for size in ((window, 1), (1, window)):  # a square maximum is separable
            gain = jax.lax.reduce_window(gain, -jnp.inf, jax.lax.max, size, (1, 1), "SAME")
        return gain

    values = jax.lax.fori_loop(0, sweeps, backup, jnp.zeros_like(rewards))
    return ValueGrid(values, float(-half_width), 1.0 / per_unit)


class BoxDistance(NamedTuple):
    """Chebyshev distance from a box `[-half_width, half_width]^2` that is full of data, exactly."""

    half_width: float
    low: float = -32.0  # of the square that is looked at, as a `ValueGrid` has it

    def __call__(self, states: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.abs(states).max(-1) - self.half_width, 0.0)


class Reach(NamedTuple):
    """Where `horizon` steps (k) from the data can lead; `distance` from them is Chebyshev's."""

    distance: BoxDistance
    horizon: int

    def within(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in fewer than k steps, `[...]` bool."""
        return self.distance(states) <= self.horizon - 1

    def edge(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in exactly k steps only, `[...]` bool."""
        distance = self.distance(states)
        return (distance > self.horizon - 1) & (distance <= self.horizon)


def sample_region(
    reach: Reach, member: Callable[[jax.Array], jax.Array], count: int, *, seed: int = 0
) -> jax.Array:
    """`[count, 2]` states drawn uniformly from where `member` (of `reach`) is true."""
    width = -reach.distance.low
    drawn = np.random.default_rng(seed).uniform(-width, width, (200 * count, 2)).astype(np.float32)
    return jnp.asarray(drawn[np.asarray(member(jnp.asarray(drawn)))][:count])
