"""NEUBAY on MuJoCo datasets, against its own ablations and against MOPO, MOBILE and RAVL.

One agent with a memory and long rollouts, no conservatism; three conservative agents with short
ones. All learn from the same files, with the same number of gradient steps, in world models fitted
for the same number of epochs: NEUBAY's layer-normalised posterior for its arms, the PETS ensemble
of their papers for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.methods.registry import MethodConfig
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.neubay.tuned import PAPER, Tuned, tuned_to
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study import neubay, neubay_page, page
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.model_based import FittedDataset
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    Posterior,
    ring_note,
    small_neubay,
)
from jaxrl_rollouts.offline.study.source import behaviour, slug
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS, NEUBAY_D4RL
from ..ravl.ravl_mujoco import Config as RavlConfig
from ..ravl.ravl_mujoco import check_methods, train_methods

SOURCE = LISTINGS["neubay_mujoco"].source


@dataclass(frozen=True)
class Config:
    """Datasets by arms; seeds and evaluations are the same for all.

    Attributes:
        datasets: names, or files.
        methods: the conservative ones, of `offline.methods`.
        memoryless: whether to train NEUBAY's Markov ablation.
        levels: quantiles to cut rollouts at, besides NEUBAY's own.
        penalties: coefficients of NEUBAY's conservative ablation.
        study: seeds, evaluation, and all of the conservative methods.
        neubay: NEUBAY's world models and agent.
        tuned: settings of single datasets; others keep those of `neubay`.
    """

    datasets: tuple[str, ...] = ("halfcheetah-mixed", "hopper-mixed")
    methods: tuple[str, ...] = ("mopo", "mobile", "ravl")
    memoryless: bool = True
    levels: tuple[float, ...] = (0.9,)
    penalties: tuple[float, ...] = (1.0,)
    study: StudyConfig = field(default_factory=StudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)
    tuned: tuple[Tuned, ...] = PAPER

    def validate(self) -> None:
        if not self.datasets:
            raise ConfigError("datasets", self.datasets, "at least one")
        check_methods(self.methods)
        if any(level > 1 for level in self.levels):
            raise ConfigError("levels", self.levels, "each at most 1")
        if any(penalty <= 0 for penalty in self.penalties):
            raise ConfigError("penalties", self.penalties, "each above 0; NEUBAY itself has none")
        study, ours = self.study, self.neubay
        steps, expected = study.epochs * study.rollouts.updates_per_epoch, ours.agent.agent.steps
        if self.methods and steps != expected:
            expected = f"NEUBAY's {expected}, as epochs * updates_per_epoch"
            raise ConfigError("study: gradient steps", steps, expected)
        epochs, expected = study.ensemble.max_epochs, ours.ensemble.max_epochs
        if self.methods and epochs != expected:
            raise ConfigError("study.ensemble.max_epochs", epochs, f"NEUBAY's {expected}")

    def arms(self, dataset: str) -> dict[str, NeubayConfig]:
        """NEUBAY and its ablations on one dataset, by name."""
        full = tuned_to(dataset, self.neubay.agent, self.tuned)
        return {
            "neubay": full,
            **({"markov": neubay.markov(full)} if self.memoryless else {}),
            **{f"quantile {x:g}": replace(full, level=x) for x in self.levels},
            **{f"penalty {x:g}": replace(full, penalty=x) for x in self.penalties},
        }


def train_all(
    config: Config, context: RunContext
) -> tuple[Grid, dict[str, Posterior], dict[str, FittedDataset]]:
    """All arms and methods on all datasets; each stage resumes by itself.

    Returns:
        Cells by dataset and by arm or method, NEUBAY's ensembles by dataset, and those of the
        conservative methods, where there are such methods.
    """
    study, posteriors = config.study, {}

    def train(name: str, arm: str, stage: str) -> Cell:
        if name not in posteriors:
            dataset = load_dataset(name, study.seed)
            posteriors[name] = neubay.fit_posterior(
                dataset, study, config.neubay, context, config.levels
            )
        settings = config.arms(name)[arm]
        outcome = neubay.train_neubay(arm, posteriors[name], study, settings, context)
        rate = bootstrap_rate(settings.agent)
        return Cell.of(outcome.trained, updates=settings.updates_per_iteration, rate=rate)

    axes = {"dataset": config.datasets, "arm": list(config.arms(config.datasets[0]))}
    grid = run_grid(axes, train, context, seeds=study.seeds)
    datasets = {name: posterior.dataset for name, posterior in posteriors.items()}
    others = RavlConfig(tuple(datasets), config.methods, study=study)
    conservative, worlds = train_methods(datasets, others, context)
    return Grid(grid.axes, {**grid.cells, **conservative.cells}), posteriors, worlds


def run(config: Config, context: RunContext) -> Report:
    """All arms on all datasets; each stage resumes by itself."""
    report = Report.of(context, config.study.seeds)
    grid, posteriors, worlds = train_all(config, context)
    by_dataset = {name: grid.at(dataset=name) for name in posteriors}
    rows, horizons = [], []
    for name, cells in by_dataset.items():
        arms = {arm: cells[arm] for arm in config.arms(name)}
        rows += page.result_rows(posteriors[name], cells, config.study.agent.discount)
        horizons += neubay_page.horizon_rows(name, arms)
        page.draw_learning(report, posteriors[name], cells)
        neubay_page.draw_horizons(report, name, arms)
        add_claims(report, config, posteriors[name], cells)
    report.table("results", rows)
    clocks = [clock_rows(cells, dataset=name) for name, cells in by_dataset.items()]
    add_clock(report, [row for rows in clocks for row in rows])
    report.table("rollouts of the last collection", horizons)
    report.table("posteriors", [*map(neubay_page.posterior_row, posteriors.values())])
    if worlds:
        fitted = [*map(page.world_row, worlds.values())]
        report.table("world models of the conservative methods", fitted)
        page.draw_world(report, worlds)
    page.draw_comparison(report, posteriors, by_dataset)
    neubay_page.draw_values(report, by_dataset)
    steps, ensemble = config.neubay.agent.agent.steps, config.neubay.ensemble
    report.note(
        f"{steps:,} gradient steps for everyone. NEUBAY's arms share a posterior of "
        f"{ensemble.members} layer-normalised members, of which {ensemble.elites} are rolled; the "
        f"conservative methods share an ensemble of {config.study.ensemble.members}, as their "
        f"papers have it. Both were fitted for at most {ensemble.max_epochs} epochs."
    )
    report.note(
        "markov: the same loop without a memory, shown the state only. quantile: where rollouts "
        "are cut, of the members' spread over the dataset (neubay's own is "
        f"{config.neubay.agent.level:g}). penalty: taken from imagined rewards, in mean spreads."
    )
    page.note_made(report, [posterior.dataset for posterior in posteriors.values()])
    page.note_environments(report, posteriors.values())
    for name, posterior in posteriors.items():
        report.note(f"{name}: {ring_note(posterior, config.study, config.neubay.agent)}")
    return report


def add_claims(report: Report, config: Config, posterior: Posterior, cells: Grid) -> None:
    """What the paper says of one dataset, each with its numbers."""
    claim, name, ours = claims(report, SOURCE), posterior.dataset.name, cells["neubay"]
    where, full = slug(name), config.neubay.agent.level

    def score(cell: Cell) -> np.ndarray:
        """D4RL's scale where there is one, else hundredths of the return."""
        scores = normalised_score(name, cell["return"])
        return cell["return"] / 100.0 if scores is None else np.asarray(scores)

    # fmt: off
    claim(f"NEUBAY beats the behaviour on {where}", ours["return"],
          at_least=behaviour(posterior).mean(), cells=[ours],
          means="return above the mean of the episodes in the dataset")
    claim(f"NEUBAY does not promise more than it earns on {where}",
          page.overestimation(ours), at_most=0, cells=[ours],
          means="critics' value at or below the true discounted return, without conservatism")
    if config.methods:
        best = max(config.methods, key=lambda method: float(np.mean(cells[method]["return"])))
        claim(f"NEUBAY is on par with the best conservative method on {where}",
              score(ours) - score(cells[best]), at_least=-5, cells=[ours, cells[best]],
              means=f"score minus that of {best}, seed by seed, at equal budget")
    if config.memoryless:
        claim(f"a memory helps on {where}", ours["return"] - cells["markov"]["return"],
              at_least=0, source=f"{SOURCE}, Markov ablation", cells=[ours, cells["markov"]],
              means="return minus that of the agent without a memory, seed by seed")
    for level in (x for x in config.levels if 0 <= x < full):
        longer, shorter = (cell.curve("horizon_median")[1].mean(1)
                           for cell in (ours, cells[f"quantile {level:g}"]))
        claim(f"quantile {level:g} ends rollouts sooner on {where}",
              longer / np.maximum(shorter, 1.0), at_least=2, source=f"{SOURCE}, figure 1",
              means=f"median imagined steps over training against those at {full:g}")
    for penalty in config.penalties[-1:]:
        claim(f"a penalty of {penalty:g} lowers what is promised on {where}",
              cells[f"penalty {penalty:g}"]["estimated_value"] - ours["estimated_value"],
              at_most=0, source=f"{SOURCE}, conservative ablation",
              cells=[ours, cells[f"penalty {penalty:g}"]],
              means="critics' value from the start minus that without a penalty")
    # fmt: on


