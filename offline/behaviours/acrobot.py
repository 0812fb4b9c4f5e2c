"""Policies for the acrobot, and two datasets of it: one broad, one that never leaves the bottom.

The motor's power is torque times the second link's speed, so a torque with that speed's sign pumps
energy in. How hard, and up to which energy, makes the quality; nothing has to be trained.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..collect import MAX_BATCH, collect
from ..data.transitions import Transitions
from ..environments.acrobot import ACROBOT, MAX_EPISODE_STEPS, TOP, energy
from ..environments.base import disturbed
from ..evaluation import check_count

PyTree = jax.Array | tuple


class Pump(NamedTuple):
    """Knobs of `pump_policy`; scalars, or `[B]` each for a quality per row.

    Attributes:
        gain: action per rad/s of the second link, when the energy is one `TOP` too low.
        level: energy to reach, in `TOP` (1: at rest on top).
        noise: standard deviation of Gaussian noise on the action.
        random: probability of a uniform action instead.
    """

    gain: jax.Array | float = 5.0
    level: jax.Array | float = 1.2
    noise: jax.Array | float = 0.0
    random: jax.Array | float = 0.0


EXPERT = Pump()  # mean return -33; a random policy's is -193, hanging -200
MEDIUM = Pump(gain=0.5, level=1.0)  # -63
BEHAVIOUR = MEDIUM._replace(noise=0.3, random=0.2)  # -79, the broad data's


def pump(params: Pump, observation: jax.Array) -> jax.Array:
    """The mean action `[..., 1]` at `[..., 6]` observations: energy is pumped in, or out."""
    lack = params.level - energy(observation) / TOP
    return jnp.tanh(params.gain * lack * observation[..., 5])[..., None]


def pump_policy(
    params: Pump, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """`pump`, then the noise."""
    action = pump(params, observation)[:, 0]
    return disturbed(key, action, params.noise, params.random)[:, None], memory


class Sway(NamedTuple):
    """Knobs of `sway_policy`: largest action, and the share of the noise a step keeps."""

    size: float = 0.3
    keep: float = 0.9


def sway_policy(
    params: Sway, key: jax.Array, observation: jax.Array, memory: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A slowly varying weak torque, whatever is observed; `memory` is `[B]`, standard normal.

    An Ornstein-Uhlenbeck process squashed by tanh. The acrobot sways near the bottom.
    """
    fresh = jax.random.normal(key, memory.shape)
    memory = params.keep * memory + jnp.sqrt(1.0 - params.keep**2) * fresh
    return params.size * jnp.tanh(memory)[:, None], memory


def acrobot_broad(key: jax.Array, steps: int = 80_000, behaviour: Pump = BEHAVIOUR) -> Transitions:
    """A mediocre pump with noise and random actions: it gets everywhere; mean return -79.

    Raises:
        ConfigError: `steps` is not a positive whole number.
    """
    return collect(ACROBOT, pump_policy, behaviour, key, steps=steps)


def acrobot_narrow(
    key: jax.Array, steps: int = 20_000, behaviour: Sway | None = None
) -> Transitions:
    """Weak slow torques: the first link stays within 0.6 rad of the bottom; mean return -197."""
    check_count("steps", steps)
    begin_key, key = jax.random.split(key)
    batch = min(-(-steps // MAX_EPISODE_STEPS), MAX_BATCH)
    memory = jax.random.normal(begin_key, (batch,))
    return collect(ACROBOT, sway_policy, behaviour or Sway(), key, steps=steps, memory=memory)
