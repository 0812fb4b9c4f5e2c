"""The acrobot, driven by a continuous torque at its elbow: two links, one motor, pure JAX.

Equations of Gymnasium's Acrobot-v1 (Sutton & Barto's "book" variant, which conserves energy) with
steps of 0.1 s, one Runge-Kutta step of order four each, and a reward for height in place of a
goal. Angle 0 hangs down; the second angle is relative to the first link.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import StepResult

from .base import Environment, EnvironmentState, begin, observe, proceed, uniform_start
from .terminations import never

# Lengths, masses and moments of inertia are one; centres of mass lie in the middle of a link.
CENTRE, GRAVITY, INERTIA = 0.5, 9.8, 1.0
MAX_TORQUE, DT = 2.0, 0.1
MAX_SPEEDS = (4.0 * jnp.pi, 9.0 * jnp.pi)  # rad/s
START = 0.1  # angles (rad) and speeds (rad/s) start uniform in [-START, START]
MAX_EPISODE_STEPS = 200
TOP = 4.0 * CENTRE * GRAVITY  # J, energy at rest on top; hanging at rest it is -TOP


def observation_of(inner: jax.Array) -> jax.Array:
    angles, speeds = inner[..., :2], inner[..., 2:]
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    pairs = jnp.stack([cosine[..., 0], sine[..., 0], cosine[..., 1], sine[..., 1]], -1)
    return jnp.concatenate([pairs, speeds], -1)


def _inner(observation: jax.Array) -> jax.Array:
    """The state `[..., 4]` behind observations; cosines and sines need not be of length one."""
    o = observation
    first, second = jnp.arctan2(o[..., 1], o[..., 0]), jnp.arctan2(o[..., 3], o[..., 2])
    return jnp.concatenate([jnp.stack([first, second], -1), o[..., 4:]], -1)


def _mass(second: jax.Array) -> tuple[jax.Array, jax.Array, float]:
    """Entries 11, 12 and 22 of the mass matrix at the second angle."""
    cosine = jnp.cos(second)
    full = CENTRE**2 + (1.0 + CENTRE**2 + 2.0 * CENTRE * cosine) + 2.0 * INERTIA
    return full, CENTRE**2 + CENTRE * cosine + INERTIA, CENTRE**2 + INERTIA


def derivative(inner: jax.Array, torque: jax.Array) -> jax.Array:
    """Time derivative `[B, 4]`; `torque` is `[B]`, in N m."""
    first, second, speed, relative = inner.T
    full, mixed, own = _mass(second)
    swing = CENTRE * jnp.sin(second)
    pull_second = CENTRE * GRAVITY * jnp.sin(first + second)
    pull_first = (CENTRE + 1.0) * GRAVITY * jnp.sin(first) + pull_second
    bias = pull_first - swing * relative**2 - 2.0 * swing * relative * speed
    push = torque + mixed / full * bias - swing * speed**2 - pull_second
    second_acceleration = push / (own - mixed**2 / full)
    first_acceleration = -(mixed * second_acceleration + bias) / full
    return jnp.stack([speed, relative, first_acceleration, second_acceleration], -1)


def energy(observation: jax.Array) -> jax.Array:
    """Kinetic plus potential energy in J, `[..., 6]` to `[...]`; `TOP` at rest on top."""
    first, second, speed, relative = jnp.moveaxis(_inner(observation), -1, 0)
    full, mixed, own = _mass(second)
    moving = 0.5 * full * speed**2 + mixed * speed * relative + 0.5 * own * relative**2
    height = (CENTRE + 1.0) * jnp.cos(first) + CENTRE * jnp.cos(first + second)
    return moving - GRAVITY * height


def _height_reward(inner: jax.Array, torque: jax.Array) -> jax.Array:
    height = -jnp.cos(inner[..., 0]) - jnp.cos(inner[..., 0] + inner[..., 1])
    return 0.5 * height - 0.001 * torque**2


def _torque(action: jax.Array) -> jax.Array:
    return MAX_TORQUE * jnp.clip(action[..., 0], -1.0, 1.0)


def reset(key: jax.Array, batch: int) -> EnvironmentState:
    """Hanging nearly at rest: angles (rad) and speeds (rad/s) uniform in [-0.1, 0.1]."""
    start = uniform_start(key, batch, jnp.full(4, START))
    return begin(start, observation_of(start))


def advance(inner: jax.Array, torque: jax.Array) -> jax.Array:
    """One Runge-Kutta step of `DT` s: `[B, 4]` angles and speeds under `[B]` constant torques."""
    k1 = derivative(inner, torque)
    k2 = derivative(inner + 0.5 * DT * k1, torque)
    k3 = derivative(inner + 0.5 * DT * k2, torque)
    k4 = derivative(inner + DT * k3, torque)
    moved = inner + DT / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
    limit = jnp.asarray(MAX_SPEEDS)
    return moved.at[:, 2:].set(jnp.clip(moved[:, 2:], -limit, limit))


def step(
    key: jax.Array, state: EnvironmentState, action: jax.Array
) -> tuple[EnvironmentState, StepResult]:
    """One step; `inner` is `[B, 4]`: both angles (rad, unwrapped) and their speeds (rad/s)."""
    torque = _torque(action)
    reward = _height_reward(state.inner, torque)
    inner = advance(state.inner, torque)
    terminated = jnp.zeros(torque.shape, bool)
    return proceed(state, inner, observation_of(inner), reward, terminated, MAX_EPISODE_STEPS)


def reward(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array | None = None
) -> jax.Array:
    """Height of the two joints' ends in [-1, 1], less a little for torque, before the step."""
    return _height_reward(_inner(observation), _torque(action))


def set_observation(observation: jax.Array) -> EnvironmentState:
    """The state behind `[B, 6]` observations, at time zero."""
    return begin(_inner(observation), observation)


ACROBOT = Environment(
    "acrobot",
    6,
    1,
    MAX_EPISODE_STEPS,
    reset,
    step,
    observe,
    termination=never,
    reward=reward,
    set_observation=set_observation,
    version="embedded (Gymnasium Acrobot-v1 equations, continuous torque)",
)
