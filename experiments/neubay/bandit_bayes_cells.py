"""TODO."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.offline.bandit.agent import SMALL_AGENT, bandit_task, play
from jaxrl_rollouts.offline.bandit.environment import PULLS, TEST_ARMS
from jaxrl_rollouts.offline.bandit.optimum import Beliefs, Optimum, play_optimum
from jaxrl_rollouts.offline.bandit.rewards import (
    REWARD_ENSEMBLE,
    FittedRewards,
    penalised,
)
from jaxrl_rollouts.offline.recurrent.dqn import DqnConfig, make_recurrent_dqn
from jaxrl_rollouts.record.context import RunContext


@dataclass(frozen=True)
class Config:
    """Ensemble, agent and looks; the same for every penalty.

    Attributes:
        penalties: times the ensemble's spread, taken from what is learned from; 0 is Bayesian,
            the last one the conservative that claims are about.
        evaluations: looks at the agents, spread evenly over the training.
        episodes: of 100 pulls, per arm and look.
        last: looks at the end whose mean is the result.
    """

    seeds: int = 5
    seed: int = 0
    penalties: tuple[float, ...] = (0.0, 0.1, 0.5, 2.5)
    ensemble: EnsembleConfig = field(default_factory=lambda: REWARD_ENSEMBLE)
    agent: DqnConfig = field(default_factory=lambda: SMALL_AGENT)
    evaluations: int = 25
    episodes: int = 100
    last: int = 5

    def validate(self) -> None:
        at_least_one(self, "seeds", "evaluations", "episodes", "last")
        found = list(self.penalties)
        if found != sorted(set(found)) or found[:1] != [0.0] or len(found) < 2:
            raise ConfigError("penalties", self.penalties, "ascending, 0 and at least one more")
        updates = make_recurrent_dqn(self.agent, bandit_task(self.ensemble.elites)).updates
        if self.agent.steps % (updates * self.evaluations):
            expected = f"such that {self.agent.steps} steps are a multiple of {updates} times it"
            raise ConfigError("evaluations", self.evaluations, expected)
        if self.last > self.evaluations:
            raise ConfigError("last", self.last, f"at most the evaluations ({self.evaluations})")


class Cell(NamedTuple):
    """What became of one penalty.

    Attributes:
        steps: `[points]` gradient steps of the looks.
        returns: `[points, seeds, arms]` mean reward per pull.
        unknown: `[points, seeds, arms]` share of pulls of arm 1.
    """

    steps: np.ndarray
    returns: np.ndarray
    unknown: np.ndarray


def train_cell(penalty: float, config: Config, fitted: FittedRewards, context: RunContext) -> Cell:
    """Train the agents of one penalty, all seeds side by side, each in its own ensemble."""
    agent = make_recurrent_dqn(config.agent, bandit_task(config.ensemble.elites))
    # The same keys for every penalty: their seeds are pairs.
    init_key, look_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    worlds = jax.tree.map(jnp.asarray, penalised(fitted.arms, penalty))

    def look(state: Any, iteration: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.fold_in(look_key, iteration), config.seeds)
        found = play(agent.agent, state.agent.params, keys, config.episodes)
        named = {"return": found.returns, "unknown": found.unknown}
        return {
            f"{name} {arm:g}": np.asarray(values[:, i])
            for name, values in named.items()
            for i, arm in enumerate(TEST_ARMS)
        }

    iterations = config.agent.steps // agent.updates
    every = iterations // config.evaluations
    trained = train(
        agent.update, agent.init, jax.random.split(init_key, config.seeds), worlds, per_seed=True,
        iterations=iterations, chunk=every, stage=f"penalty-{penalty:g}",
        units_per_iteration=agent.updates, evaluate=look, evaluate_every=every, context=context,
    )  # fmt: skip
    curves = {
        name: np.stack([trained.history.curve(f"{name} {arm:g}")[1] for arm in TEST_ARMS], -1)
        for name in ("return", "unknown")
    }
    steps = trained.history.curve(f"return {TEST_ARMS[0]:g}")[0] * agent.updates
    return Cell(steps, curves["return"], curves["unknown"])


def reference(penalty: float, fitted: FittedRewards, seed: int) -> Optimum:
    """Optimal stopping under one seed's opinions: their mean and spread are the prior."""
    mean, std = np.asarray(fitted.arms.mean[seed]), np.asarray(fitted.arms.std[seed])
    beliefs = Beliefs(
        mean=float(mean[:, 1].mean()), std=float(mean[:, 1].std()), noise=float(std[:, 1].mean()),
        known=float(mean[:, 0].mean()), pulls=PULLS, penalty=penalty,
    )  # fmt: skip
    return play_optimum(beliefs, TEST_ARMS)
