"""Offline RL without a model: SAC-N and EDAC straight on the dataset (An et al. 2021)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax

from jaxrl_rollouts.errors import ConfigError

from .data import Transitions, sample_batch
from .sac import Sac, SacConfig, SacState, make_sac


class ModelFreeState(NamedTuple):
    """State of one seed."""

    agent: SacState
    key: jax.Array


class ModelFree(NamedTuple):
    """Functions of one configuration; see `make_model_free`.

    Attributes:
        agent: the actor-critic's functions.
        init: `key -> ModelFreeState`.
        update: one iteration, `(state, dataset) -> (state, metrics)`.
    """

    agent: Sac
    init: Callable[[jax.Array], ModelFreeState]
    update: Callable[[ModelFreeState, Transitions], tuple[ModelFreeState, dict[str, jax.Array]]]


@functools.lru_cache(maxsize=32)
def make_model_free(
    config: SacConfig, observation_size: int, action_size: int, *, batch_size: int = 256,
    updates_per_iteration: int = 1000,
) -> ModelFree:  # fmt: skip
    """Build the functions. Equal arguments give the same functions.

    Args:
        config: `critics=2, diversity=0` is SAC, more critics SAC-N, a diversity above 0 EDAC.
        observation_size, action_size: of the environment.
        batch_size: rows per gradient step.
        updates_per_iteration: gradient steps in one `update`.

    Raises:
        ConfigError: a setting is out of range.
    """
    if batch_size < 1 or updates_per_iteration < 1:
        found = (batch_size, updates_per_iteration)
        raise ConfigError("batch_size, updates_per_iteration", found, "both at least 1")
    agent = make_sac(config, observation_size, action_size)

    def init(key: jax.Array) -> ModelFreeState:
        agent_key, key = jax.random.split(key)
        return ModelFreeState(agent.init(agent_key), key)

    def update(
        state: ModelFreeState, dataset: Transitions
    ) -> tuple[ModelFreeState, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)

        def learn(carry: SacState, key: jax.Array) -> tuple[SacState, dict[str, jax.Array]]:
            batch_key, update_key = jax.random.split(key)
            return agent.update(carry, update_key, sample_batch(dataset, batch_key, batch_size))

        keys = jax.random.split(learn_key, updates_per_iteration)
        agent_state, metrics = jax.lax.scan(learn, state.agent, keys)
        metrics = jax.tree.map(lambda x: x.mean(), metrics)
        return ModelFreeState(agent_state, key), metrics

    return ModelFree(agent, init, update)
