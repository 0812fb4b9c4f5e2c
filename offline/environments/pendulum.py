"""Gymnasium's Pendulum-v1 in JAX, embedded so that examples and tests need no extra package.

Angle 0 is upright. Torque is `2 * action` N m, so actions stay in [-1, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import StepResult

from .base import Environment, EnvironmentState, begin, disturbed, observe, proceed, uniform_start
from .terminations import never

MAX_SPEED, MAX_TORQUE, DT, GRAVITY = 8.0, 2.0, 0.05, 10.0  # mass and length are one
MAX_EPISODE_STEPS = 200


def _observation(angle: jax.Array, speed: jax.Array) -> jax.Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed], -1)


def _cost(angle: jax.Array, speed: jax.Array, torque: jax.Array) -> jax.Array:
    wrapped = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
    return wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2


def reset(key: jax.Array, batch: int) -> EnvironmentState:
    """Angle uniform in [-pi, pi], speed in [-1, 1]."""
    start = uniform_start(key, batch, jnp.array([jnp.pi, 1.0]))
    return begin(start, _observation(start[:, 0], start[:, 1]))


def step(
    key: jax.Array, state: EnvironmentState, action: jax.Array
) -> tuple[EnvironmentState, StepResult]:
    """One step of 0.05 s; `inner` is `[B, 2]`: angle (rad, unwrapped) and speed (rad/s)."""
    angle, speed = state.inner[:, 0], state.inner[:, 1]
    torque = MAX_TORQUE * jnp.clip(action[:, 0], -1.0, 1.0)
    cost = _cost(angle, speed, torque)
    speed = speed + (1.5 * GRAVITY * jnp.sin(angle) + 3.0 * torque) * DT
    speed = jnp.clip(speed, -MAX_SPEED, MAX_SPEED)
    angle = angle + speed * DT
    inner = jnp.stack([angle, speed], -1)
    terminated = jnp.zeros(angle.shape, bool)
    return proceed(state, inner, _observation(angle, speed), -cost, terminated, MAX_EPISODE_STEPS)


def reward(
    observation: jax.Array,
    action: jax.Array,
    next_observation: jax.Array | None = None,
    upright: float = 0.0,
) -> jax.Array:
    """Reward of a transition; it depends on the observation before the step and the action.

    `upright` is the angle (rad) at which it is highest.
    """
    angle = jnp.arctan2(observation[..., 1], observation[..., 0]) - upright
    return -_cost(angle, observation[..., 2], MAX_TORQUE * jnp.clip(action[..., 0], -1.0, 1.0))


def set_observation(observation: jax.Array) -> EnvironmentState:
    """The state behind `[B, 3]` observations, at time zero."""
    angle = jnp.arctan2(observation[:, 1], observation[:, 0])
    return begin(jnp.stack([angle, observation[:, 2]], -1), observation)


PENDULUM = Environment(
    "pendulum",
    3,
    1,
    MAX_EPISODE_STEPS,
    reset,
    step,
    observe,
    termination=never,
    reward=reward,
    set_observation=set_observation,
    version="embedded (Gymnasium Pendulum-v1 equations)",
    action_low=(-MAX_TORQUE,),
    action_high=(MAX_TORQUE,),
)


class SwingUp(NamedTuple):
    """Knobs of `swing_up_policy`; scalars, or `[B]` for a quality per row.

    Attributes:
        gain: gain of the energy pumping; 1 swings up, below 0.1 it does not.
        noise: standard deviation of Gaussian noise on the action.
        random: probability of a uniform action instead.
    """

    gain: jax.Array | float = 1.0
    noise: jax.Array | float = 0.0
    random: jax.Array | float = 0.0


def swing_up_policy(
    params: SwingUp, key: jax.Array, observation: jax.Array, memory: tuple
) -> tuple[jax.Array, tuple]:
    """Energy pumping far from the top, a linear regulator near it, then the noise.

    Without noise the mean return is about -150, near what trained agents reach.
    """
    sine, cosine, speed = observation[:, 1], observation[:, 0], observation[:, 2]
    energy = 0.5 * speed**2 + 1.5 * GRAVITY * (cosine - 1.0)  # zero at rest on top
    direction = jnp.where(speed == 0, 1.0, jnp.sign(speed))
    pump = params.gain * jnp.clip(-energy, -1.0, 1.0) * direction
    angle = jnp.arctan2(sine, cosine)
    hold = params.gain * -(6.0 * angle + 1.5 * speed)
    action = jnp.where((jnp.abs(angle) < 0.5) & (jnp.abs(hold) < 3.0), hold, pump)
    return disturbed(key, action, params.noise, params.random)[:, None], memory
