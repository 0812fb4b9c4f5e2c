"""Policies for the actuated Kuramoto-Sivashinsky equation, and logs of them.

=================  ===============================================================  ===========
log                each episode                                                     mean return
=================  ===============================================================  ===========
`ks_random`        uniform actions                                                  -720
`ks_feedback`      feedback of a gain in [0, 4] and noise                           -455
`ks_mixed`         a third uniform, a third noise alone, a third as `ks_feedback`   -640
`ks_narrow`        feedback of a gain in [0, 2] and weak noise                      -490
=================  ===============================================================  ===========

Without control it is -735, under the best constant action -650, under the best gain -400.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..collect import MAX_BATCH, collect, concatenate, random_policy
from ..data.transitions import Transitions
from ..environments.base import Environment
from ..environments.ks_control import KS_CONTROL
from ..evaluation import Policy, check_count


class Feedback(NamedTuple):
    """Knobs of `feedback_policy`; scalars, or `[B, 1]` for one of each row.

    Attributes:
        gain: action per unit of the field at the jet; 0 for none.
        constant: action without feedback, also `[A]`.
        noise: stationary deviation of an Ornstein-Uhlenbeck process on every action.
        keep: the share of the process that a step keeps.
    """

    gain: jax.Array | float = 0.0
    constant: jax.Array | float = 0.0
    noise: jax.Array | float = 0.0
    keep: jax.Array | float = 0.7


NOTHING = Feedback()
PROPORTIONAL = Feedback(gain=4.0)  # mean return -400 in `ks_control`


@functools.cache
def feedback_policy(env: Environment = KS_CONTROL) -> Policy:
    """`a_i = clip(constant - gain u(x_i) + noise z_i)` with the field at each jet's centre.

    `z` is standard normal, `z' = keep z + sqrt(1 - keep^2) n`; it is the policy's memory `[B, A]`,
    or () where the noise is 0. Parameters are a `Feedback`. The same environment gives the same
    function.
    """
    points, count = env.observation_size, env.action_size
    centres = (2 * np.arange(count) + 1) * points // (2 * count)

    def policy(
        params: Feedback, key: jax.Array, observation: jax.Array, memory: jax.Array | tuple
    ) -> tuple[jax.Array, jax.Array | tuple]:
        action = params.constant - params.gain * observation[:, centres]
        if not isinstance(memory, tuple):
            fresh = jax.random.normal(key, memory.shape)
            memory = params.keep * memory + jnp.sqrt(1.0 - params.keep**2) * fresh
            action = action + params.noise * memory
        return jnp.clip(action, -1.0, 1.0), memory

    return policy


def _episodes(
    key: jax.Array, steps: int, env: Environment, most: float, noise: float
) -> Transitions:
    """So many rows of feedback, each episode's gain uniform in [0, most]."""
    check_count("steps", steps)
    parts: list[Transitions] = []
    left = steps
    while left > 0:
        rows = min(left, MAX_BATCH * env.max_episode_steps)
        batch = -(-rows // env.max_episode_steps)
        gain_key, noise_key, play_key = jax.random.split(jax.random.fold_in(key, len(parts)), 3)
        gain = most * jax.random.uniform(gain_key, (batch, 1))
        start = jax.random.normal(noise_key, (batch, env.action_size))
        params = Feedback(gain, noise=noise)
        policy = feedback_policy(env)
        parts.append(collect(env, policy, params, play_key, steps=rows, memory=start))
        left -= rows
    return concatenate(parts)


def ks_random(key: jax.Array, steps: int = 40_000, env: Environment = KS_CONTROL) -> Transitions:
    """Uniform actions, independent at every step."""
    return collect(env, random_policy(env.action_size), None, key, steps=steps)


def ks_feedback(key: jax.Array, steps: int = 40_000, env: Environment = KS_CONTROL) -> Transitions:
    """Feedback of every quality: a gain per episode, uniform in [0, 4], and noise of 0.5."""
    return _episodes(key, steps, env, 4.0, 0.5)


def ks_narrow(key: jax.Array, steps: int = 40_000, env: Environment = KS_CONTROL) -> Transitions:
    """Feedback of one kind: a gain per episode, uniform in [0, 2], and noise of 0.3."""
    return _episodes(key, steps, env, 2.0, 0.3)


def ks_mixed(key: jax.Array, steps: int = 40_000, env: Environment = KS_CONTROL) -> Transitions:
    """A third `ks_random`, a third slowly varying noise without feedback, a third `ks_feedback`."""
    check_count("steps", steps)
    check_count("steps // 3", steps // 3)
    random_key, noise_key, feedback_key = jax.random.split(key, 3)
    third = steps // 3
    return concatenate(
        [
            ks_random(random_key, steps - 2 * third, env),
            _episodes(noise_key, third, env, 0.0, 0.5),
            ks_feedback(feedback_key, third, env),
        ]
    )


# Datasets made on the spot: their environment, and how.
KS_LOGS: Mapping[str, tuple[str, Callable[..., Transitions]]] = {
    "ks_control-random": (KS_CONTROL.name, ks_random),
    "ks_control-feedback": (KS_CONTROL.name, ks_feedback),
    "ks_control-mixed": (KS_CONTROL.name, ks_mixed),
    "ks_control-narrow": (KS_CONTROL.name, ks_narrow),
}
