"""One trainer and one evaluator for every learner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import seed_keys
from jaxrl_rollouts.finite import OnDivergence, marked_rows
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .agents.critics import start_values
from .data.transitions import RAW, RewardScale, discounted_steps, steps_of_data
from .environments import Environment
from .evaluation import Evaluation, evaluate_seeds, start_observations
from .matching import is_simulator
from .method import Learner, Prepared
from .task import starts_of

Evaluate = Callable[[PyTree, int], Mapping[str, Any]]
OnEvaluation = Callable[[int, Mapping[str, np.ndarray]], None]


def train_learner(
    learner: Learner,
    data: PyTree,
    key: jax.Array,
    *,
    seeds: int,
    repeats: int = 1,
    iterations: int,
    per_seed: PyTree = False,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
    evaluate_at: Collection[int] = (),
    stage: str = "agent",
    context: RunContext | None = None,
    save_every_seconds: float = 60.0,
    about: Any = None,
    on_divergence: OnDivergence = "raise",
) -> Trained:
    """Train `seeds` learners side by side.

    Args:
        learner: result of `make_model_free`, `make_model_based`, `make_neubay`, `make_pgd` or your
            own.
        data: the training data.
        key: consumed; seed `i` uses `seed_keys(key, seeds, repeats)[i]`.
        seeds: number of seeds.
        repeats: number of seeds that share a key, a divisor of `seeds`.
        iterations: number of iterations of the loop, each of `learner.per_iteration` gradient
            steps.
        per_seed: per-seed parts of the data, as for `train_loop`.
        evaluate: for example the result of `evaluator`.
        evaluate_every, evaluate_at, stage, context, save_every_seconds, about, on_divergence: as
            for `train_loop`.

    Returns:
        `Trained` whose state is the learner's with a leading seed axis.
    """
    return train_loop(
        learner.update,
        learner.init,
        seed_keys(key, seeds, repeats),
        data,
        per_seed=per_seed,
        iterations=iterations,
        stage=stage,
        units_per_iteration=learner.per_iteration,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
        evaluate_at=evaluate_at,
        context=context,
        save_every_seconds=save_every_seconds,
        about=about,
        on_divergence=on_divergence,
    )


def evaluator(
    learner: Learner,
    env: Environment,
    key: jax.Array,
    episodes: int,
    *,
    discount: float = 0.99,
    reward: RewardScale = RAW,
    repeats: int = 1,
) -> Evaluate:
    """An `evaluate` for `train_learner`: the mean action, with memory, in the true environment.

    Records, per seed: `return`, `discounted_return`, `length`, and `estimated_value`, the critics'
    value of the start states (mean over critics) in the environment's own rewards. It is left out
    for an agent without critics.

    Args:
        learner: the learner whose agent's greedy policy is evaluated.
        env: the true environment as the agent sees it (`remembering` it, for agents with a memory).
        key: consumed; start states depend on it and on the iteration.
        episodes: per seed.
        discount: for `discounted_return`.
        reward: the view of the rewards that the critics learned from.
        repeats: number of seeds with the same random numbers.
    """
    agent = learner.agent

    def evaluate(state: PyTree, iteration: int) -> dict[str, np.ndarray]:
        start_key, play_key = look_keys(key, iteration)
        seeds = jax.tree.leaves(state.agent.actor)[0].shape[0]
        fresh = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), agent.memory(episodes)
        )
        played = evaluate_seeds(
            env,
            agent.greedy,
            state.agent.actor,
            play_key,
            episodes,
            memory=fresh,
            discount=discount,
            repeats=repeats,
        )
        metrics: dict[str, jax.Array | np.ndarray] = {**_means(played)}
        if agent.q is not None:
            starts = start_observations(env, start_key, max(episodes, 32))
            values = np.asarray(start_values(agent, state.agent, starts))
            lengths, ended = np.asarray(played.lengths), np.asarray(played.terminated)
            weight = discounted_steps(lengths, ended, discount).mean(1)
            metrics["estimated_value"] = reward.undo(values, weight)
        return {name: np.asarray(value) for name, value in metrics.items()}

    return evaluate


@jax.jit
def _means(played: Evaluation) -> dict[str, jax.Array]:
    """Over episodes, per seed."""
    return {
        "return": played.returns.mean(1),
        "discounted_return": played.discounted.mean(1),
        "length": played.lengths.mean(1, dtype=jnp.float32),
    }


class Best(NamedTuple):
    """Of every seed, the policy of its best evaluation. Chosen by returns in the true environment,
    so `returns` are optimistic, and no offline method could have made that choice.

    Attributes:
        actors: parameters, leading axis = seeds.
        returns: `[seeds]` mean return of that evaluation.
        iterations: `[seeds]` of the training it was at.
    """

    actors: PyTree
    returns: np.ndarray
    iterations: np.ndarray


class KeepBest:
    """An `evaluate` for `train_learner` that keeps the best policies; the first of equal ones.

    They are part of the training's checkpoints, so a resumed run has them.

    Args:
        evaluate: that records `return`; nothing is kept where there is none.
        seen: called with the iteration and the metrics of every evaluation.
    """

    def __init__(self, evaluate: Evaluate, seen: OnEvaluation | None = None) -> None:
        self.evaluate, self.seen = evaluate, seen
        self.kept: Best | None = None
        self.lost: Any = False

    def begin(self, state: PyTree) -> None:
        """Nothing was evaluated yet: iteration 0."""
        seeds = len(jax.tree.leaves(state.agent.actor)[0])
        nothing = np.full(seeds, -np.inf, np.float32), np.zeros(seeds, np.int32)
        # On the host: the loop gives the state's own buffers to its next chunk.
        self.kept = Best(jax.device_get(state.agent.actor), *nothing)

    def __call__(self, state: PyTree, iteration: int) -> Mapping[str, Any]:
        metrics = self.evaluate(state, iteration)
        if np.any(self.lost):
            metrics = {name: np.where(self.lost, np.nan, x) for name, x in metrics.items()}
        if self.seen is not None:
            self.seen(iteration, metrics)
        if "return" not in metrics:  # there is no simulator to be good in
            return metrics
        assert self.kept is not None, "begin comes first"
        returns = np.asarray(metrics["return"], np.float32)
        better = (returns > self.kept.returns) | (self.kept.iterations == 0)
        better |= np.isnan(self.kept.returns)  # nothing is above a nan: it would be kept for ever
        better &= ~np.asarray(self.lost)
        if better.any():
            at = np.full(len(returns), iteration, np.int32)
            now = Best(jax.device_get(state.agent.actor), returns, at)
            self.kept = jax.tree.map(functools.partial(_of_rows, better), now, self.kept)
        return metrics

    @property
    def best(self) -> Best | None:
        """What was kept so far, also by an earlier session; None before any evaluation.

        NaN for a seed that diverged before its first one.
        """
        if self.kept is None or not self.kept.iterations.any():
            return None
        none = self.kept.iterations == 0
        actors = jax.device_put(self.kept.actors)
        returns = np.where(none, np.nan, self.kept.returns)
        return self.kept._replace(actors=marked_rows(actors, none), returns=returns)


def _of_rows(mask: np.ndarray, left: Any, right: Any) -> np.ndarray:
    """Rows of `left` where `mask` is true, `where_rows` on the host."""
    return np.where(mask.reshape(-1, *(1,) * (np.ndim(left) - 1)), left, right)


def look_keys(key: jax.Array, iteration: int) -> tuple[jax.Array, jax.Array]:
    """Of the evaluation after an iteration: for start states to value, and for the episodes.

    Seed `k` plays with `jax.random.split(second, seeds)[k]` (`evaluate_seeds`).
    """
    start_key, play_key = jax.random.split(jax.random.fold_in(key, iteration))
    return start_key, play_key


def value_evaluator(
    learner: Learner, starts: np.ndarray, reward: RewardScale = RAW, weight: float = 0.0
) -> Evaluate:
    """An `evaluate` where there is no simulator: `estimated_value` alone, per seed.

    Nothing is recorded of an agent without critics.

    Args:
        starts: `[B, D]` start states as the agent sees them.
    """
    states = jnp.asarray(starts)

    def evaluate(state: PyTree, iteration: int) -> dict[str, np.ndarray]:
        if learner.agent.q is None:
            return {}
        values = np.asarray(start_values(learner.agent, state.agent, states))
        return {"estimated_value": reward.undo(values, weight)}

    return evaluate


def make_evaluator(
    made: Prepared,
    key: jax.Array,
    episodes: int,
    on_evaluation: OnEvaluation | None = None,
    repeats: int = 1,
) -> KeepBest:
    """The `evaluator` in the environment as the agent sees it, which keeps the best policies.

    Without a simulator it is the `value_evaluator` from where the dataset's episodes start.
    """
    learner, env, discount = made.learner, made.env, made.acts.discount

    def seen(iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        if on_evaluation is not None:
            on_evaluation(iteration * learner.per_iteration, metrics)

    if is_simulator(env):
        play = evaluator(
            learner, env, key, episodes, discount=discount, reward=made.reward, repeats=repeats
        )
        return KeepBest(play, seen)
    dataset = made.source.dataset
    starts = starts_of(dataset)
    # A memory is given no action and no reward before the first step.
    starts = np.pad(starts, ((0, 0), (0, env.observation_size - starts.shape[1])))
    weight = steps_of_data(dataset, discount)
    return KeepBest(value_evaluator(learner, starts, made.reward, weight), seen)
