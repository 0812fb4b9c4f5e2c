"""An environment in the units of a dataset whose observations are less an offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.outside import find_offset

from .base import Environment, EnvironmentState
from .terminations import never

STARTS = 16


def shifted(env: Environment, offset: Any) -> Environment:
    """The environment with `offset` `[S]` subtracted from its observations (`Dataset.offset`).

    Simulators on the host subtract it in float64; compiled ones have float32 observations, from
    which it is subtracted. Functions of observations are given such as well.
    """
    if offset is None or not np.any(offset):
        return env
    whole = tuple(np.asarray(offset, np.float64).tolist())
    if whole == env.offset:
        return env
    if env.offset:
        found = "observations that are less another offset"
        raise ConfigError(f"environment {env.name}", found, "its own")
    less = jnp.asarray(whole, jnp.float32)
    changes: dict[str, Any] = {
        "offset": whole,
        "termination": of_shifted(env.termination, whole),
        "reward": of_shifted(env.reward, whole),
        "transition": _transition(env.transition, less),
        "clipped_transition": _transition(env.clipped_transition, less),
        "less": None,
    }
    restore = env.set_observation
    if env.less is None:
        changes["observe"] = lambda state: env.observe(state) - less
        if restore is not None:
            changes["set_observation"] = lambda observation: restore(observation + less)
        return env._replace(**changes)

    def moved(state: EnvironmentState) -> EnvironmentState:
        return state._replace(observation=state.observation - less)

    place = env.reset_to
    if place is not None:
        changes["reset_to"] = lambda qpos, qvel: moved(place(qpos, qvel))
    if restore is not None:
        changes["set_observation"] = lambda observation: moved(restore(observation + less))
    made = env.less(whole)
    changes |= {name: getattr(made, name) for name in ("reset", "step", "restart", "starts")}
    return env._replace(**changes)


def lossless(env: Environment) -> Environment:
    """A simulator on the host less an offset, where float32 would lose its changes.

    Its first steps are compared, as the rows of a dataset are (`find_offset`).
    """
    if env.less is None or env.starts is None:
        return env
    middle = np.median(env.starts(STARTS)[0], 0).astype(np.float64)
    near = shifted(env, middle).starts
    pairs = np.stack((near or env.starts)(STARTS), 1).reshape(2 * STARTS, -1)
    return shifted(env, find_offset(env.name, "observations", pairs + middle))


def of_shifted(rule: Callable[..., Any] | None, offset: Any) -> Callable[..., Any] | None:
    """A rule of observation, action and next observation, for observations less an offset."""
    if rule is None or rule is never or offset is None or not np.any(offset):
        return rule
    less = jnp.asarray(offset, jnp.float32)
    return lambda seen, action, after: rule(seen + less, action, after + less)


def _transition(step: Callable[..., Any] | None, less: jax.Array) -> Callable[..., Any] | None:
    def given(observation: jax.Array, action: jax.Array) -> tuple:
        following, reward, terminated = step(observation + less, action)  # type: ignore[misc]
        return following - less, reward, terminated

    return None if step is None else given
