"""Environments of brax, vectorised inside the compiled program."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.rollouts import StepResult

from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    proceed,
    row_keys,
    unknown_name,
)

BACKENDS = ("spring", "positional", "generalized", "mjx")
MAX_EPISODE_STEPS = 1000


def brax_environment(name: str, backend: str = "spring") -> Environment:
    """`brax/<name>` as an `Environment` of 1000 steps."""
    if backend not in BACKENDS:
        raise ConfigError("backend", backend, f"one of {', '.join(BACKENDS)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says that brax's environments are unmaintained
            from brax import envs

            simulator = envs.get_environment(name, backend=backend)
    except ImportError as error:
        raise MissingExtraError("brax environments", error.name or "brax", "brax") from error
    except KeyError as error:
        raise unknown_name(f"brax/{name}", [f"brax/{known}" for known in envs._envs]) from error
    version = f"brax {importlib.metadata.version('brax')}, {backend}"
    return on_device(f"brax/{name}", simulator, MAX_EPISODE_STEPS, version)


def on_device(
    name: str,
    simulator: Any,
    max_episode_steps: int,
    version: str,
    seen: Callable[[Any], jax.Array] = jnp.asarray,
) -> Environment:
    """An `Environment` of a simulator with brax's `reset` and `step` of one state.

    Args:
        name: it is made by.
        simulator: its states have `obs`, `reward` and `done`; actions are in [-1, 1].
        max_episode_steps: the time limit.
        version: version of the simulator, in words.
        seen: the policy's observation from `obs`, `[..., S]`.
    """

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        state = jax.vmap(simulator.reset)(row_keys(key, batch))
        # A step may widen what the reset left narrow (metrics, flags): take the step's dtypes.
        action = jnp.zeros((batch, simulator.action_size))
        after = jax.eval_shape(jax.vmap(simulator.step), state, action)
        state = jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), state, after)
        return begin(state, seen(state.obs).astype(jnp.float32))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        # The simulator scales actions to its actuators' limits itself.
        inner = jax.vmap(simulator.step)(state.inner, jnp.clip(action, -1.0, 1.0))
        terminated = inner.done > 0.5
        return proceed(state, inner, seen(inner.obs), inner.reward, terminated, max_episode_steps)

    first = jax.eval_shape(lambda key: seen(simulator.reset(key).obs), jax.random.key(0))
    own = first.shape[-1], simulator.action_size, max_episode_steps
    return Environment(name, *own, reset, step, observe, version=version)
