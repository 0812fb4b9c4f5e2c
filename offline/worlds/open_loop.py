"""Compounding error: a model rolled along logged actions, compared with the log.

NEUBAY's protocol (its appendix on compounding errors): the true first state, logged actions, one
member per trajectory, noise sampled, terminations ignored.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.rollouts import Members, rollout
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions, episodes
from .dynamics import Dynamics, WorldModelParams, predict


class LoggedWindows(NamedTuple):
    """Stretches of logged episodes, time-major: `[T + 1, B, S]`, `[T, B, A]` and `[T, B]`."""

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array


class OpenLoop(NamedTuple):
    """A model along logged actions; every field is `[T, B]`.

    A trajectory that became infinite or NaN stays infinite from there on.

    Attributes:
        error: root mean square over observation entries, in standard deviations of the dataset.
        reward_bias: predicted minus true reward.
        uncertainty: as the dynamics measure it.
    """

    error: jax.Array
    reward_bias: jax.Array
    uncertainty: jax.Array


def windows(transitions: Transitions, length: int, count: int, *, seed: int = 0) -> LoggedWindows:
    """Draw `count` stretches of `length` steps that stay inside an episode.

    Raises:
        ConfigError: every episode is shorter than `length`.
    """
    parts = episodes(transitions)
    starts = np.concatenate(
        [np.arange(a, b - length + 1) for a, b in zip(parts.starts, parts.ends, strict=True)]
    ).astype(np.int64)
    if not len(starts):
        longest = int(parts.lengths.max(initial=0))
        raise ConfigError("length", length, f"at most the longest episode, {longest} steps")
    chosen = np.random.default_rng(seed).choice(starts, count)
    rows = chosen + np.arange(length)[:, None]
    t = transitions
    observations, following, actions, rewards = (
        np.asarray(x)[rows] for x in (t.observations, t.next_observations, t.actions, t.rewards)
    )
    path = np.concatenate([observations[:1], following])
    placed: Any = jax.device_put((path, actions, rewards))
    return LoggedWindows(*placed)


def unchanged(logged: LoggedWindows, std: ArrayLike) -> np.ndarray:
    """`OpenLoop.error` of persistence, a model that predicts no change, `[T, B]`.

    Args:
        logged: as for `open_loop`.
        std: standard deviations of the observation's entries, `[S]`.
    """
    return np.asarray(_unchanged(logged.observations, jnp.asarray(std)))


@jax.jit
def _unchanged(observations: jax.Array, std: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square((observations[:1] - observations[1:]) / std).mean(-1))


def replay(
    actions: jax.Array, key: jax.Array, observation: jax.Array, time: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A policy of `rollout` that takes logged actions `[T, B, A]`.

    Its memory is the time, `[B]` zeros at first. No row may end (`stop_at_termination=False`): its
    time would stand still.
    """
    return actions[time[0]], time + 1


@partial(jax.jit, static_argnames="dynamics")
def open_loop(
    dynamics: Dynamics,
    world: WorldModelParams,
    logged: LoggedWindows,
    key: jax.Array,
    start: PyTree | None = None,
) -> OpenLoop:
    """Roll a world model along logged actions (one seed; vmap over seeds).

    `start` is the model's state at the first observation, where it is more than that.
    """
    horizon, batch = logged.actions.shape[:2]
    steps = rollout(
        dynamics.model,
        world,
        logged.observations[0] if start is None else start,
        key,
        horizon=horizon,
        policy=replay,
        policy_params=logged.actions,
        memory=jnp.zeros((batch,), jnp.int32),
        members=Members(jnp.arange(dynamics.members, dtype=jnp.int32), per="trajectory"),
        stop_at_termination=False,
        record=lambda s: (s.next_observations, s.rewards, s.uncertainties),
    ).steps
    predicted, rewards, uncertainty = steps
    gap = predicted - logged.observations[1:]
    error = jnp.sqrt(jnp.square(gap / world.inputs.std[: gap.shape[-1]]).mean(-1))
    result = OpenLoop(error, rewards - logged.rewards, uncertainty)
    diverged = jax.lax.cummax((~jnp.isfinite(error)).astype(jnp.int32), axis=0) > 0
    return OpenLoop(*(jnp.where(diverged, jnp.inf, x) for x in result))


@partial(jax.jit, static_argnames=("fitter", "levels"))
def calibration(
    fitter: Fitter, world: WorldModelParams, transitions: Transitions, levels: tuple[float, ...]
) -> jax.Array:
    """Share of outcomes inside the central interval of each level: `[levels]`.

    Counted over elites, rows and outputs (change and reward). A calibrated model gives the
    levels back; less means overconfident.
    """
    prediction = predict(fitter, world, transitions.observations, transitions.actions)
    change = transitions.next_observations - transitions.observations
    target = jnp.concatenate([change, transitions.rewards[:, None]], -1)
    inside = jax.scipy.special.erf(
        jnp.abs(target - prediction.mean) / prediction.std / jnp.sqrt(2.0)
    )
    return jnp.stack([(inside <= level).mean() for level in levels])
