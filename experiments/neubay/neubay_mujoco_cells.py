"""What `neubay_mujoco` trains: datasets by arms, with the paper's choice for each dataset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.methods.registry import NAMES
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.study.model_based import (
    FittedDataset,
    Setting,
    StudyConfig,
    fit_dataset,
    train_model_based,
)
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    Posterior,
    fit_posterior,
    markov,
    train_neubay,
)
from jaxrl_rollouts.record.context import RunContext

from ..kit.grid import Cell, Grid, run_grid


@dataclass(frozen=True)
class Tuned:
    """What the paper's public code chose for a dataset; hopper's alpha is fixed.

    Attributes:
        dataset: ours; each stands where the paper has the D4RL one of the same kind.
        memory_rate: learning rate of the memories.
        real_weight: of real tokens in the losses.
        learn_alpha: False keeps the initial one.
    """

    dataset: str
    memory_rate: float
    real_weight: float
    learn_alpha: bool = True


PAPER = (
    Tuned("jr/halfcheetah-random", 3e-5, 0.8),
    Tuned("jr/halfcheetah-medium", 3e-5, 0.8),
    Tuned("jr/halfcheetah-mixed", 1e-5, 0.05),  # medium-replay
    Tuned("jr/hopper-mixed", 3e-7, 0.5, False),  # medium-replay
)


@dataclass(frozen=True)
class Config:
    """Datasets by arms; seeds and evaluations are the same for all.

    Attributes:
        methods: the conservative ones, of `offline.methods`.
        memoryless: whether to train NEUBAY's Markov ablation.
        levels: quantiles to cut rollouts at, besides NEUBAY's own.
        penalties: coefficients of NEUBAY's conservative ablation.
        study: seeds, evaluation, and all of the conservative methods.
        neubay: NEUBAY's world models and agent.
        tuned: settings of single datasets; others keep those of `neubay`.
    """

    datasets: tuple[str, ...] = ("jr/halfcheetah-mixed", "jr/hopper-mixed")
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
        for name in self.methods:
            if name not in NAMES:
                raise ConfigError("methods", name, f"names out of {', '.join(NAMES)}")
        if any(level > 1 for level in self.levels):
            raise ConfigError("levels", self.levels, "each at most 1")
        if any(penalty <= 0 for penalty in self.penalties):
            raise ConfigError("penalties", self.penalties, "each above 0; NEUBAY itself has none")
        self.neubay.check_looks(self.study.evaluations)
        if not self.methods:
            return
        steps, expected = self.study.epochs * self.study.rollouts.updates_per_epoch, self.steps
        if steps != expected:
            expected = f"NEUBAY's {expected}, as epochs * updates_per_epoch"
            raise ConfigError("study: gradient steps", steps, expected)
        epochs, expected = self.study.ensemble.max_epochs, self.neubay.ensemble.max_epochs
        if epochs != expected:
            raise ConfigError("study.ensemble.max_epochs", epochs, f"NEUBAY's {expected}")

    @property
    def steps(self) -> int:
        """Gradient steps of everyone."""
        return self.neubay.agent.agent.steps

    def agent(self, dataset: str) -> NeubayConfig:
        """NEUBAY's settings for one dataset."""
        chosen = {tuned.dataset: vars(tuned) for tuned in self.tuned}.get(dataset, {})
        rates = {name: value for name, value in chosen.items() if name != "dataset"}
        return replace(self.neubay.agent, agent=replace(self.neubay.agent.agent, **rates))

    def arms(self, dataset: str) -> dict[str, NeubayConfig]:
        """NEUBAY and its ablations on one dataset, by name."""
        full = self.agent(dataset)
        return {
            "neubay": full,
            **({"markov": markov(full)} if self.memoryless else {}),
            **{f"quantile {x:g}": replace(full, level=x) for x in self.levels},
            **{f"penalty {x:g}": replace(full, penalty=x) for x in self.penalties},
        }


class Results(NamedTuple):
    """All that was trained.

    Attributes:
        grid: by dataset and by arm or method.
        posteriors: dataset -> NEUBAY's ensembles.
        worlds: dataset -> the conservative methods' ensemble, where there are such methods.
        settings: dataset -> rows and environment.
    """

    grid: Grid
    posteriors: dict[str, Posterior]
    worlds: dict[str, FittedDataset]
    settings: dict[str, Setting]


def train_all(config: Config, context: RunContext) -> Results:
    """All arms and methods on all datasets; each stage resumes by itself."""
    study = config.study
    posteriors: dict[str, Posterior] = {}
    worlds: dict[str, FittedDataset] = {}
    settings: dict[str, Setting] = {}

    def train(name: str, method: str, stage: str) -> Cell:
        if name not in settings:
            dataset = load_dataset(name, study.seed)
            posterior = fit_posterior(dataset, study, config.neubay, context, config.levels)
            posteriors[name], settings[name] = posterior, Setting(dataset, posterior.env)
        arm = config.arms(name).get(method)
        if arm:
            outcome = train_neubay(method, posteriors[name], study, arm, context)
            return Cell.of(outcome.trained, updates=arm.updates_per_iteration)
        if name not in worlds:
            worlds[name] = fit_dataset(settings[name].dataset, study, context)
        outcome = train_model_based(method, worlds[name], study, context)
        return Cell.of(outcome.trained, updates=study.rollouts.updates_per_epoch)

    arms = (*config.arms(config.datasets[0]), *config.methods)
    axes = {"dataset": config.datasets, "arm": arms}
    grid = run_grid(axes, train, context, seeds=study.seeds)
    return Results(grid, posteriors, worlds, settings)
