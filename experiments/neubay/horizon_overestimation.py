"""Do long adaptive rollouts keep values honest where short ones overestimate?

Two tasks, each with data of low quality and an agent without pessimism: a plane where data end
before the goal, and a runner where falling ends episodes and the data are clumsy. Rollouts have a
fixed length or go on until the members disagree more than they do on the data (NEUBAY). Promised
value is compared with what the policy then earns. A reward penalty on the disagreement is the
conservative control.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .horizon_overestimation_cells import (
    AGENT,
    PlaneConfig,
    RunnerConfig,
    train_plane,
    train_runner,
)
from .horizon_overestimation_page import SOURCE, add_plane, add_runner


@dataclass(frozen=True)
class Config:
    """Which tasks, and the settings of each."""

    seed: int = 0
    tasks: tuple[Literal["plane", "runner"], ...] = ("plane", "runner")
    plane: PlaneConfig = field(default_factory=PlaneConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)

    def validate(self) -> None:
        if not self.tasks:
            raise ConfigError("tasks", self.tasks, "at least one")


def run(config: Config, context: RunContext) -> Report:
    """Fit, train every arm, compare promised with earned value."""
    seeds = min(getattr(config, task).seeds for task in config.tasks)
    report = Report.of(context, seeds)
    if "plane" in config.tasks:
        add_plane(report, config.plane, *train_plane(config.plane, config.seed, context))
    if "runner" in config.tasks:
        add_runner(report, config.runner, *train_runner(config.runner, config.seed, context))
    return report


_TINY = replace(NEUBAY_ENSEMBLE, members=3, elites=2, hidden=(16,), max_epochs=1)
_SMOKE = Config(
    plane=PlaneConfig(
        seeds=2, rows=600, fixed=(1, 4), levels=(0.5, 1.0), penalties=(1.0,), longest=8,
        ensemble=_TINY, agent=SacConfig(hidden=(16,)), steps_per_epoch=80, updates_per_epoch=5,
        batch_size=16, epochs=2, evaluations=1, starts=8,
    ),
    runner=RunnerConfig(
        seeds=2, episodes=3, fixed=(1,), penalties=(1.0,), looks=1, last=1, plays=2,
        ensemble=_TINY,
        agent=replace(
            AGENT, rollouts=4, updates_per_iteration=2, tape=256, capacity=1000,
            agent=replace(
                AGENT.agent, memory=MemoryConfig("none", width=8), head=(8,), critics=2, steps=4,
            ),
        ),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="horizon_overestimation",
    summary="promised against earned value over the length of model rollouts, fixed and adaptive",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": Config()},
    run=run,
)
