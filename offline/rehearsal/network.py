"""The network of a sequence of tasks: it clones a task's policy and rehearses buffers of others."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..agents.bc import BcConfig
from ..agents.model_free import make_model_free
from ..evaluation import Policy
from ..method import Learner


class Rows(NamedTuple):
    """Observations with the task behind them `[..., S + T]`, and actions `[..., A]`."""

    observations: Any
    actions: Any


class Seen(NamedTuple):
    """The data from which the network of one arm and seed learns a task.

    Attributes:
        now: rows of the task, `[N, ...]`, with its policy's actions.
        kept: buffers of all tasks, `[T, rows, ...]`.
        counts: rows of each buffer, `[T]`.
        known: tasks before this one.
        rehearsed: share of a batch that is of their buffers.
    """

    now: Rows
    kept: Rows
    counts: Any
    known: Any
    rehearsed: Any

    @property
    def observations(self) -> Any:
        """What a learner's `init` reads of its data."""
        return self.now.observations


class TaskPolicy(NamedTuple):
    """The network's parameters, the scaler of observations, and the task as `[T]`."""

    actor: PyTree
    scaler: Scaler
    task: jax.Array


def with_task(scaler: Scaler, task: jax.Array, seen: jax.Array) -> jax.Array:
    """Observations `[..., S]` as the network reads them."""
    task = jnp.broadcast_to(task, (*seen.shape[:-1], *task.shape))
    return jnp.concatenate([scaler.normalise(seen), task], -1)


def carry_on(state: PyTree, data: Seen) -> PyTree:
    """The `init` of later tasks: parameters and optimiser of the previous task are kept."""
    del data
    return state


def rehearsing(data: Seen, key: jax.Array, rows: int) -> Rows:
    """A batch: first rows of the buffers, all earlier tasks equally likely, then of this task."""
    now_key, task_key, kept_key = jax.random.split(key, 3)
    index = jax.random.randint(now_key, (rows,), 0, data.now.actions.shape[0])
    task = jax.random.randint(task_key, (rows,), 0, jnp.maximum(data.known, 1))
    which = jax.random.randint(kept_key, (rows,), 0, data.counts[task])
    old = (jnp.arange(rows) < data.rehearsed * rows) & (data.known > 0)

    def of(kept: jax.Array, now: jax.Array) -> jax.Array:
        return jnp.where(old[:, None], kept[task, which], now[index])

    return jax.tree.map(of, data.kept, data.now)


@functools.lru_cache(maxsize=16)
def make_network(
    config: BcConfig, sizes: tuple[int, int], tasks: int, batch_size: int, per_iteration: int
) -> tuple[Learner, Policy]:
    """The learner, and the policy of `TaskPolicy`. Equal arguments give the same functions."""
    more: Any = {"batch_size": batch_size, "per_iteration": per_iteration, "draw": rehearsing}
    learner = make_model_free(config, sizes[0] + tasks, sizes[1], **more)

    def act(
        params: TaskPolicy, key: jax.Array, observation: jax.Array, memory: PyTree
    ) -> tuple[jax.Array, PyTree]:
        seen = with_task(params.scaler, params.task, observation)
        return learner.agent.greedy(params.actor, key, seen, memory)

    return learner, act
