"""When does refinement lengthen rollouts? Ways to spend one training budget, compared.

At small budgets one small network shares K + 1 tasks and the refiner's energetic wavenumbers are
worse than plain MSE training's, so its rollouts are shorter. Every arm here costs the same number
of gradient steps; how the comparison moves with the budget, and which wavenumbers end an
emulator's rollouts at all, is measured beside it.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.grid import Cell, run_grid
from .ks_cells import CPU, SMOKE, SOURCE
from .ks_crossing_cells import CrossingConfig, train_arm, train_at_budget
from .ks_crossing_page import make_report


def run(config: CrossingConfig, context: RunContext) -> Report:
    """Run every arm, compare with MSE training."""
    study, data = config.study, prepare(config.study, context)

    def arm(name: str, stage: str) -> Cell:
        return train_arm(name, config, data, context)

    def at_budget(method: str, share: float, stage: str) -> Cell:
        return train_at_budget(method, share, config, data, context)

    arms = run_grid({"arm": config.arms}, arm, context, seeds=study.seeds)
    axes = {"method": ("mse", "refiner"), "share": config.budgets}
    budgets = run_grid(axes, at_budget, context, seeds=study.seeds)
    report = Report.of(context, study.seeds)
    make_report(report, config, data, arms, budgets)
    return report


EXPERIMENT = Experiment(
    name="ks_crossing",
    summary="which way of spending a training budget makes PDE-Refiner's rollouts longer",
    source=SOURCE,
    config_type=CrossingConfig,
    presets={
        "smoke": CrossingConfig(
            study=SMOKE, refiner=RefinerConfig(min_noise_variance=1e-6),
            arms=("mse", "refiner", "warm", "own_2"), budgets=(0.5,), solved_from=(0, 4),
        ),
        # 32 points hold every wavenumber that matters: from 9 on, none changes a rollout's length.
        "cpu-long": CrossingConfig(
            study=replace(CPU, points=32, training=TrainingConfig(updates=20_000)),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
    },
    run=run,
)  # fmt: skip
