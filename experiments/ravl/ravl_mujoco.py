"""RAVL against base, MOPO and MOBILE on MuJoCo datasets, from file to simulator.

Every method gets the same world model, nets, batches, budget and seeds; what differs is in
`offline/methods/`. The datasets are `jr/*`, real MuJoCo transitions in D4RL's layout but not
D4RL's own files: scores are normalised with D4RL's reference returns and are not D4RL scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critic_view import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.methods.registry import NAMES
from jaxrl_rollouts.offline.study import model_based
from jaxrl_rollouts.offline.study import page as pages
from jaxrl_rollouts.offline.study.model_based import FittedDataset, StudyConfig, behaviour, slug
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

DATASETS = (
    *(f"jr/halfcheetah-{kind}" for kind in ("mixed", "medium", "random")),
    "jr/hopper-mixed",
)
SOURCE = LISTINGS["ravl_mujoco"].source


@dataclass(frozen=True)
class Config:
    """Datasets by methods; `study` is shared by all.

    Attributes:
        datasets: names, or files.
        methods: that are compared.
        study: world models, agent and evaluation, shared by all.
    """

    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = NAMES
    study: StudyConfig = field(default_factory=StudyConfig)

    def validate(self) -> None:
        check_methods(self.methods)
        if not self.datasets or not self.methods:
            raise ConfigError("datasets, methods", (self.datasets, self.methods), "at least one")


def check_methods(methods: Iterable[str]) -> None:
    """Raises `ConfigError` for a name that is none of a method."""
    for name in methods:
        if name not in NAMES:
            raise ConfigError("methods", name, f"names out of {', '.join(NAMES)}")


def train_methods(
    datasets: Mapping[str, Dataset], methods: Sequence[str], study: StudyConfig, context: RunContext
) -> tuple[Grid, dict[str, FittedDataset]]:
    """Cells by dataset and method, and each dataset's world models, fitted when they are needed."""
    worlds: dict[str, FittedDataset] = {}

    def train(name: str, method: str, stage: str) -> Cell:
        if name not in worlds:
            worlds[name] = model_based.fit_dataset(datasets[name], study, context)
        outcome = model_based.train_model_based(method, worlds[name], study, context)
        rate = bootstrap_rate(study.agent)
        return Cell.of(outcome.trained, updates=study.rollouts.updates_per_epoch, rate=rate)

    axes = {"dataset": list(datasets), "method": methods}
    return run_grid(axes, train, context, seeds=study.seeds), worlds


def run(config: Config, context: RunContext) -> Report:
    """All methods on all datasets; each stage resumes by itself."""
    study, report = config.study, Report.of(context, config.study.seeds)
    datasets = {name: load_dataset(name, study.seed) for name in config.datasets}
    grid, worlds = train_methods(datasets, config.methods, study, context)
    results = {name: grid.at(dataset=name) for name in config.datasets}
    for name, cells in results.items():
        pages.draw_training(report, worlds[name], cells)
    rows = [row for name in results for row in pages.result_rows(worlds[name], results[name])]
    report.table("world models", [pages.world_row(world) for world in worlds.values()])
    report.table("results", rows)
    clocks = [clock_rows(cells, dataset=name) for name, cells in results.items()]
    add_clock(report, [row for rows in clocks for row in rows])
    pages.draw_comparison(report, worlds, results)
    pages.draw_world(report, worlds)
    add_claims(report, worlds, results)
    pages.note_shared_data(report)
    if study.shared_world:
        report.note("One world model per dataset, shared by all seeds and methods.")
    pages.note_environments(report, worlds.values())
    return report


def add_claims(report: Report, worlds: dict[str, FittedDataset], results: dict[str, Grid]) -> None:
    """RAVL against the behaviour and against base; base overestimates."""
    claim, methods = claims(report, SOURCE), next(iter(results.values()))
    # fmt: off
    for name, cells in results.items():
        if "ravl" in methods:
            claim(f"RAVL beats the behaviour on {slug(name)}", cells["ravl"]["return"],
                  at_least=behaviour(worlds[name]).mean(), cells=[cells["ravl"]],
                  means="return above the mean of the episodes in the dataset")
        if "ravl" in methods and "base" in methods:
            claim(f"RAVL beats base on {slug(name)}",
                  cells["ravl"]["return"] - cells["base"]["return"], at_least=0,
                  cells=[cells["ravl"], cells["base"]],
                  means="a higher return at equal budget, seed by seed")
    gaps = {m: np.stack([pages.overestimation(cells[m]) for cells in results.values()], 1)
            for m in methods}
    if "base" in methods:
        claim("base promises more than it earns", gaps["base"], at_least=0,
              cells=[cells["base"] for cells in results.values()],
              means="critics' value above the true discounted return")
    if "ravl" in methods:
        claim("RAVL does not promise more than it earns", gaps["ravl"], at_most=0,
              cells=[cells["ravl"] for cells in results.values()],
              means="critics' value at or below the true discounted return")
    # fmt: on


EXPERIMENT = LISTINGS["ravl_mujoco"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(("jr/hopper-mixed",), ("base", "ravl"), model_based.SMOKE_MUJOCO),
        "cpu": Config(study=model_based.CPU_MUJOCO),
        "paper": Config(study=StudyConfig(seeds=5, epochs=3000, evaluations=60)),
    },
    run=run,
)
