"""Data of mixed quality on the pendulum."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from ..collect import MAX_BATCH, collect, concatenate
from ..data.transitions import Transitions
from ..environments.pendulum import PENDULUM, SwingUp, swing_up_policy
from ..evaluation import check_count


def pendulum_mixed(key: jax.Array, steps: int = 20_000) -> Transitions:
    """Pendulum episodes of every quality: a quarter random, the others swing-ups spoilt by noise.

    Each episode samples its own gain (log-uniform in [0.1, 1]), noise (up to 0.5) and share of
    random actions (up to one half). Mean return about -800; the best episodes are near optimal.
    """
    check_count("steps", steps)
    draw_key, key = jax.random.split(key)
    parts: list[Transitions] = []
    left = steps
    while left > 0:
        rows = min(left, MAX_BATCH * PENDULUM.max_episode_steps)
        batch = -(-rows // PENDULUM.max_episode_steps)
        quality = _qualities(jax.random.fold_in(draw_key, len(parts)), batch)
        part_key = jax.random.fold_in(key, len(parts))
        parts.append(collect(PENDULUM, swing_up_policy, quality, part_key, steps=rows))
        left -= rows
    return concatenate(parts)


@functools.partial(jax.jit, static_argnames="batch")
def _qualities(key: jax.Array, batch: int) -> SwingUp:
    draw = jax.vmap(lambda key: jax.random.uniform(key, (batch,)))
    gain, noise, share, coin = draw(jax.random.split(key, 4))
    return SwingUp(
        gain=10.0**-gain, noise=0.5 * noise, random=jnp.where(coin < 0.25, 1.0, 0.5 * share)
    )
