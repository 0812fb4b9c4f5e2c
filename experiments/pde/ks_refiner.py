"""PDE-Refiner on Kuramoto-Sivashinsky: what refinement does to small amplitudes and to rollouts.

One-step MSE, pushforward, error correction (a second call without noise: the control) and
PDE-Refiner with the same network, data, updates and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import StudyConfig, prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.grid import Cell, run_grid
from .ks_cells import CPU, GPU, PAPER, SMOKE, SOURCE, small_domain, train_cell
from .ks_refiner_page import make_report

METHODS = ("mse", "pushforward", "correction", "refiner")


@dataclass(frozen=True)
class KsConfig:
    """Methods out of mse, pushforward, correction (two calls, no noise) and refiner.

    The refiner's residual scale is the study's.
    """

    methods: tuple[str, ...] = METHODS
    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)

    def validate(self) -> None:
        if not self.methods or set(self.methods) - set(METHODS):
            raise ConfigError("methods", self.methods, f"names out of {', '.join(METHODS)}")


def run(config: KsConfig, context: RunContext) -> Report:
    """Solve, train every method, roll, compare."""
    study, data = config.study, prepare(config.study, context)

    def train(method: str, stage: str) -> Cell:
        sampled = method == "refiner"
        return train_cell(method, study, config.refiner, data, context, stage, sampled=sampled)

    cells = run_grid({"method": config.methods}, train, context, seeds=study.seeds)
    report = Report.of(context, study.seeds)
    make_report(report, study, data, cells)
    return report


# Error falls along refinement from about 20 000 updates on; 48 points make them fit an hour on two
# cores and still hold the wavenumbers from 20 on, which plain training does not learn.
_TWICE_AS_LONG = replace(
    CPU, points=48, train=small_domain(1024, 36, 0, 96), test=small_domain(256, 251, 1, 96),
    training=TrainingConfig(updates=20_000),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="ks_refiner",
    summary="MSE, pushforward, error correction and PDE-Refiner on Kuramoto-Sivashinsky",
    source=SOURCE,
    config_type=KsConfig,
    presets={
        "smoke": KsConfig(study=SMOKE, refiner=RefinerConfig(min_noise_variance=1e-6)),
        "cpu": KsConfig(study=_TWICE_AS_LONG, refiner=RefinerConfig(min_noise_variance=1e-6)),
        "gpu": KsConfig(
            methods=("mse", "refiner"),
            study=GPU,
            refiner=RefinerConfig(min_noise_variance=1e-6, first="zeros", first_share=0.4),
        ),
        "paper": KsConfig(study=PAPER, refiner=RefinerConfig(min_noise_variance=4e-7)),
    },
    run=run,
)
