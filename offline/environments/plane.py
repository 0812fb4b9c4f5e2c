"""The edge-of-reach toy: a plane crossed in bounded steps towards a goal out of the data's reach.

RAVL (Sims et al. 2024), section on the simple environment; the sizes are ours. A random policy
stays near the origin, so model rollouts from its data end in states without recorded actions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import StepResult

from .base import Environment, EnvironmentState, begin, observe, proceed, uniform_start
from .terminations import never

GOAL = (7.0, 7.0)
WIDTH = 3.0  # of the reward's bell
START = 2.0  # start states are uniform in [-START, START]^2
MAX_EPISODE_STEPS = 30


def _bell(position: jax.Array) -> jax.Array:
    return jnp.exp(-((position - jnp.array(GOAL)) ** 2).sum(-1) / (2 * WIDTH**2))


def reset(key: jax.Array, batch: int) -> EnvironmentState:
    """Positions uniform in [-2, 2]^2."""
    start = uniform_start(key, batch, jnp.full(2, START))
    return begin(start, start)


def step(
    key: jax.Array, state: EnvironmentState, action: jax.Array
) -> tuple[EnvironmentState, StepResult]:
    """`s' = s + a`, reward `exp(-|s' - g|^2 / (2 * 3^2))`; `inner` is the position `[B, 2]`."""
    position = state.inner + jnp.clip(action, -1.0, 1.0)
    terminated = jnp.zeros(position.shape[:1], bool)
    return proceed(state, position, position, _bell(position), terminated, MAX_EPISODE_STEPS)


def reward(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """Reward of a transition; it depends on the next observation alone."""
    return _bell(next_observation)


def set_observation(observation: jax.Array) -> EnvironmentState:
    """The state behind `[B, 2]` observations, at time zero."""
    return begin(observation, observation)


PLANE = Environment(
    "plane",
    2,
    2,
    MAX_EPISODE_STEPS,
    reset,
    step,
    observe,
    termination=never,
    reward=reward,
    set_observation=set_observation,
    version="embedded",
)


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

    Args:
        state: positions.
        discount: per step; below one when `horizon` is None.
        horizon: number of steps; None for infinitely many.

    Returns:
        `[...]`, the sum over time of what `optimal_policy` earns. Without a horizon the sum is
        exact up to 128 steps from the goal and the position is clipped there.

    Raises:
        ValueError: an infinite horizon without a discount.
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
        discount: per step; 1 with `sweeps=30` gives the optimal 30-step return.
        half_width: the grid spans `[-half_width, half_width]^2`.
        per_unit: grid points per unit length.
        sweeps: number of backups from zero; the default leaves `discount^2000` of the value.

    Returns:
        A `ValueGrid`; can be called under jit.
    """
    axis = jnp.linspace(-half_width, half_width, 2 * half_width * per_unit + 1)
    rewards = _bell(jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1))
    window = 2 * per_unit + 1

    def backup(_: int, values: jax.Array) -> jax.Array:
        gain = rewards + discount * values
        for size in ((window, 1), (1, window)):  # a square maximum is separable
            gain = jax.lax.reduce_window(gain, -jnp.inf, jax.lax.max, size, (1, 1), "SAME")
        return gain

    values = jax.lax.fori_loop(0, sweeps, backup, jnp.zeros_like(rewards))
    return ValueGrid(values, float(-half_width), 1.0 / per_unit)
