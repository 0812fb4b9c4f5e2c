"""Rollouts of fixed and of adaptive lengths: the same agent on the plane, and on the runner.

On the plane SAC without pessimism learns in the base scheme; on the runner, a feed-forward agent in
NEUBAY's loop. The arms of a task share data, posteriors and random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate, promised_and_earned
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.behaviours.runner import runner_clumsy
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS, PLANE, optimal_return
from jaxrl_rollouts.offline.environments.runner import RUNNER
from jaxrl_rollouts.offline.methods.registry import base
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig, imagination, make_model_based
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.neubay.prepare import prepare
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study.edge_of_reach import PlaneBudget, train_on_plane
from jaxrl_rollouts.offline.training import train_and_play
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, fit_worlds
from jaxrl_rollouts.offline.worlds.trust import LEVELS, measure_trusts, threshold
from jaxrl_rollouts.record.context import RunContext

SMALL = replace(NEUBAY_ENSEMBLE, members=12, elites=10, hidden=(64, 64))


class Rollouts(NamedTuple):
    """How to roll: at most `horizon` steps, until the spread exceeds a quantile of the data's
    (`level`; None goes on), with a `penalty` of the spread in units of its mean over the data."""

    horizon: int
    level: float | None = None
    penalty: float = 0.0


@dataclass(frozen=True)
class PlaneConfig(PlaneBudget):
    """Arms and what they share.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        ensemble: the world model.
        fixed: horizons that nothing cuts short.
        levels: quantiles at which rollouts of at most `longest` steps stop; the last is the one
            claims are about.
        penalties: of the last level's conservative versions.
        longest: model rollouts that are compared, in steps.
        steps_per_epoch: imagined at most.
        updates_per_epoch: gradient steps in each.
        batch_size: transitions in a gradient step.
        real_share: of a batch that comes from the dataset.
    """

    seeds: int = positive(4)
    ensemble: EnsembleConfig = field(default_factory=lambda: replace(SMALL, max_epochs=30))
    fixed: tuple[int, ...] = (1, 2, 5, 10, 30)
    levels: tuple[float, ...] = (0.9, 0.99, 1.0)
    penalties: tuple[float, ...] = (0.2, 1.0)
    longest: int = positive(MAX_EPISODE_STEPS)
    steps_per_epoch: int = 6000
    updates_per_epoch: int = positive(500)
    batch_size: int = positive(128)
    real_share: float = 0.05

    def validate(self) -> None:
        super().validate()
        if not self.fixed or not self.levels:
            raise ConfigError("fixed, levels", (self.fixed, self.levels), "at least one of each")
        if any(not 0 <= level <= 1 for level in self.levels):
            raise ConfigError("levels", self.levels, "each from 0 to 1")
        longest = max(*self.fixed, self.longest)
        if self.steps_per_epoch < longest:
            expected = f"at least the longest rollout ({longest})"
            raise ConfigError("steps_per_epoch", self.steps_per_epoch, expected)

    def arms(self) -> dict[str, Rollouts]:
        """Every arm by name, in the order of the tables."""
        last = Rollouts(self.longest, self.levels[-1])
        return {
            **{f"H {h}": Rollouts(h) for h in self.fixed},
            **{f"adaptive {x:g}": last._replace(level=x) for x in self.levels},
            **{
                f"adaptive {last.level:g}, penalty {x:g}": last._replace(penalty=x)
                for x in self.penalties
            },
        }


def train_plane(config: PlaneConfig, seed: int, context: RunContext) -> tuple[Grid, float]:
    """Every arm by name, and the most that any policy can earn from the start states.

    Seeds have an ensemble each; the arms share data, ensembles and random numbers. Cells hold what
    was `promised` and `earned`, besides the history.
    """
    data_key, fit_key = jax.random.split(jax.random.key(seed))
    data = plane_random(data_key, config.rows)
    fitted = fit_worlds(
        config.ensemble, data, fit_key, seeds=config.seeds, targets="observations", context=context
    )
    levels = tuple(sorted({*config.levels, 1.0}))
    trust = measure_trusts(fitted.model.fitter, fitted.worlds, to_device(data), levels)
    # One number for all seeds: the mean spread hardly differs between them.
    spread = float(np.mean(trust.mean))
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    arms = config.arms()

    def train(name: str, stage: str) -> Cell:
        horizon, level, penalty = arms[name]
        adaptive, worlds = level is not None, fitted.worlds
        if level is not None:
            worlds = worlds._replace(limit=threshold(trust, level))
        cadence = ModelBasedConfig(
            horizon, config.steps_per_epoch // horizon, batch_size=config.batch_size,
            updates_per_epoch=config.updates_per_epoch, real_share=config.real_share,
            member="trajectory", adaptive=adaptive,
        )  # fmt: skip
        method = base(config.agent)._replace(
            coefficient=penalty / spread, penalise_rewards=penalty > 0
        )
        measure = spread_of_means if adaptive else None
        dynamics = fitted.dynamics(PLANE, measure, normalised=True)
        learner = make_model_based(cadence, method, dynamics, 2, 2)
        imagined, stage = imagination(method, data, worlds), stage.replace(",", "")
        trained = train_on_plane(config, learner, imagined, keys, stage=stage, context=context)
        last = trained.history.last
        values = {"promised": last("estimated_value"), "earned": last("true_value")}
        rate = bootstrap_rate(config.agent)
        return Cell.of(trained, values, updates=config.updates_per_epoch, rate=rate)

    grid = run_grid({"rollouts": list(arms)}, train, context, seeds=config.seeds)
    begin = PLANE.observe(PLANE.reset(keys[1], config.starts))
    best = optimal_return(begin, discount=config.agent.discount, horizon=None).mean()
    return grid, float(best)


AGENT = NeubayConfig(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("none", width=64), head=(64, 64), critics=4, discount=0.98,
        polyak=0.03, memory_rate=1e-3, head_rate=1e-3, temperature_rate=1e-3, steps=6000,
        real_weight=0.05,
    ),
    updates_per_iteration=100, tape=256, capacity=200_000, early_exit=20,
)  # fmt: skip


@dataclass(frozen=True)
class RunnerConfig:
    """Data, posterior, agent and arms.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        episodes: of clumsy balancing, the data.
        ensemble: the world models.
        agent: the arms' common settings; `level` 1 is the arm that claims are about.
        fixed: horizons without a threshold.
        levels: quantiles to cut rollouts at, besides 1.
        penalties: coefficients at the adaptive horizon, ascending.
        looks, last: evaluations, and how many of the last ones are averaged.
        plays: episodes of an evaluation.
    """

    seeds: int = positive(3)
    episodes: int = positive(12)
    ensemble: EnsembleConfig = field(
        default_factory=lambda: replace(SMALL, max_epochs=100, patience=100)
    )
    agent: NeubayConfig = field(default_factory=lambda: AGENT)
    fixed: tuple[int, ...] = (1, 5, 20)
    levels: tuple[float, ...] = (0.9,)
    penalties: tuple[float, ...] = (0.2, 1.0)
    looks: int = positive(12)
    last: int = positive(3)
    plays: int = positive(50)

    def validate(self) -> None:
        if self.agent.iterations % self.looks or self.last > self.looks:
            expected = f"a divisor of {self.agent.iterations} iterations, at least {self.last}"
            raise ConfigError("looks", self.looks, expected)
        if not self.fixed or not self.levels or not self.penalties:
            empty = (self.fixed, self.levels, self.penalties)
            raise ConfigError("fixed, levels, penalties", empty, "at least one of each")

    def arms(self) -> dict[str, NeubayConfig]:
        """Every arm by name; the first one cuts rollouts at the data's largest disagreement."""
        adaptive = replace(self.agent, level=1.0, penalty=0.0)
        return {
            "adaptive 1": adaptive,
            **{f"adaptive {x:g}": replace(adaptive, level=x) for x in self.levels},
            **{f"H {h}": replace(adaptive, level=-1.0, horizon=h) for h in self.fixed},
            **{f"penalty {x:g}": replace(adaptive, penalty=x) for x in self.penalties},
        }


