"""Tables, claims and pictures of `planner`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import picture, sweep
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.experiments.kit.colours import COLOURS
from jaxrl_rollouts.experiments.kit.draw import curve_with_band
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.page import note_environments, note_made
from jaxrl_rollouts.offline.study.source import Setting, behaviour, slug
from jaxrl_rollouts.reports.pictures import intervals
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread_name

from ..catalogue import LISTINGS
from .planner_cells import BASELINES, DRAWS, MANY, ONE, Config

SOURCE = LISTINGS["planner"].source
CALM, FEW, STUDENT = "model, 255 calls, no churn", "model, 4 calls (DPM++)", "student, 4 calls"
OWN = {**COLOURS, "model, with": "#E69F00", "model": "#D55E00", "student": "#0072B2"}
SLACK = 5.0  # percent of the return of 255 calls
RETURNS = (
    "Return by how plans are drawn, beside cloning and TD3+BC. Bars: {spread} of the interquartile "
    "mean; dots: seeds; dashed: the behaviour that made the data."
)
CALLS = (
    "Left: error of a plan's steps in the simulator over the network calls it took. Right: plans "
    "per second of all seeds together. Dots are seeds."
)
TRAINING = "Losses of the planner while training: of the model, its student and the inverse model."
Results = Mapping[str, tuple[Setting, Cell, Grid]]  # by dataset: its training, all arms


def page(report: Report, config: Config, results: Results) -> None:
    """Everything below, and what a reader has to know."""
    arms = [row for name, result in results.items() for row in rows(name, config, *result)]
    report.table("arms", arms)
    clocks = [clock_rows({"td3_bc": r[2]["td3_bc"]}, dataset=n) for n, r in results.items()]
    add_clock(report, [row for clock in clocks for row in clock])
    for name, (_, _, grid) in results.items():
        add_claims(report, name, grid)
    draw(report, config, results)
    report.note(
        f"Plans are {config.planner.horizon} states ahead and are drawn anew at every "
        f"{'step' if config.planner.replan == 1 else f'{config.planner.replan} steps'}; asked for "
        f"is the {config.planner.expectile:g} expectile of the returns that followed from a state. "
        f"Planners learn for {config.updates:,} updates of {config.batch_size} windows, cloning "
        f"and TD3+BC for {config.agent_updates:,} of 256 rows."
    )
    report.note(
        f"Errors of plans: squares in the data's variances, of {config.plans} plans from states of "
        "the data, against what the simulator does from every planned state with the inverse "
        "model's action. Plans per second: all seeds side by side, on a machine that others used."
    )
    note_made(report, [setting.dataset for setting, _, _ in results.values()])
    note_environments(report, [setting for setting, _, _ in results.values()])


def calls(draw: str) -> int:
    """Network calls of a plan."""
    return DRAWS[draw].calls


def rate(config: Config, cell: Cell) -> float:
    """Plans per second of all seeds side by side."""
    return config.seeds * config.plans / float(cell["seconds"].mean())


def rows(
    name: str, config: Config, setting: Setting, training: Cell, grid: Grid
) -> list[dict[str, Any]]:
    """The behaviour and every arm."""
    del training

    def of_plans(metric: str) -> Any:
        return lambda cell: cell[metric] if metric in cell.extra else None

    columns = {
        "calls": lambda cell: calls(cell.point["arm"]) if "all" in cell.extra else None,
        "return": "return",
        "score": lambda cell: normalised_score(name, cell["return"]),
        "plans/s": lambda cell: rate(config, cell) if "all" in cell.extra else None,
        "error of the first step": of_plans("first"),
        "error of all steps": of_plans("all"),
    }
    earned = float(behaviour(setting).mean())
    table = [{"arm": "behaviour", "return": earned}, *grid.rows(columns)]
    return [{"dataset": name} | {k: v for k, v in row.items() if v is not None} for row in table]


def gain(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Percent of the size of what many calls earn."""
    return 100.0 * (few - many) / np.abs(many)


