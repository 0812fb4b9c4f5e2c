"""What is refinement worth on Kuramoto-Sivashinsky, and when?

MSE training, the same behind a low-pass that costs nothing, and three refiners, over the length of
a step, with few trajectories and in a transient. Where the true solver in place of the higher
wavenumbers does not lengthen MSE training's rollouts, no repair of them can: refiners are trained
where it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.pde.generate import GenerateConfig
from jaxrl_rollouts.pde.operators import ResnetConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import StudyConfig
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .ks_settled_cells import REFINERS, SettledConfig, case_of, train_cell, worth
from .ks_settled_page import page

AXES = ("regime", "arm")


def run(config: SettledConfig, context: RunContext) -> Report:
    """Train and screen every regime, then the refiners."""
    cases = {name: case_of(name, config, context) for name in config.regimes}
    cells: dict[tuple, Cell] = {}

    def train(regime: str, arm: str, stage: str) -> Cell:
        return train_cell(cases[regime], arm, context, stage, f"{stage.removesuffix(arm)}mse")

    def add(regime: str, arms: Iterable[str]) -> None:
        points = [(regime, arm) for arm in arms]
        found = run_grid(AXES, train, context, seeds=config.study.seeds, points=points)
        cells.update(found.cells)

    for regime in config.regimes:
        add(regime, ("mse", "low_pass"))
        if worth(regime, config, cells[regime, "mse"]):
            add(regime, REFINERS)
    return page(config, cases, Grid(AXES, cells), Report.of(context, config.study.seeds))


def frames(trajectories: int, count: int, seed: int, burn_in: int = 800) -> GenerateConfig:
    """Length 22, where every trajectory is chaotic; frames 0.1 apart, after 80 time units."""
    return GenerateConfig(
        extent=(22.0, 22.0), dt=(0.1, 0.1), points=64, substeps=4, chunk=256,
        trajectories=trajectories, frames=count, seed=seed, burn_in=burn_in,
    )  # fmt: skip


# Two refinements: a finest noise near the error that so few updates leave, and the paper's way
# there.
REFINER = RefinerConfig(steps=2, min_noise_variance=1e-5)

SMOKE = StudyConfig(
    seeds=2, train=frames(16, 20, 0, 20), test=frames(8, 33, 1, 20), points=32,
    resnet=ResnetConfig(width=8, blocks=1, dilations=(1, 2), embedding=16),
    training=TrainingConfig(updates=20, batch=8, warmup=2, per_iteration=10),
    steps=32, sampled_steps=1,
)  # fmt: skip

CPU = StudyConfig(
    seeds=6, train=frames(512, 65, 0), test=frames(256, 641, 1), points=32,
    resnet=ResnetConfig(width=16, blocks=1),
    training=TrainingConfig(updates=4000, warmup=200, shift=False),
    steps=640, sampled_steps=1,
)  # fmt: skip

PRESETS = {
    "smoke": SettledConfig(
        study=SMOKE, refiner=REFINER, regimes=("0.8", "few 0.2", "transient"), few=4,
        transient_frames=40, solved_from=(0, 6), screen_from=0,
    ),
    # The attractor; other regimes are `--regimes` of it.
    "cpu": SettledConfig(study=CPU, refiner=REFINER, regimes=("0.8", "0.1", "0.2", "0.4")),
}  # fmt: skip
EXPERIMENT = LISTINGS["ks_settled"].experiment(SettledConfig, PRESETS, run)