# fmt: off
_SMOKE = Config(
    datasets=("hopper-random",), methods=("ravl",), study=SMOKE_MUJOCO,
    neubay=small_neubay(
        members=4, hidden=(32,), epochs=1, width=16, steps=20, per_iteration=10, rollouts=4,
        tape=1002, capacity=10_000,
    ),
)
# Three time constants of the critics in a hundred-and-thirtieth of the paper's gradient steps:
# targets move four times as fast as published, small networks learn ten times as fast, memories
# faster than that; the weights of real tokens are the paper's.
_CPU = Config(
    datasets=("halfcheetah-mixed",),
    study=replace(
        CPU_MUJOCO, epochs=15, evaluations=5, episodes=10, shared_world=True,
        ensemble=replace(CPU_MUJOCO.ensemble, max_epochs=15),
    ),
    neubay=small_neubay(
        members=12, hidden=(128,) * 4, epochs=15, width=64, steps=15_000, per_iteration=100,
        rollouts=10, tape=1024, capacity=400_000, polyak=0.02,
    ),
    tuned=tuple(replace(tuned, memory_rate=3e-4) for tuned in PAPER),
)
_ALL = tuple(tuned.dataset for tuned in PAPER)
_GPU_STEPS = 100_000
_GPU = Config(
    datasets=_ALL,
    study=replace(
        _CPU.study, epochs=_GPU_STEPS // 1000, evaluations=20,
        ensemble=EnsembleConfig(max_epochs=60), agent=SacConfig(),
        rollouts=ModelBasedConfig(real_share=0.5), methods=MethodConfig(),
    ),
    neubay=NeubayStudyConfig(
        replace(NEUBAY_ENSEMBLE, max_epochs=60),
        agent=NeubayConfig(capacity=4_000_000, agent=RecurrentSacConfig(steps=_GPU_STEPS)),
    ),
    tuned=tuple(replace(tuned, memory_rate=3e-5) for tuned in PAPER),
)
_PAPER = Config(
    datasets=NEUBAY_D4RL, levels=(0.9, 0.99, 0.999), penalties=(0.04, 0.2, 1.0, 5.0),
    study=StudyConfig(
        seeds=6, epochs=2000, evaluations=100, episodes=20,
        ensemble=EnsembleConfig(max_epochs=1200),
    ),
    neubay=NeubayStudyConfig(worlds=6),
)
# fmt: on

EXPERIMENT = LISTINGS["neubay_mujoco"].experiment(
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": _CPU, "gpu": _GPU, "paper": _PAPER},
    run=run,
)
