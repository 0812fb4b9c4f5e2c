"""Tables, claims and picture of `ks_ablation`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxrl_rollouts.reports.report import Report

from ..kit.claims import claims
from ..kit.colours import colour
from ..kit.draw import picture, sweep
from ..kit.grid import Cell, Grid
from .ks_ablation_cells import AblationConfig, along
from .ks_cells import SOURCE

COLUMNS = {
    "T(0.8), mean curve": "time_curve",
    "T(0.8), per trajectory": "time_each",
    "one-step MSE": lambda cell: cell["one_step", :, -1],
    "highest wavenumbers' error": lambda cell: tail(cell),
}


def tail(cell: Cell) -> np.ndarray:
    """One-step error of the highest wavenumbers, `[seeds]`."""
    return cell["first_error", :, -1, -13:].mean(1)


def make_report(report: Report, config: AblationConfig, cells: Grid, dt: float) -> None:
    """Every sweep: a table and a panel; `dt` is the base's step."""
    base = cells.at(sweep="base", value=0.0)
    names = dict.fromkeys(name for name, _, _ in cells if name != "base")
    sweeps = {name: along(config, cells, name) for name in names}
    for name, grid in sweeps.items():
        report.table(name, grid.rows(COLUMNS))
    _draw(report, sweeps, base["mse"]["time_curve"].mean())
    _claims(report, config, cells, base)
    report.note(
        f"Base: noise floor {config.refiner.min_noise_variance:g}, {config.refiner.steps} "
        f"refinements, step {dt:g}, {config.study.points} points, all "
        f"{config.study.train.trajectories} training trajectories, "
        f"{config.study.training.updates} updates; {config.study.test.trajectories} test ones."
    )


def _draw(report: Report, sweeps: Mapping[str, Grid], mse: float) -> None:
    caption = "High-correlation time over every setting; points are seeds."
    titles = tuple(sweeps)
    with picture(report, "sweeps", caption, titles=titles, columns=-(-len(titles) // 2)) as axes:
        for grid, ax in zip(sweeps.values(), axes, strict=True):
            for method in dict.fromkeys(method for _, method in grid):
                line = grid.at(method=method)
                sweep(ax, list(line), [c["time_curve"] for c in line.values()], method)
            if not any(method == "mse" for _, method in grid):
                ax.axhline(mse, color=colour("mse"), linestyle="--", label="mse, base")
            values = sorted({value for value, _ in grid})
            ax.set_xscale("log")
            ax.set_xticks(values, [f"{v:g}" for v in values])
            ax.minorticks_off()
            ax.set_ylim(bottom=0.0)
            ax.set_ylabel("T(0.8), mean curve")


def _claims(report: Report, config: AblationConfig, cells: Grid, base: Grid) -> None:
    """Orders the paper's figures have; lengths depend on the budget."""
    claim = claims(report, SOURCE)
    if config.noise_variances:
        highest = max(config.noise_variances)
        claim(
            "the noise floor sets the error of the highest wavenumbers",
            tail(cells["noise floor", highest, "refiner"]) / tail(base["refiner"]),
            at_least=3.0,
            means=f"error at a floor of {highest:g} over that of the base",
        )
    for history in config.histories:
        claim(
            f"a history of {history} shortens MSE training's rollouts",
            cells["history", history, "mse"]["time_curve"] / base["mse"]["time_curve"],
            at_most=0.95,
            means="T(0.8) over that with one frame",
        )
    if config.shares:
        least = min(config.shares)
        few, every = (
            grid["refiner"]["time_curve"] / grid["mse"]["time_curve"]
            for grid in (cells.at(sweep="share of the data", value=least), base)
        )
        claim(
            "refinement helps most with little data",
            few / every,
            at_least=1.05,
            means=f"refiner over MSE with {100 * least:g} % of the data, over that with all",
        )
