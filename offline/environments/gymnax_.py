"""Continuous-control environments of gymnax (1.0 API), vectorised inside the compiled program."""

from __future__ import annotations

import functools
import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.rollouts import StepResult

from . import pendulum
from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    own_bounds,
    proceed,
    rescale,
    row_keys,
    unknown_name,
)
from .terminations import never

STEP_VALUES = 6  # (observation, state, reward, terminated, truncated, info) since gymnax 1.0


def _check_api(simulator: Any, params: Any) -> None:
    """Older gymnax steps return five values and call a time limit `done`."""
    key = jax.random.key(0)
    _, state = jax.eval_shape(simulator.reset, key, params)
    action = jax.ShapeDtypeStruct((simulator.num_actions,), jnp.float32)
    values = len(jax.eval_shape(simulator.step, key, state, action, params))
    if values != STEP_VALUES:
        raise ConfigError(
            "gymnax", f"a step of {values} values", f"{STEP_VALUES} values", "needs gymnax>=1.0.1"
        )


def _car_terminated(observation: jax.Array, action: jax.Array, following: jax.Array) -> jax.Array:
    return (following[..., 0] >= 0.45) & (following[..., 1] >= 0.0)


def _car_reward(observation: jax.Array, action: jax.Array, following: jax.Array) -> jax.Array:
    force = jnp.clip(action[..., 0], -1.0, 1.0)
    return -0.1 * force**2 + 100.0 * _car_terminated(observation, action, following)


def _known_parts(name: str, state_of: Any) -> dict[str, Any]:
    """Termination, reward and state from an observation, for environments that have them."""
    if name == "Pendulum-v1":
        fields = lambda x: {  # noqa: E731
            "theta": jnp.arctan2(x[:, 1], x[:, 0]),
            "theta_dot": x[:, 2],
            "last_u": jnp.zeros(x.shape[0]),
        }
        known = {"termination": never, "reward": pendulum.reward}
    elif name == "MountainCarContinuous-v0":
        fields = lambda x: {"position": x[:, 0], "velocity": x[:, 1]}  # noqa: E731
        known = {"termination": _car_terminated, "reward": _car_reward}
    else:
        return {}

    def set_observation(observation: jax.Array) -> EnvironmentState:
        time = jnp.zeros(observation.shape[:1], jnp.int32)
        return begin(state_of(time=time, **fields(observation)), observation)

    return {**known, "set_observation": set_observation}


def _package() -> Any:
    try:
        import gymnax
    except ImportError as error:
        raise MissingExtraError("gymnax environments", error.name or "gymnax", "gymnax") from error
    return gymnax


@functools.cache
def continuous_ids() -> list[str]:
    """Those of gymnax's environments whose actions are vectors of real numbers."""
    gymnax, found = _package(), []
    for name in gymnax.registered_envs:
        if name.endswith(("-bsuite", "-MinAtar")):  # all discrete, and one downloads MNIST
            continue
        simulator, params = gymnax.make(name)
        if hasattr(simulator.action_space(params), "low"):
            found.append(name)
    return found


def gymnax_environment(name: str) -> Environment:
    """`gymnax/<name>` as an `Environment`.

    The step is gymnax's `step_env`, which does not reset: the next observation of an episode's
    last transition is its true successor.
    """
    gymnax = _package()
    if name not in gymnax.registered_envs:
        raise unknown_name(f"gymnax/{name}", [f"gymnax/{n}" for n in continuous_ids()])
    simulator, params = gymnax.make(name)
    space = simulator.action_space(params)
    if not hasattr(space, "low"):
        known = ", ".join(continuous_ids())
        raise ConfigError("environment", f"gymnax/{name}", f"continuous actions: {known}")
    _check_api(simulator, params)
    size = int(space.shape[0]) if space.shape else 1
    low, high = jnp.broadcast_to(space.low, (size,)), jnp.broadcast_to(space.high, (size,))
    limit = int(params.max_steps_in_episode)

    def flat(observation: jax.Array) -> jax.Array:
        return jnp.reshape(observation, (observation.shape[0], -1)).astype(jnp.float32)

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        observation, state = jax.vmap(simulator.reset_env, (0, None))(row_keys(key, batch), params)
        state = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)
        return begin(state, flat(observation))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        keys = jax.random.split(key, action.shape[0])
        observation, inner, reward, terminated, _ = jax.vmap(simulator.step_env, (0, 0, 0, None))(
            keys, state.inner, rescale(action, low, high), params
        )
        return proceed(state, inner, flat(observation), reward, terminated, limit)

    start = jax.eval_shape(lambda key: reset(key, 1), jax.random.key(0))
    version = f"gymnax {importlib.metadata.version('gymnax')}"
    return Environment(
        f"gymnax/{name}",
        start.observation.shape[-1],
        size,
        limit,
        reset,
        step,
        observe,
        version=version,
        **own_bounds(low.tolist(), high.tolist()),
        **_known_parts(name, type(start.inner)),
    )
