"""Rollouts of several lengths with the simulator in place of a world model.

Every arm has the same critics, data, random numbers and imagined rows in an epoch; only the length
of rollouts differs. Final states are bootstrapped from and never acted from: of rollouts of five
steps one row in five, of a hundred one in a hundred. Sims et al. 2024, arXiv 2402.12527, table 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import add_clock, claims, clock_rows
from jaxrl_rollouts.compare.grid import Cell, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.mujoco import ENDLESS
from jaxrl_rollouts.offline.job import train_method
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.recipes import Preset, recipe
from jaxrl_rollouts.offline.result import TrainResult
from jaxrl_rollouts.offline.task import Task, behaviour
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

LAST = 3  # evaluations whose mean counts
COLUMNS = {
    "return": "return",
    "estimated value": "estimated_value",
    "true value": "discounted_return",
}


def settings(preset: Preset, **changes: Any) -> Base:
    """MBPO's settings of a preset."""
    found = recipe("base", preset, **changes)
    assert isinstance(found, Base)
    return found


@dataclass(frozen=True)
class Config:
    """A dataset, and lengths of rollouts in its simulator.

    Attributes:
        dataset: name, or file.
        horizons: lengths of rollouts, rising; each divides the `rows` of an epoch.
        rows: imagined in an epoch.
        endings: a fall ends an episode, as in the simulator. Without, no row terminates: of the
            data, of rollouts or in evaluations.
        method: MBPO's settings; `rows` over the length is the number of its rollouts.
        seeds: trained side by side.
        seed: random seed.
        evaluations: during the training, evenly spread.
        episodes: episodes per evaluation and seed.
    """

    dataset: str = "hopper-medium-replay-mini-v1"
    horizons: tuple[int, ...] = (5, 100)
    rows: int = positive(20_000)
    endings: bool = True
    method: Base = field(
        default_factory=lambda: settings("long", steps=75_000, real_ratio=0.5, agent={"tau": 0.005})
    )
    seeds: int = positive(4)
    seed: int = 0
    evaluations: int = positive(15)
    episodes: int = positive(10)

    def validate(self) -> None:
        if len(self.horizons) < 2 or list(self.horizons) != sorted(set(self.horizons)):
            raise ConfigError("horizons", self.horizons, "two or more, rising")
        for horizon in self.horizons:
            if horizon < 1 or self.rows % horizon:
                raise ConfigError("horizons", horizon, f"divisors of rows {self.rows}")


def in_lengths_of(config: Config, horizon: int) -> Base:
    """The same number of rows in rollouts of another length."""
    count = config.rows // horizon
    rollouts = replace(config.method.rollouts, length=horizon, batch_size=count)
    return replace(config.method, rollouts=rollouts)


def endless(dataset: Dataset) -> Dataset:
    """The same rows, where a fall ends nothing; episodes stay as long as they are."""
    rows = dataset.transitions
    cut = np.asarray(rows.truncations) | np.asarray(rows.terminations)
    rows = rows._replace(terminations=np.zeros_like(cut), truncations=cut)
    return replace(dataset, transitions=rows)


def train(
    config: Config, dataset: Dataset, horizon: int, context: RunContext | None
) -> TrainResult:
    """SAC without a penalty in rollouts of one length."""
    name, method = dataset.environment, in_lengths_of(config, horizon)
    env = make(name if config.endings else f"{name}?{ENDLESS}")
    rows = dataset if config.endings else endless(dataset)
    rows = replace(rows, name=f"{dataset.name}-{horizon}")  # a stage of its own
    dynamics = true_dynamics(env, clipped=True)
    asked = config.seeds, config.seed, config.evaluations, config.episodes
    return train_method(rows, method, Job(*asked, context, dynamics), env)


def run(config: Config, context: RunContext) -> Report:
    """All lengths; each is a stage of its own."""
    report = Report.of(context, config.seeds)
    dataset = load(config.dataset, config.seed)

    def at(horizon: int, stage: str) -> Cell:
        result = train(config, dataset, horizon, context)
        rate = bootstrap_rate(config.method.agent)
        return Cell.of(result.trained, per_iteration=result.per_iteration, rate=rate)

    grid = run_grid({"horizon": config.horizons}, at, context, seeds=config.seeds)
    cells = {f"{h} step{'s' * (h != 1)}": grid[h] for h in config.horizons}
    behaved = behaviour(Task(dataset, make(dataset.environment)))
    rows: list[dict[str, Any]] = [{"rollouts": "data", "return": float(behaved.mean())}]
    for name, cell in cells.items():
        rows.append({"rollouts": name} | {c: final_mean(cell, m) for c, m in COLUMNS.items()})
    report.table("results", rows)
    add_clock(report, clock_rows(cells))
    add_claims(report, cells, float(behaved.mean()))
    report.note(f"Data {dataset.name}: sha256 {dataset.sha256}. Rows an epoch: {config.rows:,}.")
    return report


def final_mean(cell: Cell, metric: str = "return") -> np.ndarray:
    """Mean of the last evaluations, `[seeds]`."""
    return cell.curve(metric)[1][:, -LAST:].mean(1)


def overestimation(cell: Cell) -> np.ndarray:
    """Estimated over true value, the latter at least 1; mean of the last evaluations, `[seeds]`."""
    return final_mean(cell, "estimated_value") / np.maximum(
        final_mean(cell, "discounted_return"), 1.0
    )


def add_claims(report: Report, cells: Mapping[str, Cell], behaved: float) -> None:
    """Short rollouts overestimate, long ones do not and earn more."""
    claim = claims(report, LISTINGS["edge_of_reach"].source)
    (shortest, short), *_, (longest, long) = cells.items()
    means = "critics' value over the true one (at least 1), mean of the last evaluations"
    name = f"rollouts of {shortest} overestimate ten times"
    claim(name, overestimation(short), at_least=10, means=means, cells=[short])
    name = f"rollouts of {longest} overestimate by at most half"
    claim(name, overestimation(long), at_most=1.5, means=means, cells=[long])
    means = "mean return of the last evaluations above that of the dataset's episodes"
    name = f"rollouts of {longest} earn more than the data"
    claim(name, final_mean(long), at_least=behaved, means=means, cells=[long])
    name = f"rollouts of {longest} earn more than rollouts of {shortest}"
    means = "difference of returns, mean of the last evaluations, seed by seed"
    claim(name, final_mean(long) - final_mean(short), at_least=0, means=means, cells=[short, long])


_TINY = settings("smoke", steps=20, rollouts={"every": 10})
EXPERIMENT = LISTINGS["edge_of_reach"].experiment(
    config_type=Config,
    presets={
        "smoke": Config("pendulum-mixed", (3, 12), 120, True, _TINY, 2, 0, 1, 1),
        "cpu": Config(),  # 3.75 time constants; the last three evaluations are after the third
    },
    run=run,
)
