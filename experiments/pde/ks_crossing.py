"""When does refinement lengthen rollouts? Ways to spend one training budget, compared.

At small budgets one small network shares K + 1 tasks and the refiner's energetic wavenumbers are
worse than plain MSE training's, so its rollouts are shorter. Every arm here costs the same number
of gradient steps; how the comparison moves with the budget, and which wavenumbers end an
emulator's rollouts at all, is measured beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.pde.study.train import StudyData, prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..catalogue import LISTINGS
from ..kit.colours import colour
from ..kit.draw import sweep
from .ks import CPU, REFINER, SMOKE, SOURCE, draw_correlation
from .ks_crossing_cells import ARMS, CrossingConfig, train_arm, train_at_budget

OURS = "the project's question"
CURVES = ("mse", "refiner", "own_1", "tail")  # of the correlation picture
CROSSING = 1.05  # T(0.8) over MSE training's


def run(config: CrossingConfig, context: RunContext) -> Report:
    """Run every arm, compare with MSE training."""
    study, data = config.study, prepare(config.study, context)

    def arm(name: str, stage: str) -> Cell:
        return train_arm(ARMS[name], config, data, context, stage)

    def at_budget(method: str, share: float, stage: str) -> Cell:
        return train_at_budget(method, share, config, data, context)

    arms = run_grid({"arm": config.arms}, arm, context, seeds=study.seeds)
    axes = {"method": ("mse", "refiner"), "share": config.budgets}
    budgets = run_grid(axes, at_budget, context, seeds=study.seeds)
    report, mse = Report.of(context, study.seeds), arms["mse"]
    report.table("arms", [_row(name, cell, mse) for name, cell in arms.items()])
    ratios = {name: cell["time_curve"] / mse["time_curve"] for name, cell in arms.items()}
    _claims(report, arms, ratios)
    _draw_arms(report, ratios)
    draw_correlation(report, data.dt, {n: arms[n] for n in CURVES if n in arms.trained})
    if config.budgets and "refiner" in arms:
        by_share = {share: budgets.at(share=share) for share in sorted(config.budgets)} | {1: arms}
        updates = study.training.updates
        rows = [_budget_row(share * updates, cells) for share, cells in by_share.items()]
        report.table("budget", rows)
    if config.solved_from and not mse.diverged:
        _bottleneck(report, config, data, mse)
    report.note(
        f"Every arm has {study.training.updates} gradient steps on batches of "
        f"{study.training.batch}; warm, own and tail arms spend part of them on a first model. "
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}."
    )
    return report


def high_error(cell: Cell) -> np.ndarray:
    """Error `[seeds]` after one step, mean over the highest third of the wavenumbers."""
    error = cell["first_error", :, -1, :]
    return error[:, 2 * error.shape[1] // 3 :].mean(1)


def _claims(report: Report, arms: Grid, ratios: Mapping[str, np.ndarray]) -> None:
    claim = claims(report, SOURCE)
    for name in list(ratios)[1:]:
        means = f"T(0.8) over MSE training's: {ARMS[name].what}"
        claim(f"{name} crosses", ratios[name], at_least=CROSSING, means=means)
    if "tail" in arms:
        claim, means = claims(report, OURS), "T(0.8) over MSE training's"
        claim("tail keeps rollouts as long", ratios["tail"], at_least=0.95, means=means)
        means = "error of their highest third over MSE training's"
        repaired = high_error(arms["tail"]) / high_error(arms["mse"])
        claim("tail repairs the highest wavenumbers", repaired, at_most=0.5, means=means)


def _row(name: str, cell: Cell, mse: Cell) -> dict[str, Any]:
    refiner = None if cell.diverged else cell.extra["refiner"]
    return {
        "arm": name,
        "what": ARMS[name].what,
        "calls": 1 if refiner is None else refiner.steps + 1,
        "finest noise variance": None if refiner is None else refiner.min_noise_variance,
        "T(0.8), mean curve": summarize(cell["time_curve"]),
        "over MSE": summarize(cell["time_curve"] / mse["time_curve"]),
        "T(0.8), per trajectory": summarize(cell["time_each"]),
        "over MSE, per trajectory": summarize(cell["time_each"] / mse["time_each"]),
        "one-step MSE, first call": summarize(cell["one_step", :, 0]),
        "one-step MSE": summarize(cell["one_step", :, -1]),
        "error, highest third of wavenumbers": summarize(high_error(cell)),
        "seconds to train": cell.seconds,
    }


def _budget_row(updates: float, cells: Grid) -> dict[str, Any]:
    """What the two plain methods do with less."""
    mse, refiner = cells["mse"], cells["refiner"]
    return {
        "updates": round(updates),
        "MSE T(0.8)": summarize(mse["time_curve"]),
        "refiner T(0.8)": summarize(refiner["time_curve"]),
        "refiner over MSE": summarize(refiner["time_curve"] / mse["time_curve"]),
        "MSE one-step": summarize(mse["one_step", :, -1]),
        "refiner one-step, first call": summarize(refiner["one_step", :, 0]),
        "refiner one-step": summarize(refiner["one_step", :, -1]),
    }


def _draw_arms(report: Report, ratios: Mapping[str, np.ndarray]) -> None:
    caption = "Points are seeds, bars their mean; dotted: 1.05, what counts as crossing."
    names = list(ratios)[::-1]
    with picture(report, "arms", caption, width=5.6, height=0.4 + 0.28 * len(names)) as (ax,):
        for at, name in enumerate(names):
            ratio = ratios[name]
            ax.plot(ratio, [at] * len(ratio), ".", color="#777777", markersize=5)
            ax.plot([ratio.mean()], [at], "|", color="#000000", markersize=14, markeredgewidth=2)
        ax.axvline(CROSSING, color="#D55E00", linestyle=":", linewidth=1.0)
        ax.set_yticks(range(len(names)), names)
        ax.set_xlabel("T(0.8) over MSE training's")


def _bottleneck(report: Report, config: CrossingConfig, data: StudyData, mse: Cell) -> None:
    """How long MSE training's rollouts would be if some wavenumbers were stepped truly."""
    amplitude = np.abs(np.fft.rfft(np.asarray(data.test.fields[:, 1:, 0]))).mean((0, 1))
    times = mse.extra["time_solved"]
    ratios = {lowest: time / mse["time_curve"] for lowest, time in times.items()}
    rows = [
        {
            "solver from wavenumber": lowest,
            "amplitude there": float(amplitude[lowest]),
            "MSE's error there": summarize(mse["first_error", :, 0, lowest]),
            "T(0.8), mean curve": summarize(times[lowest]),
            "over MSE": summarize(ratio),
        }
        for lowest, ratio in ratios.items()
    ]
    report.table("which wavenumbers end rollouts", rows)
    caption = (
        "The most that repairing high wavenumbers could gain MSE training; points are seeds. "
        f"Rollouts end at {config.study.steps * data.dt:g} at the latest."
    )
    with picture(report, "bottleneck", caption, width=5.6, height=2.8) as (ax,):
        sweep(ax, list(ratios), list(ratios.values()), shade=colour("mse"))
        level(ax, CROSSING, linestyle=":", color="#D55E00", linewidth=1.0)
        ax.set_xlabel("wavenumbers from here on are stepped by the true solver")
        ax.set_ylabel("T(0.8) over MSE training's")


SOME = {"arms": ("mse", "refiner", "warm", "own_2"), "budgets": (0.5,), "solved_from": (0, 4)}
# 32 points hold every wavenumber that matters: from 9 on, none changes a rollout's length.
LONG = replace(CPU, points=32, training=TrainingConfig(updates=20_000))
PRESETS = {
    "smoke": CrossingConfig(study=SMOKE, refiner=REFINER, **SOME),
    "cpu-long": CrossingConfig(study=LONG, refiner=REFINER),
}
EXPERIMENT = LISTINGS["ks_crossing"].experiment(CrossingConfig, PRESETS, run)
