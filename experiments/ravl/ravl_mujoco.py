"""RAVL against base, MOPO and MOBILE on MuJoCo datasets, from file to simulator.

Every method gets the same world model, nets, batches, budget and seeds; what differs is in
`offline/methods/`. The datasets are `jr/*`, real MuJoCo transitions in D4RL's layout but not
D4RL's own files: scores are normalised with D4RL's reference returns and are not D4RL scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.methods.registry import NAMES, MethodConfig, Mobile
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.study.model_based import (
    SMOKE_MUJOCO,
    FittedDataset,
    StudyConfig,
    behaviour,
    fit_dataset,
    slug,
    train_model_based,
)
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit import offline_pages as pages
from ..kit.claims import claims
from ..kit.grid import Cell, Grid, run_grid

NAMES_OF_DATA = ("halfcheetah-mixed", "halfcheetah-medium", "halfcheetah-random", "hopper-mixed")
SOURCE = "Sims et al. 2024 (RAVL), arXiv 2402.12527, section 6"


@dataclass(frozen=True)
class Config:
    """Datasets by methods; `study` is shared by all."""

    datasets: tuple[str, ...] = tuple(f"jr/{name}" for name in NAMES_OF_DATA)
    methods: tuple[str, ...] = NAMES
    study: StudyConfig = field(default_factory=StudyConfig)

    def validate(self) -> None:
        for name in self.methods:
            if name not in NAMES:
                raise ConfigError("methods", name, f"names out of {', '.join(NAMES)}")
        if not self.datasets or not self.methods:
            raise ConfigError("datasets, methods", (self.datasets, self.methods), "at least one")


def run(config: Config, context: RunContext) -> Report:
    """All methods on all datasets; each stage resumes by itself."""
    study, report = config.study, Report.of(context, config.study.seeds)
    worlds: dict[str, FittedDataset] = {}

    def train(dataset: str, method: str, stage: str) -> Cell:
        if dataset not in worlds:
            worlds[dataset] = fit_dataset(load_dataset(dataset, study.seed), study, context)
        outcome = train_model_based(method, worlds[dataset], study, context)
        return Cell.of(outcome.trained, updates=study.rollouts.updates_per_epoch)

    axes = {"dataset": config.datasets, "method": config.methods}
    grid = run_grid(axes, train, context, seeds=study.seeds)
    results = {name: grid.at(dataset=name) for name in config.datasets}
    for name, cells in results.items():
        pages.draw_training(report, worlds[name], cells)
    rows = [row for name in results for row in pages.result_rows(worlds[name], results[name])]
    report.table("world models", [pages.world_row(world) for world in worlds.values()])
    report.table("results", rows)
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
                  at_least=behaviour(worlds[name]).mean(),
                  means="return above the mean of the episodes in the dataset")
        if "ravl" in methods and "base" in methods:
            claim(f"RAVL beats base on {slug(name)}",
                  cells["ravl"]["return"] - cells["base"]["return"], at_least=0,
                  means="a higher return at equal budget, seed by seed")
    gaps = {m: np.stack([pages.overestimation(cells[m]) for cells in results.values()], 1)
            for m in methods}
    if "base" in methods:
        claim("base promises more than it earns", gaps["base"], at_least=0,
              means="critics' value above the true discounted return")
    if "ravl" in methods:
        claim("RAVL does not promise more than it earns", gaps["ravl"], at_most=0,
              means="critics' value at or below the true discounted return")
    # fmt: on


# Small nets and 10 000 gradient steps of the paper's 3 000 000; half the batch is real (one of the
# paper's two values), because at this budget the other one leaves every method below the data.
_CPU = StudyConfig(
    seeds=3, epochs=10, evaluations=5, episodes=5, shared_world=True,
    ensemble=EnsembleConfig(max_epochs=12),
    agent=SacConfig(
        hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3,
        initial_alpha=0.1,
    ),
    rollouts=ModelBasedConfig(rollouts_per_epoch=10_000, updates_per_epoch=1000, real_share=0.5),
    methods=MethodConfig(mobile=Mobile(samples=1)),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="ravl_mujoco",
    summary="base, MOPO, MOBILE and RAVL on four MuJoCo datasets, evaluated in Gymnasium MuJoCo",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(("jr/hopper-mixed",), ("base", "ravl"), SMOKE_MUJOCO),
        "cpu": Config(study=_CPU),
        "paper": Config(study=StudyConfig(seeds=5, epochs=3000, evaluations=60)),
    },
    run=run,
)
