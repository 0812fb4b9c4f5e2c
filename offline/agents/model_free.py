"""Offline RL without a world model: an agent of `registry.AGENTS` straight on the dataset.

That is BC, SAC-N, EDAC, CQL, TD3+BC, IQL, ReBRAC or the planner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.feeds import Drawn, ReadAhead, scattered
from jaxrl_rollouts.scaler import Scaler, fit_scaler_by_blocks

from ..data import Dataset, Transitions, sample_batch
from ..data.streamed import columns_of
from ..data.transitions import drawn_rows
from .agent import Learner, first_state, learn, step_keys
from .registry import AgentConfig, make_agent


class ModelFreeState(NamedTuple):
    """State of one seed."""

    agent: Any
    key: jax.Array


@functools.lru_cache(maxsize=32)
def make_model_free(
    config: AgentConfig,
    observation_size: int,
    action_size: int,
    *,
    batch_size: int = 256,
    updates_per_iteration: int = 1000,
    draw: Callable[[Any, jax.Array, int], Any] = sample_batch,
) -> Learner:
    """A learner whose data are rows. Equal arguments give the same functions.

    Args:
        config: of the agent. A `SacConfig` with `num_critics=2, eta=0` is SAC, with more
            critics SAC-N, with an eta above 0 EDAC.
        observation_size, action_size: of the environment.
        batch_size: rows per gradient step.
        updates_per_iteration: gradient steps in one `update`; a multiple of the agent's period.
        draw: `(dataset, key, rows) -> batch`; `synther.mixing` makes others.

    Raises:
        ConfigError: a setting is out of range.
    """
    if batch_size < 1 or updates_per_iteration < 1:
        found = (batch_size, updates_per_iteration)
        raise ConfigError("batch_size, updates_per_iteration", found, "both at least 1")
    agent = make_agent(config, observation_size, action_size)
    if updates_per_iteration % agent.period:
        expected = f"a multiple of {agent.period}, the actor's delay"
        raise ConfigError("updates_per_iteration", updates_per_iteration, expected)

    def init(key: jax.Array, dataset: Any) -> ModelFreeState:
        agent_key, key = jax.random.split(key)
        return ModelFreeState(first_state(agent, agent_key, dataset.observations), key)

    def update(
        state: ModelFreeState, dataset: Transitions | Drawn
    ) -> tuple[ModelFreeState, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)
        drawn = dataset.batches if isinstance(dataset, Drawn) else None

        def batch(key: jax.Array) -> Any:
            return draw(dataset, key, batch_size)

        agent_state, metrics = learn(
            agent, state.agent, learn_key, batch, updates_per_iteration, drawn
        )
        return ModelFreeState(agent_state, key), metrics

    return Learner(agent, init, update, updates_per_iteration)


class Known(NamedTuple):
    """What a learner has to know of rows that it does not have: their `fit_scaler`."""

    observations: Scaler


@functools.lru_cache(maxsize=32)
def make_plan(
    rows: int, batch_size: int, updates: int
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Which rows an iteration of `make_model_free` draws: `keys [seeds]` of the states before it to
    `[seeds, updates, batch]` int32 and the keys after it."""

    def plan(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        learn_key, key = jax.random.split(key)
        keys = step_keys(learn_key, updates)[:, 0]
        return jax.vmap(lambda key: drawn_rows(key, batch_size, rows))(keys), key

    return jax.jit(jax.vmap(plan))


def rows_feed(dataset: Dataset, batch_size: int, updates: int) -> ReadAhead:
    """The data of a `make_model_free` learner with these sizes, read from the dataset's file."""
    file, count = dataset.rows_file, len(dataset)
    assert file is not None, "rows in memory need no feed"
    width = dataset.transitions.observations.shape[1]

    def read(index: np.ndarray) -> Drawn:
        return Drawn(columns_of(scattered(file, index), width))

    known = Known(fit_scaler_by_blocks(dataset.transitions.observations))
    return ReadAhead(known, make_plan(count, batch_size, updates), read)
