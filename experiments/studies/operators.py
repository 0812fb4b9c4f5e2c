"""DRIFT-Net's mixer against window attention, Fourier layers and convolutions in one network.

The released DRIFT-Net is scOT with another mixer, so that is what is compared: one network, one
training, as many parameters, and as many gradient steps or as many seconds. What each part of the
mixer is worth is measured by taking it away.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.grid import Cell, Column, Grid, run_grid
from jaxrl_rollouts.pde.operators import Drift, Fno
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .operators_cells import (
    BASELINES,
    DriftNetConfig,
    Flows,
    baseline,
    flow,
    prepare,
    speed,
    train_arm,
    updates_of,
)

SOURCE = "DRIFT-Net (ICLR 2026), tables of NS-SL and NS-PwC, ablations"
PUBLISHED = (158.0, 118.0)  # training steps per second of DRIFT-Net and scOT, hardware unknown
BETTER, WORSE = 0.95, 1.1  # what counts as an effect
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


def make_report(report: Report, config: DriftNetConfig, cells: Grid, flows: Flows) -> None:
    """Everything that the page shows."""
    for start in config.starts:
        rows = flows.of(config, start)
        report.table(start, cells.rows(_columns(rows, config)))
        whole = one_step(cells["updates", "drift"], rows)
        parts = {
            "parameters": _known("parameters"),
            "one step L1 %": lambda cell, rows=rows: one_step(cell, rows),
            "over the whole mixer's": lambda cell, rows=rows, whole=whole: (
                one_step(cell, rows) / whole
            ),
        }
        compared = {("updates", name): cells["updates", name] for name in ("drift", *config.parts)}
        report.table(f"{start}, parts of the mixer", Grid(cells.axes, compared).rows(parts))
    report.table("training speed", _speed_rows(config, cells))
    _claims(report, config, cells, flows)
    train, test = config.train, config.test
    report.note(
        f"Vorticity of decaying flows on {train.points} x {train.points} points, solved on "
        f"{train.oversampling} times as many along each axis and cut off in Fourier space; of each "
        f"start {train.trajectories} trajectories x {train.frames} frames to train on, "
        f"{test.trajectories} x {test.frames} to test on, {test.dt[0]:g} apart; one emulator is "
        f"trained on all. Frames after the first {train.frames} of a test trajectory are later "
        "than any trained on."
    )
    report.note(
        f"As many updates: {config.training.steps} gradient steps on batches of "
        f"{config.training.batch}, mean square error of a step. As many seconds: updates in the "
        "ratio of the speeds, measured in CPU seconds of the process after each training, since "
        "other programs shared the machine; published are steps per second of unknown hardware."
    )


def one_step(cell: Cell, rows: slice) -> np.ndarray:
    """Relative L1 of a step in %, median over the steps of some trajectories, `[seeds]`."""
    return 100.0 * np.median(cell["one_step_l1", :, rows, :], (1, 2))


def rolled(cell: Cell, rows: slice, step: int) -> np.ndarray:
    """Relative L1 in % after so many steps, median over trajectories, `[seeds]`."""
    return 100.0 * np.median(cell["relative_l1", :, step - 1 : step, rows], (1, 2))


def _known(name: str) -> Column:
    """What is known of an arm that was trained, a whole number."""
    return lambda cell: int(cell.extra[name]) if name in cell.extra else None


def _columns(rows: slice, config: DriftNetConfig) -> dict[str, Column]:
    """Of the table of one start."""
    steps = sorted({min(20, config.steps), min(100, config.steps)})
    return {
        "parameters": _known("parameters"),
        "updates": _known("updates"),
        "seconds to train": lambda cell: None if np.isnan(cell.seconds) else cell.seconds,
        "one step L1 %": lambda cell: one_step(cell, rows),
        **{f"{n} steps L1 %": lambda cell, n=n: rolled(cell, rows, n) for n in steps},
    }


def _speed_rows(config: DriftNetConfig, cells: Grid) -> list[dict[str, Any]]:
    drift = np.median(speed(cells["updates", "drift"]))
    rows = []
    for name in (*config.mixers, "fno"):
        rate = float(np.median(speed(cells["updates", name])))
        published = PUBLISHED[0] / PUBLISHED[1] if name == "attention" else None
        row = {"arm": name, "steps per CPU second": rate, "DRIFT's over it": float(drift / rate)}
        rows.append(row | {"published": published})
    return rows


def _claims(report: Report, config: DriftNetConfig, cells: Grid, flows: Flows) -> None:
    claim = claims(report, SOURCE)
    for start in config.starts:
        rows = flows.of(config, start)
        drift = one_step(cells["updates", "drift"], rows)
        for matching in ("updates", "seconds"):
            if (matching, "attention") in cells:
                ratio = drift / one_step(cells[matching, "attention"], rows)
                means = f"relative L1 of a step over attention's; parameters, {matching} are equal"
                name = f"DRIFT beats attention: {start}, {matching}"
                claim(name, ratio, at_most=BETTER, means=means)
        errors = {part: one_step(cells["updates", part], rows) for part in config.parts}
        without = errors.pop("no low mixing", None)
        if without is None:
            continue
        means = "relative L1 of a step without low mixing over that of the whole mixer"
        claim(f"low mixing matters: {start}", without / drift, at_least=WORSE, means=means)
        if errors:
            worst = np.stack([*errors.values()]).max(0)
            means = "relative L1 of a step without low mixing over the worse of other ablations"
            name = f"low mixing matters most: {start}"
            claim(name, without / worst, at_least=1.0, means=means)


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
