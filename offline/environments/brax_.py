"""Environments of brax, vectorised inside the compiled program."""

from __future__ import annotations

import importlib.metadata
import warnings

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

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        state = jax.vmap(simulator.reset)(row_keys(key, batch))
        # A step may widen what the reset left narrow (metrics, flags): take the step's dtypes.
        action = jnp.zeros((batch, simulator.action_size))
        after = jax.eval_shape(jax.vmap(simulator.step), state, action)
        state = jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), state, after)
        return begin(state, state.obs.astype(jnp.float32))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        # brax scales actions to its actuators' limits itself
        inner = jax.vmap(simulator.step)(state.inner, jnp.clip(action, -1.0, 1.0))
        terminated = inner.done > 0.5
        return proceed(
            state, inner, jnp.asarray(inner.obs), inner.reward, terminated, MAX_EPISODE_STEPS
        )

    size = jax.eval_shape(simulator.reset, jax.random.key(0)).obs.shape[-1]
    version = f"brax {importlib.metadata.version('brax')}, {backend}"
    return Environment(
        f"brax/{name}",
        size,
        simulator.action_size,
        MAX_EPISODE_STEPS,
        reset,
        step,
        observe,
        version=version,
    )
