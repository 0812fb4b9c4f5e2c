"""An arm without data: a Bayesian agent tries it, a conservative one does not (NEUBAY's example).

Data of a two-armed bandit hold one arm only. An ensemble's opinions of the other are a posterior;
an agent with memory, trained on imagined bandits of one opinion each, learns to try it and to stay
where it pays. Taking a penalty for disagreement from the reward unlearns that. Exact optimal
stopping under the same beliefs says what there was to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import PALETTE, curve_with_band
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from . import bandit_beliefs as rewards
from .bandit_beliefs import Beliefs, play_optimum
from .bandit_dqn import DqnConfig, make_recurrent_dqn
from .bandit_task import KNOWN, SMALL_AGENT, TEST_ARMS, bandit_task, play

SOURCE = LISTINGS["bandit"].source


@dataclass(frozen=True)
class Config:
    """Ensemble, agent and evaluations; the same for every penalty.

    Attributes:
        seeds, seed: runs side by side, and the random seed.
        penalties: times the ensemble's spread, taken from what is learned from; 0 is Bayesian,
            the last one the conservative that claims are about.
        ensemble: the reward models.
        agent: the recurrent DQN.
        evaluations: evaluations of the agents, evenly spread over the training.
        episodes: episodes of 100 pulls, per arm and evaluation.
        last: evaluations at the end whose mean is the result.
    """

    seeds: int = positive(5)
    seed: int = 0
    penalties: tuple[float, ...] = (0.0, 0.1, 0.5, 2.5)
    ensemble: EnsembleConfig = field(default_factory=lambda: rewards.REWARD_ENSEMBLE)
    agent: DqnConfig = field(default_factory=lambda: SMALL_AGENT)
    evaluations: int = positive(25)
    episodes: int = positive(100)
    last: int = positive(5)

    def validate(self) -> None:
        penalties = list(self.penalties)
        if penalties != sorted({0.0, *penalties}) or len(penalties) < 2:
            raise ConfigError("penalties", self.penalties, "ascending, 0 and at least one more")
        updates = make_recurrent_dqn(self.agent, bandit_task(self.ensemble.elites)).per_iteration
        if self.agent.steps % (updates * self.evaluations):
            expected = f"such that {self.agent.steps} steps are a multiple of {updates} times it"
            raise ConfigError("evaluations", self.evaluations, expected)
        if self.last > self.evaluations:
            raise ConfigError("last", self.last, f"at most the evaluations ({self.evaluations})")


def train_all(config: Config, fitted: rewards.FittedRewards, context: RunContext) -> Grid:
    """Train the agents of every penalty, all seeds side by side, each in its own ensemble.

    Each cell's arrays are `[seeds, arms]`: `returns` and `unknown`, means over the last evaluations
    of reward per pull and share of pulls of arm 1, and `optimum`, what optimal stopping earns.
    """
    seeds, task = config.seeds, bandit_task(config.ensemble.elites)
    learner = make_recurrent_dqn(config.agent, task)
    # The same keys for every penalty: their seeds are pairs.
    init_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    iterations = config.agent.steps // learner.per_iteration

    def evaluate(state: Any, iteration: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.fold_in(play_key, iteration), seeds)
        played = play(learner.agent, state.agent.params, keys, config.episodes)
        return {
            f"{name} {arm:g}": np.asarray(getattr(played, name)[:, i])
            for name in ("returns", "unknown")
            for i, arm in enumerate(TEST_ARMS)
        }

    def train_penalty(penalty: float, stage: str) -> Cell:
        worlds = jax.tree.map(jnp.asarray, rewards.penalised(fitted.arms, penalty))
        trained = train_learner(
            learner,
            worlds,
            init_key,
            seeds=seeds,
            per_seed=True,
            iterations=iterations,
            stage=stage,
            evaluate=evaluate,
            evaluate_every=iterations // config.evaluations,
            context=context,
        )

        def result(name: str) -> np.ndarray:
            curves = (trained.history.curve(f"{name} {arm:g}")[1] for arm in TEST_ARMS)
            return np.stack([curve[-config.last :].mean(0) for curve in curves], -1)

        beliefs = [fitted.beliefs(seed, penalty) for seed in range(seeds)]
        optimum = np.stack([play_optimum(prior, TEST_ARMS).returns for prior in beliefs])
        arrays = {name: result(name) for name in ("returns", "unknown")} | {"optimum": optimum}
        return Cell.of(trained, arrays, per_iteration=learner.per_iteration)

    axes = {"penalty": config.penalties}
    return run_grid(axes, train_penalty, context, seeds=seeds, stage="penalty", clear=False)


def run(config: Config, context: RunContext) -> Report:
    """Fit the opinions, train every penalty, compare with the optimum, draw."""
    report, seeds = Report.of(context, config.seeds), config.seeds
    pulls, key = rewards.logged_pulls(config.seed), jax.random.key(config.seed)
    fitted = rewards.fit_rewards(config.ensemble, pulls, key, seeds=seeds, context=context)
    grid = train_all(config, fitted, context)
    add_tables(report, fitted, grid)
    add_claims(report, fitted, {penalty: cell["returns"] for penalty, cell in grid.items()})
    draw_arms(report, grid)
    report.note(
        "Optimal stopping is exact: its prior for arm 1 is normal with the mean and spread of "
        "that seed's ensemble, and it is played on the true arms without sampling."
    )
    report.note("A penalty p makes the reward that is learned from r - p u(arm); r is observed.")
    return report


def add_tables(report: Report, fitted: rewards.FittedRewards, grid: Grid) -> None:
    """What agents and optimum earn per pull, and what the members believe."""
    for title, name in (("agents", "returns"), ("optimal stopping", "optimum")):
        columns = per_arm(name) | {"mean": lambda cell, name=name: cell[name].mean(1)}
        report.table(f"return per pull: {title}", grid.rows(columns))
    report.table("share of pulls of arm 1, %", grid.rows(per_arm("unknown", 100)))
    mean, std = np.asarray(fitted.arms.mean), np.asarray(fitted.arms.std)
    opinions = {
        "mean over members": mean.mean(1),
        "spread over members": mean.std(1),
        "predicted noise": std.mean(1),
    }
    rows = [{"arm": arm} | {c: x[:, arm] for c, x in opinions.items()} for arm in (0, 1)]
    report.table("opinions of the ensemble", rows)
    for penalty, cell in grid.items():
        earned, possible = cell["returns"].mean(1), cell["optimum"].mean(1)
        report.number(f"mean over test arms, penalty {penalty:g}", earned)
        report.number(f"short of optimal stopping, penalty {penalty:g}", possible - earned)


def per_arm(name: str, scale: float = 1.0) -> dict[str, Callable[[Cell], np.ndarray]]:
    """A column for what arm 1 pays, of a cell's `[seeds, arms]`."""
    return {
        f"arm 1 pays {arm:g}": lambda cell, at=at: scale * cell[name][:, at]
        for at, arm in enumerate(TEST_ARMS)
    }