def train_runner(
    config: RunnerConfig, seed: int, context: RunContext | None
) -> tuple[Grid, Transitions]:
    """Every arm by name, and the data.

    Cells hold, besides the history: `score`, the mean return of the last evaluations, `promised`
    and `earned`, of `promised_and_earned`.
    """
    data_key, fit_key, train_key, evaluation_key = jax.random.split(jax.random.key(seed), 4)
    data = runner_clumsy(data_key, config.episodes)
    fitted = fit_worlds(
        config.ensemble, data, fit_key, seeds=config.seeds, targets="observations",
        stage="runner-world", context=context,
    )  # fmt: skip
    rows, levels = to_device(data), tuple(sorted({*LEVELS, *config.levels}))
    fitter, worlds, rule = fitted.model.fitter, fitted.worlds, RUNNER.termination
    trust, arms = measure_trusts(fitter, worlds, rows, levels), config.arms()
    assert rule is not None  # the runner's is known

    def train(name: str, stage: str) -> Cell:
        arm, discount = arms[name], arms[name].agent.discount
        learner, shared, per_seed, _ = prepare(
            arm, data, fitter, worlds, trust, RUNNER, rule, seeds=config.seeds, source="runner"
        )
        trained = train_and_play(
            learner, shared, RUNNER, (train_key, evaluation_key), episodes=config.plays,
            discount=discount, seeds=config.seeds, per_seed=per_seed, iterations=arm.iterations,
            evaluate_every=arm.iterations // config.looks, stage=stage, context=context,
        )  # fmt: skip

        def measure() -> dict[str, np.ndarray]:
            promised, earned = promised_and_earned(
                learner.agent, RUNNER, trained.state.agent, rows, discount=discount
            )
            score = trained.history.curve("return")[1][-config.last :].mean(0)
            return {"score": score, "promised": promised, "earned": earned}

        rate = bootstrap_rate(arm.agent)
        return Cell.of(trained, measure=measure, updates=arm.updates_per_iteration, rate=rate)

    axes = {"rollouts": list(arms)}
    grid = run_grid(axes, train, context, seeds=config.seeds, stage="runner", clear=False)
    return grid, data