def add_claims(report: Report, name: str, grid: Grid) -> None:
    """One call against 255, the student against its teacher, planners against cloning."""
    claim, short = claims(report, SOURCE), slug(name)
    one, many, cloned = (grid[arm]["return"] for arm in (ONE, MANY, "bc"))
    means = "difference of returns in percent of that of 255 calls, seed by seed"
    claim(f"{short}: one call earns what 255 do", gain(one, many), at_least=-SLACK, means=means)
    ratio = grid[MANY]["seconds"][:1] / grid[ONE]["seconds"][:1]
    means = "plans per second against those of 255 calls"
    claim(f"{short}: one call is 50 times as fast", ratio, at_least=50.0, means=means)
    ratio = grid[STUDENT]["all"] / grid[FEW]["all"]
    means = "its error over that of the model's second-order sampler"
    claim(f"{short}: in 4 calls a student beats its model", ratio, at_most=0.5, means=means)
    ratio = grid[STUDENT]["all"] / grid[CALM]["all"]
    means = "its error over that of 255 calls without churn"
    claim(f"{short}: 4 calls are as true as many", ratio, at_most=1.5, means=means)
    means = "return above that of cloning, seed by seed"
    claim(f"{short}: one call beats cloning", one - cloned, at_least=0.0, means=means)
    claim(f"{short}: 255 calls beat cloning", many - cloned, at_least=0.0, means=means)
    td3 = grid["td3_bc"]
    means = "return above that of TD3+BC, seed by seed"
    text = f"{short}: one call beats TD3+BC"
    claim(text, one - td3["return"], at_least=0.0, means=means, cells=[td3])


def draw(report: Report, config: Config, results: Results) -> None:
    """Returns, cost and truth of plans, and the training."""
    caption = RETURNS.format(spread=spread_name(report.seeds))
    names = list(results)
    size: dict[str, Any] = {"width": 4.6, "height": 3.0}
    titles = [slug(name) for name in names]
    with picture(report, "returns", caption, titles=titles, legend=False, **size) as axes:
        for ax, (setting, _, grid) in zip(axes, results.values(), strict=True):
            arms = {arm: grid[arm]["return"] for arm in (*BASELINES, *DRAWS)}
            intervals(ax, arms, xlabel="return", colours=OWN)
            ax.axvline(behaviour(setting).mean(), color="black", linestyle="--", linewidth=0.8)
    series = {
        "model, few calls": [n for n in DRAWS if "model" in n and calls(n) < 255] + [CALM],
        "model, with churn": [MANY],
        "student": [n for n in DRAWS if "student" in n],
    }
    titles = [f"{slug(name)}: {what}" for name in names for what in ("error", "plans/s")]
    panels: dict[str, Any] = {"titles": titles, "columns": 2, "height": 2.6, "width": 3.6}
    with picture(report, "calls", CALLS, **panels) as axes:
        for (left, right), (_, _, grid) in zip(
            zip(axes[::2], axes[1::2], strict=True), results.values(), strict=True
        ):
            for label, arms in series.items():
                arms = sorted(arms, key=calls)
                at = [calls(arm) for arm in arms]
                sweep(left, at, [grid[arm]["all"] for arm in arms], label, colours=OWN)
                sweep(right, at, [[rate(config, grid[arm])] for arm in arms], label, colours=OWN)
            left.set(xscale="log", yscale="log", xlabel="network calls", ylabel="squared error")
            right.set(xscale="log", yscale="log", xlabel="network calls", ylabel="plans/s")
    with picture(report, "training", TRAINING, titles=[slug(n) for n in names], **size) as axes:
        for ax, (_, training, _) in zip(axes, results.values(), strict=True):
            for loss in ("plan_loss", "student_loss", "inverse_loss"):
                steps, values = training.curve(loss)
                curve_with_band(ax, steps, values, loss.replace("_", " "))
            ax.set(yscale="log", xlabel="gradient steps", ylabel="loss")
