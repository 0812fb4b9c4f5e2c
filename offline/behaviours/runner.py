"""Clumsy balancing of the runner: data that show what falling is and little of running."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..collect import collect
from ..data.transitions import Transitions
from ..data.transitions import episodes as cut_episodes
from ..environments.base import Environment
from ..environments.runner import HIDDEN_RUNNER, RUNNER, Build, draw_builds, fleet_of
from ..evaluation import check_count


class Balance(NamedTuple):
    """Knobs of `balance_policy`; scalars, or `[B]` each for a quality per row.

    Attributes:
        gain: of the controller that catches the pole.
        forward: action per m/s of the cart, which drives it on and makes it fall in the end.
        noise: standard deviation of Gaussian noise on the action.
        motor: which way the motor pushes, 1 or -1; whoever made the controller knew.
    """

    gain: jax.Array | float = 0.5
    forward: jax.Array | float = 0.25
    noise: jax.Array | float = 1.0
    motor: jax.Array | float = 1.0


def balance_policy(
    params: Balance, key: jax.Array, observation: jax.Array, memory: tuple
) -> tuple[jax.Array, tuple]:
    """`motor (gain (8 angle + 1.2 turning) + forward v)` plus noise, clipped to [-1, 1]."""
    speed, angle, turning = observation.T
    action = params.gain * (8.0 * angle + 1.2 * turning) + params.forward * speed
    action = params.motor * action + params.noise * jax.random.normal(key, action.shape)
    return jnp.clip(action, -1.0, 1.0)[:, None], memory


def runner_clumsy(key: jax.Array, episodes: int = 12) -> Transitions:
    """Whole episodes, each of a controller with a gain of its own in [0.3, 0.7].

    Some 70 transitions each; mean returns of about 30 where 280 are possible.

    Raises:
        ConfigError: `episodes` is not a positive whole number.
    """
    check_count("episodes", episodes)
    gain_key, key = jax.random.split(key)
    gain = 0.5 * jax.random.uniform(gain_key, (episodes,), minval=0.6, maxval=1.4)
    return collect(RUNNER, balance_policy, Balance(gain=gain), key, episodes=episodes)


def runner_varied(
    key: jax.Array, episodes: int = 100, env: Environment = HIDDEN_RUNNER
) -> Transitions:
    """Whole episodes of controllers from clumsy to able, on runners that differ.

    Each draws its gain (0.3 to 3), how much it drives on (-0.1 to 0.3) and its noise (0 to 1).

    Args:
        key: consumed.
        episodes: how many.
        env: `RUNNER`, or `HIDDEN_RUNNER`.

    Raises:
        ConfigError: `episodes` is not a positive whole number.
    """
    quality, key = _quality(key, episodes)
    return collect(env, balance_policy, quality, key, episodes=episodes)


def _quality(key: jax.Array, episodes: int) -> tuple[Balance, jax.Array]:
    """Controllers from clumsy to able, and a key for playing them."""
    check_count("episodes", episodes)
    *keys, key = jax.random.split(key, 4)
    gain, forward, noise = (jax.random.uniform(k, (episodes,)) for k in keys)
    return Balance(0.3 * 10.0**gain, 0.4 * forward - 0.1, noise), key


def runner_fleet(
    key: jax.Array, episodes: int = 240, machines: int = 12
) -> tuple[Transitions, np.ndarray]:
    """The same controllers on a few machines, every other one with its motor the wrong way round.

    A controller is made for its machine; observations do not tell which machine it is.

    Args:
        key: consumed.
        episodes: how many in all; episode `i` is of machine `i % machines`.
        machines: how many, each with a cart and a pole of its own.

    Returns:
        The rows, and which machine each is of, `[n]`.

    Raises:
        ConfigError: one of them is not a positive whole number.
    """
    check_count("machines", machines)
    build_key, key = jax.random.split(key)
    way = 1.0 - 2.0 * (jnp.arange(machines) % 2)
    builds: Build = draw_builds(build_key, machines)._replace(motor=way)
    quality, key = _quality(key, episodes)
    quality = quality._replace(motor=way[jnp.arange(episodes) % machines])
    rows = collect(fleet_of(builds), balance_policy, quality, key, episodes=episodes)
    return rows, np.repeat(np.arange(episodes) % machines, cut_episodes(rows).lengths)
