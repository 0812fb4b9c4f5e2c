"""Bandit agents under every penalty, each seed in its own ensemble, and what there was to gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.offline.bandit.agent import SMALL_AGENT, bandit_task, play
from jaxrl_rollouts.offline.bandit.environment import PULLS, TEST_ARMS
from jaxrl_rollouts.offline.bandit.optimum import Beliefs, Optimum, play_optimum
from jaxrl_rollouts.offline.bandit.rewards import REWARD_ENSEMBLE, FittedRewards, penalised
from jaxrl_rollouts.offline.recurrent.dqn import DqnConfig, make_recurrent_dqn
from jaxrl_rollouts.record.context import RunContext

from ..kit.grid import Cell, Grid, run_grid


@dataclass(frozen=True)
class Config:
    """Ensemble, agent and evaluations; the same for every penalty.

    Attributes:
        penalties: times the ensemble's spread, taken from what is learned from; 0 is Bayesian,
            the last one the conservative that claims are about.
        evaluations: of the agents, spread evenly over the training.
        episodes: of 100 pulls, per arm and evaluation.
        last: evaluations at the end whose mean is the result.
    """

    seeds: int = positive(5)
    seed: int = 0
    penalties: tuple[float, ...] = (0.0, 0.1, 0.5, 2.5)
    ensemble: EnsembleConfig = field(default_factory=lambda: REWARD_ENSEMBLE)
    agent: DqnConfig = field(default_factory=lambda: SMALL_AGENT)
    evaluations: int = positive(25)
    episodes: int = positive(100)
    last: int = positive(5)

    def validate(self) -> None:
        penalties = list(self.penalties)
        if penalties != sorted({0.0, *penalties}) or len(penalties) < 2:
            raise ConfigError("penalties", self.penalties, "ascending, 0 and at least one more")
        updates = make_recurrent_dqn(self.agent, bandit_task(self.ensemble.elites)).updates
        if self.agent.steps % (updates * self.evaluations):
            expected = f"such that {self.agent.steps} steps are a multiple of {updates} times it"
            raise ConfigError("evaluations", self.evaluations, expected)
        if self.last > self.evaluations:
            raise ConfigError("last", self.last, f"at most the evaluations ({self.evaluations})")


def train_all(config: Config, fitted: FittedRewards, context: RunContext) -> Grid:
    """Train the agents of every penalty, all seeds side by side, each in its own ensemble.

    Each cell's history has `return A` and `unknown A` (reward per pull and share of pulls of arm 1
    where that pays A); its arrays are `[seeds, arms]`: `returns` and `unknown`, means over the last
    evaluations, and `optimum`, what optimal stopping earns.
    """
    learner = make_recurrent_dqn(config.agent, bandit_task(config.ensemble.elites))
    # The same keys for every penalty: their seeds are pairs.
    init_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    iterations = config.agent.steps // learner.updates
    every = iterations // config.evaluations

    def evaluate(state: Any, iteration: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.fold_in(play_key, iteration), config.seeds)
        played = play(learner.agent, state.agent.params, keys, config.episodes)
        values = {"return": played.returns, "unknown": played.unknown}
        return {
            f"{name} {arm:g}": np.asarray(value[:, i])
            for name, value in values.items()
            for i, arm in enumerate(TEST_ARMS)
        }

    def train_penalty(penalty: float, stage: str) -> Cell:
        worlds = jax.tree.map(jnp.asarray, penalised(fitted.arms, penalty))
        trained = train(
            learner.update, learner.init, jax.random.split(init_key, config.seeds), worlds,
            per_seed=True, iterations=iterations, chunk=every, stage=stage,
            units_per_iteration=learner.updates, evaluate=evaluate, evaluate_every=every,
            context=context,
        )  # fmt: skip

        def result(name: str) -> np.ndarray:
            curves = (trained.history.curve(f"{name} {arm:g}")[1] for arm in TEST_ARMS)
            return np.stack([curve[-config.last :].mean(0) for curve in curves], -1)

        optimum = [reference(penalty, fitted, seed).returns for seed in range(config.seeds)]
        extra = {"returns": result("return"), "unknown": result("unknown")}
        return Cell.of(trained, {**extra, "optimum": np.stack(optimum)}, updates=learner.updates)

    axes = {"penalty": config.penalties}
    return run_grid(axes, train_penalty, context, seeds=config.seeds, stage="penalty", clear=False)


def reference(penalty: float, fitted: FittedRewards, seed: int) -> Optimum:
    """Optimal stopping under one seed's opinions: their mean and spread are the prior."""
    mean, std = np.asarray(fitted.arms.mean[seed]), np.asarray(fitted.arms.std[seed])
    known, unknown = (float(mean[:, arm].mean()) for arm in (0, 1))
    spread, noise = float(mean[:, 1].std()), float(std[:, 1].mean())
    prior = Beliefs(unknown, spread, noise, known, pulls=PULLS, penalty=penalty)
    return play_optimum(prior, TEST_ARMS)
