"""Learners that have data of their own, where `loop.train` would share one set among the seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.offline.agents.model_free import ModelFree
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.training import evaluator
from jaxrl_rollouts.record.context import RunContext


class Own(NamedTuple):
    """A learner's state beside the data of its seed."""

    inner: Any
    data: Any


@functools.lru_cache(maxsize=32)
def on_own(update: Callable[..., tuple]) -> Callable[[Own, tuple], tuple[Own, Mapping]]:
    """An update of `Own` out of one of a state and shared data."""

    def run(state: Own, shared: tuple) -> tuple[Own, Mapping[str, jax.Array]]:
        inner, metrics = update(state.inner, state.data)
        return Own(inner, state.data), metrics

    return run


def stack(parts: list[Any]) -> Any:
    """A leading seed axis over equal trees, on the device."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *parts)


def train_agents(
    learner: ModelFree, data: Any, env: Environment, key: jax.Array, *, iterations: int,
    updates: int, evaluations: int, episodes: int, discount: float, stage: str,
    context: RunContext | None,
) -> Trained:  # fmt: skip
    """Train every seed's agent on its own rows and play it.

    Args:
        learner: of `make_model_free`.
        data: what it learns from, with a leading seed axis.
        env: where it is played.
        key: consumed.
        iterations, updates: of the loop, and gradient steps in each.
        evaluations, episodes: spread over the training, and episodes of each per seed.
        discount: of the values reported.
        stage, context: as for `loop.train`.

    Returns:
        `Trained` with the history of `training.evaluator`.
    """
    train_key, play_key = jax.random.split(key)
    seeds = len(jax.tree.leaves(data)[0])
    begin = jax.jit(jax.vmap(learner.init))(jax.random.split(train_key, seeds), data)
    play = evaluator(learner, env, play_key, episodes, discount=discount)
    return train(
        on_own(learner.update), Own(begin, data), iterations=iterations, stage=stage,
        units_per_iteration=updates,
        evaluate=lambda state, iteration: play(state.inner, iteration),
        evaluate_every=iterations // evaluations, context=context,
    )  # fmt: skip
