"""The two stages of every model-based run: fit world models, then train an agent in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .agents.critic_view import start_values
from .agents.model_free import ModelFree
from .data import Transitions, to_device
from .environments import Environment
from .evaluation import evaluate_seeds
from .methods.scheme import ModelBased

Evaluate = Callable[[PyTree, int], Mapping[str, Any]]


def train_agents(
    agent: ModelBased,
    worlds: PyTree,
    transitions: Transitions,
    key: jax.Array,
    *,
    epochs: int,
    updates_per_epoch: int,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    stage: str = "agent",
    context: RunContext | None = None,
) -> Trained:
    """Train one agent per seed in its own world model, all on the same dataset.

    Args:
        agent: of `make_model_based`.
        worlds: parameters of its dynamics with a leading seed axis.
        transitions: the dataset.
        key: consumed; seed `i` uses `split(key, seeds)[i]`.
        epochs: iterations of the loop.
        updates_per_epoch: of the agent's configuration; for the progress bar.
        evaluate, evaluate_every, stage, context: as for `loop.train`.

    Returns:
        `Trained` whose state is a `ModelBasedState` with a leading seed axis.
    """
    dataset = to_device(transitions)
    seeds = jax.tree.leaves(worlds)[0].shape[0]
    begin = jax.jit(jax.vmap(agent.init, (0, 0, None)))  # op by op it would compile for seconds
    state = begin(jax.random.split(key, seeds), worlds, dataset)
    return train(
        agent.update, state, dataset, iterations=epochs, stage=stage,
        units_per_iteration=updates_per_epoch, evaluate=evaluate, evaluate_every=evaluate_every,
        context=context,
    )  # fmt: skip


def train_model_free(
    agent: ModelFree,
    rows: Any,
    key: jax.Array,
    *,
    seeds: int,
    iterations: int,
    updates_per_iteration: int,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    stage: str = "agent",
    context: RunContext | None = None,
) -> Trained:
    """Train agents straight on a dataset, one per seed.

    Args:
        agent: of `make_model_free`.
        rows: the dataset with what the agent needs besides (`agents.rows_for`).
        key: consumed; seed `i` uses `split(key, seeds)[i]`.
        seeds: how many.
        iterations: of the loop.
        updates_per_iteration: of the agent; for the progress bar.
        evaluate, evaluate_every, stage, context: as for `loop.train`.

    Returns:
        `Trained` whose state is a `ModelFreeState` with a leading seed axis.
    """
    dataset = to_device(rows)
    state = jax.jit(jax.vmap(agent.init, (0, None)))(jax.random.split(key, seeds), dataset)
    return train(
        agent.update, state, dataset, iterations=iterations, stage=stage,
        units_per_iteration=updates_per_iteration, evaluate=evaluate,
        evaluate_every=evaluate_every, context=context,
    )  # fmt: skip


def evaluator(
    agent: ModelBased | ModelFree,
    env: Environment,
    key: jax.Array,
    episodes: int,
    *,
    discount: float = 0.99,
    extra: Callable[[PyTree], Mapping[str, jax.Array]] | None = None,
) -> Evaluate:
    """An `evaluate` for both trainings above: the mean action in the true environment.

    Records, per seed: `return`, `discounted_return`, `length`, and `estimated_value`, what the
    critics promise from the start states (mean over critics), so that the two can be compared.

    Args:
        agent: whose greedy policy to play.
        env: the true environment.
        key: consumed; start states depend on it and on the iteration.
        episodes: per seed.
        discount: for `discounted_return`.
        extra: more metrics of the seed-batched `ModelBasedState`.
    """

    def evaluate(state: PyTree, iteration: int) -> dict[str, np.ndarray]:
        start_key, play_key = jax.random.split(jax.random.fold_in(key, iteration))
        played = evaluate_seeds(
            env, agent.agent.greedy, state.agent.actor, play_key, episodes, discount=discount
        )
        starts = env.observe(env.reset(start_key, max(episodes, 32)))
        metrics = {
            "return": played.returns.mean(1),
            "discounted_return": played.discounted.mean(1),
            "length": played.lengths.mean(1, dtype=jnp.float32),
            "estimated_value": start_values(agent.agent, state.agent, starts),
        }
        metrics |= extra(state) if extra else {}
        return {name: np.asarray(value) for name, value in metrics.items()}

    return evaluate
