"""DRIFT-Net's mixer against window attention, Fourier layers and convolutions in one network.

The released DRIFT-Net is scOT with another mixer, so that is what is compared: one network, one
training, as many parameters, and as many gradient steps or as many seconds. What each part of the
mixer is worth is measured by taking it away.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.pde.operators import Drift, Fno
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .operators_cells import (
    BASELINES,
    DriftNetConfig,
    baseline,
    flow,
    prepare,
    train_arm,
    updates_of,
)
from .operators_page import make_report

AXES = ("matching", "arm")


def run(config: DriftNetConfig, context: RunContext) -> Report:
    """Train every mixer twice, the ablations once, and compare."""
    flows = prepare(config, context)

    def train(matching: str, arm: str, stage: str) -> Cell:
        if matching == "none":
            return baseline(arm, stage, config, flows, context)
        equal = matching == "updates"
        updates = config.training.steps if equal else updates_of(config, arm, first)
        return train_arm(arm, updates, stage, config, flows, context)

    def cells(*points: tuple[str, str]) -> Grid:
        return run_grid(AXES, train, context, seeds=config.seeds, points=points)

    first = cells(*(("updates", name) for name in (*config.mixers, "fno", *config.parts)))
    rest = [("seconds", name) for name in config.seconds]  # DRIFT's are those of its updates
    rest += [("none", name) for name in BASELINES]
    report = Report.of(context, config.seeds)
    make_report(report, config, Grid(AXES, {**first.cells, **cells(*rest).cells}), flows)
    return report


_TINY = Drift(dims=(8, 16), depths=(1, 1), gate_hidden=16, position_hidden=16)
SMOKE = DriftNetConfig(
    seeds=2,
    train=flow("", 4, 5, 0, 32),
    test=flow("", 2, 9, 1, 32),
    mixers=("drift", "attention"),
    seconds=("attention",),
    parts=("no low mixing",),
    drift=_TINY,
    attention=replace(_TINY, mixer="attention", head=4),
    fourier=replace(_TINY, mixer="fourier", dims=(4, 8), modes=2),
    conv=replace(_TINY, mixer="conv"),
    fno=Fno(width=4, layers=2, modes=4, embedding=8),
    training=Training(steps=20, batch=2, warmup=2, per_iteration=20),
    within=0.9,
    steps=8,
    repeats=1,
)
CPU = DriftNetConfig(
    seconds=("attention", "fno"),
    test=flow("", 8, 113, 1, 32),
    training=Training(steps=4000, batch=8, lr=3e-3, final_lr=1e-5, warmup=200, per_iteration=20),
)
PRESETS = {"smoke": SMOKE, "cpu": CPU}
EXPERIMENT = LISTINGS["operators"].experiment(DriftNetConfig, PRESETS, run)
