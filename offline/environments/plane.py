"""The edge-of-reach toy: a plane crossed in bounded steps towards a goal out of the data's reach.

RAVL (Sims et al. 2024), section on the simple environment; the sizes are ours. A random policy
stays near the origin, so model rollouts from its data end in states without recorded actions.
"""

from __future__ import annotations

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
