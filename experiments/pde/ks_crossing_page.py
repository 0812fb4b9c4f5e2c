"""Tables, claims and pictures of `ks_crossing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl_rollouts.pde.study.train import StudyData
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.claims import claims
from ..kit.colours import colour
from ..kit.draw import level, picture, sweep
from ..kit.grid import Cell, Grid
from .ks_cells import SOURCE
from .ks_crossing_cells import ARMS, CrossingConfig
from .ks_page import draw_correlation

OURS = "the project's question"
CURVES = ("mse", "refiner", "own_1", "tail")  # of the correlation picture
CROSSING = 1.05  # T(0.8) over MSE training's


def make_report(
    report: Report, config: CrossingConfig, data: StudyData, arms: Grid, budgets: Grid
) -> None:
    """Fill `report` with everything the run has to say."""
    study, mse = config.study, arms["mse"]
    ratios = {name: cell["time_curve"] / mse["time_curve"] for name, cell in arms.items()}
    report.table("arms", [_row(name, cell, mse) for name, cell in arms.items()])
    claim = claims(report, SOURCE)
    for name in config.arms[1:]:
        means = f"T(0.8) over MSE training's: {ARMS[name].what}"
        claim(f"{name} crosses", ratios[name], at_least=CROSSING, means=means)
    if "tail" in arms:
        claim(
            "tail keeps rollouts as long",
            ratios["tail"],
            at_least=0.95,
            means="T(0.8) over MSE training's",
            source=OURS,
        )
        claim(
            "tail repairs the highest wavenumbers",
            high_error(arms["tail"]) / high_error(mse),
            at_most=0.5,
            means="error of their highest third over MSE training's",
            source=OURS,
        )
    _draw_arms(report, ratios)
    draw_correlation(report, data.dt, {n: arms[n] for n in CURVES if n in arms.trained})
    if config.budgets and "refiner" in arms:
        whole = {(method, 1.0): arms[method] for method in ("mse", "refiner")}
        every = Grid(budgets.axes, {**budgets.cells, **whole})
        shares = (*sorted(config.budgets), 1.0)
        rows = [
            _budget_row(share * study.training.updates, every.at(share=share)) for share in shares
        ]
        report.table("budget", rows)
    if config.solved_from:
        _bottleneck(report, config, data, mse)
    report.note(
        f"Every arm has {study.training.updates} gradient steps on batches of "
        f"{study.training.batch}; warm, own and tail arms spend part of them on a first model. "
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}."
    )


def high_error(cell: Cell) -> np.ndarray:
    """Error `[seeds]` after one step, mean over the highest third of the wavenumbers."""
    error = cell["first_error", :, -1, :]
    return error[:, 2 * error.shape[1] // 3 :].mean(1)


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


def _draw_arms(report: Report, ratios: dict[str, np.ndarray]) -> None:
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
    if mse.diverged:
        return
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
