"""Data of mixed quality, or of none, on embedded environments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..collect import MAX_BATCH, collect, concatenate, random_policy
from ..data.transitions import Transitions
from ..environments.pendulum import PENDULUM, SwingUp, swing_up_policy
from ..environments.plane import PLANE
from ..environments.plane import reward as plane_reward
from ..evaluation import check_count


def pendulum_mixed(key: jax.Array, steps: int = 20_000) -> Transitions:
    """Pendulum episodes of every quality: a quarter random, the others swing-ups spoilt by noise.

    Each episode draws its own gain (log-uniform in [0.1, 1]), noise (up to 0.5) and share of
    random actions (up to one half). Mean return about -800; the best episodes are near optimal.
    """
    check_count("steps", steps)
    draw_key, key = jax.random.split(key)
    parts: list[Transitions] = []
    left = steps
    while left > 0:
        rows = min(left, MAX_BATCH * PENDULUM.max_episode_steps)
        batch = -(-rows // PENDULUM.max_episode_steps)
        gain_key, noise_key, share_key, coin_key = jax.random.split(
            jax.random.fold_in(draw_key, len(parts)), 4
        )
        share = 0.5 * jax.random.uniform(share_key, (batch,))
        quality = SwingUp(
            gain=10.0 ** -jax.random.uniform(gain_key, (batch,)),
            noise=0.5 * jax.random.uniform(noise_key, (batch,)),
            random=jnp.where(jax.random.uniform(coin_key, (batch,)) < 0.25, 1.0, share),
        )
        part_key = jax.random.fold_in(key, len(parts))
        parts.append(collect(PENDULUM, swing_up_policy, quality, part_key, steps=rows))
        left -= rows
    return concatenate(parts)


def plane_box(key: jax.Array, steps: int = 5_000, half_width: float = 2.0) -> Transitions:
    """Single steps of random actions from states uniform in a box on the plane: data with a sharp
    edge, which those of `plane_random` have not."""
    check_count("steps", steps)
    state_key, action_key = jax.random.split(key)
    states = jax.random.uniform(state_key, (steps, 2), minval=-half_width, maxval=half_width)
    actions = jax.random.uniform(action_key, (steps, 2), minval=-1.0, maxval=1.0)
    following = states + actions
    rewards = plane_reward(states, actions, following)
    no = np.zeros(steps, bool)
    rows = (np.asarray(x) for x in (states, actions, rewards, following))
    return Transitions(*rows, terminations=no, truncations=~no)


def plane_random(key: jax.Array, steps: int = 20_000) -> Transitions:
    """Uniformly random actions on the plane: data that stay around the origin."""
    return collect(PLANE, random_policy(PLANE.action_size), None, key, steps=steps)