def add_claims(
    report: Report, fitted: rewards.FittedRewards, returns: Mapping[float, np.ndarray]
) -> None:
    """Of agents (penalty -> reward per pull, `[seeds, arms]`), their ensemble, and the optimum."""
    claim, bayes, harsh = claims(report, SOURCE), returns[0.0], returns[max(returns)]
    known, unknown = np.moveaxis(np.asarray(fitted.arms.mean), -1, 0)
    # fmt: off
    claim("the conservative stays with the known arm", harsh, between=(0.49, 0.51),
          statistic="all", means="0.50 per pull on every arm, every seed")
    for name, arm, least, statistic in (
        ("the Bayesian finds the best arm", 0.99, 0.85, "median"),
        ("the Bayesian finds the best arm with every seed", 0.99, 0.75, "min"),
        ("the Bayesian finds a good arm", 0.7, 0.58, "median"),
        ("trying a hopeless arm costs little", 0.01, 0.46, "median"),
    ):
        claim(name, bayes[:, TEST_ARMS.index(arm)], at_least=least, statistic=statistic,
              means=f"at least {least} per pull where arm 1 pays {arm:g}")
    claim("trying a bad arm costs little", bayes[:, TEST_ARMS.index(0.3)],
          between=(0.43, 0.5025), statistic="median",
          means="between 0.43 and 0.50 (and a sampling error of 0.0025)")
    claim("the Bayesian earns more over all arms", bayes.mean(1), at_least=0.55,
          means="at least 0.55 against the conservative's 0.50")
    claim("optimal stopping under the published prior earns 0.624",
          play_optimum(Beliefs(), TEST_ARMS).returns.mean(), between=(0.614, 0.634),
          source="dynamic programming", means="0.624 over the eight arms, +- 0.01")
    claim("the ensemble fits the known arm", fitted.nll.mean(1), between=(0.715, 0.735),
          statistic="all", source="entropy of the known arm: 0.726 nats",
          means="0.72 to 0.73 nats on the holdout")
    claim("members disagree about the unknown arm", unknown.std(1), between=(0.25, 0.40),
          statistic="all", means="spread of 0.25 to 0.40")
    claim("some members are hopeful", (unknown > known).mean(1), between=(0.15, 0.40),
          statistic="all", means="15 to 40 % believe arm 1 the better one")
    for penalty in sorted(returns)[1:-1]:
        claim(f"a penalty of {penalty:g} lies between", returns[penalty].mean(1).mean(),
              between=(harsh.mean() - 0.01, bayes.mean() + 0.01),
              means="mean between the conservative's and the Bayesian's")
    # fmt: on


def draw_arms(report: Report, grid: Grid) -> None:
    """Reward per pull over what the unknown arm pays: learned, and possible."""
    caption = (
        "Data hold only the arm that pays 0.5. Lines: interquartile mean over seeds; bands: 95 % "
        "bootstrap interval. Right: the best any agent could do with these beliefs."
    )
    titles = ("Agents with memory", "Optimal stopping under the same beliefs")
    with picture(report, "arms", caption, titles=titles, sharey=True, height=3.0) as axes:
        for ax, name in zip(axes, ("returns", "optimum"), strict=True):
            for (penalty, cell), shade in zip(grid.items(), PALETTE, strict=False):
                label = f"penalty {penalty:g}" if penalty else "Bayesian (penalty 0)"
                curve_with_band(ax, TEST_ARMS, cell[name], label, colour_name=shade)
            best = np.maximum(TEST_ARMS, KNOWN)
            ax.plot(TEST_ARMS, best, "k:", linewidth=1.0, label="always the better arm")
            ax.set_xlabel("mean reward of the arm without data")
        axes[0].set_ylabel("reward per pull")


EXPERIMENT = LISTINGS["bandit"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2,
            penalties=(0.0, 2.5),
            evaluations=2,
            episodes=4,
            last=1,
            ensemble=replace(rewards.REWARD_ENSEMBLE, members=6, elites=4, max_epochs=4),
            agent=replace(
                SMALL_AGENT,
                memory=MemoryConfig("lru", width=8, state=4, layers=1),
                head_dims=(8,),
                steps=16,
                episodes=4,
                capacity=2000,
                tape_length=202,
            ),
        ),
        "cpu": Config(),
        "paper": Config(seeds=6, agent=DqnConfig(), evaluations=100, episodes=20, last=10),
    },
    run=run,
)
