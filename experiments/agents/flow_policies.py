"""Flow policies in SAC beside its normal one: two peaks, gradients over training, returns.

A flow's few steps can end in several places, a tanh-squashed normal ends in one. Which peaks of a
bandit each keeps, how steep the policy's gradient becomes while it learns, and what the three earn
in simulators and on data, at equal steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.offline.study import page
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import curve_with_band
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .flow_policies_cells import BANDIT, GPU, NEAR, PEAK, SMOKE, Config, Trained, train_all

SOURCE = LISTINGS["flow_policies"].source
LAST, LOOKS = 0.2, 3  # share of a training over which gradients are read, looks at the return
BOTH, MOST = 0.3, 0.8  # mass at each peak, share of seeds
RATIO = 3.0
COLOURS = {"gaussian": "#777777", "plain": "#0072B2", "gated": "#D55E00"}


def steepness(cell: Cell) -> np.ndarray:
    """95 % quantile of the norm of the policy's gradient over the last fifth, `[seeds]`."""
    if cell.diverged:
        return cell["actor_gradient"]
    return quantiles(cell, parts=round(1 / LAST))[1][:, -1]


def quantiles(cell: Cell, parts: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Gradient steps `[parts]` and 95 % quantiles of the norm within each part, `[seeds, parts]`.

    A record is the mean over the gradient steps between two blocks of acting: one, on the bandit.
    """
    steps, norms = cell.curve("actor_gradient")
    pieces = np.array_split(np.arange(len(steps)), min(parts, len(steps)))
    ends = np.array([steps[piece[-1]] for piece in pieces])
    return ends, np.stack([np.quantile(norms[:, piece], 0.95, axis=1) for piece in pieces], 1)


def least(cell: Cell) -> np.ndarray:
    """Mass at the peak that has less, after training, `[seeds]`."""
    return cell["mass", :, -1].min(-1) if not cell.diverged else cell["mass"]


late = functools.partial(page.late, looks=LOOKS)


def run(config: Config, context: RunContext) -> Report:
    """Train everything, compare."""
    report = Report.of(context, config.most_seeds)
    trained = train_all(config, context)
    if trained.bandit is not None:
        tell_bandit(report, config, trained.bandit)
        draw_bandit(report, config, trained.bandit)
    if trained.bandit is not None or trained.online is not None:
        draw_gradients(report, config, trained)
    if trained.online is not None or trained.offline is not None:
        tell_returns(report, config, trained)
        draw_returns(report, config, trained)
    report.note(
        f"Flows take {config.flow_steps} steps; their target entropy is that of a path whose steps "
        f"have noise of exp({config.with_actor(config.agent, 'plain').actor.log_std:g}). "
        "Evaluations play the tanh of the mean, and of a flow where it takes the mean of its noise."
    )
    return report


def tell_bandit(report: Report, config: Config, grid: Grid) -> None:
    """Masses at the peaks and gradients, at every rate."""
    columns: dict[str, Callable[[Cell], Any]] = {
        "least mass at a peak": least,
        "seeds with both": lambda cell: float((least(cell) >= BOTH).mean()),
        "mass at both": lambda cell: _masses(cell).sum(-1),
        "reward": lambda cell: cell["paid"],
        "alpha": lambda cell: cell["alpha"],
        "gradient, 95 % quantile": steepness,
    }
    report.table("bandit", grid.rows(columns))
    claim = claims(report, SOURCE)
    usual = min(config.bandit.rates)
    for kind in config.kinds:
        both = (least(grid[kind, usual]) >= BOTH).astype(float)
        if kind == "gaussian":
            bound: dict[str, float] = {"at_most": 1 - MOST}
        else:
            bound = {"at_least": MOST}
        claim(
            "a normal policy keeps one peak" if kind == "gaussian" else f"{kind}: both peaks kept",
            both, **bound, statistic="mean",
            means=f"share of seeds with {BOTH:g} of the actions within {NEAR:g} of each peak",
        )  # fmt: skip
    for rate in config.bandit.rates if {"plain", "gated"} <= {*config.kinds} else ():
        claim(
            f"bandit, rate {rate:g}: a gate keeps gradients smaller",
            steepness(grid["plain", rate]) / steepness(grid["gated", rate]),
            at_least=RATIO,
            means="plain over gated, 95 % quantiles of the norm over the last fifth",
        )


def _masses(cell: Cell) -> np.ndarray:
    """At each peak after training, `[seeds, 2]`."""
    return np.full((cell.seeds, 2), np.nan) if cell.diverged else cell["mass", :, -1]


def places(config: Config, trained: Trained) -> Iterator[tuple[str, Grid]]:
    """Where returns were measured, and the policies there."""
    if trained.online is not None:
        for name in config.environments:
            yield name, trained.online.at(environment=name)
    if trained.offline is not None:
        yield f"{config.method} on data", trained.offline


def tell_returns(report: Report, config: Config, trained: Trained) -> None:
    """What every policy earns, and flows less the normal one."""
    rows, clock = [], []
    claim = claims(report, SOURCE)
    for place, grid in places(config, trained):
        columns: dict[str, Callable[[Cell], Any]] = {
            "return": late,
            "gradient, 95 % quantile": steepness,
            "alpha": lambda cell: cell["alpha"],
            "seconds": lambda cell: cell.seconds,
        }
        if place in config.environments:
            rows += [{"where": place} | row for row in grid.rows(columns)]
        else:
            columns = {name: columns[name] for name in ("return", "seconds")}
            report.table("offline", grid.rows(columns))
        clock += clock_rows(grid, where=place)
        for kind in config.kinds[1:]:
            claim(
                f"{place}: {kind} flow at least as good as a normal policy",
                late(grid[kind]) - late(grid["gaussian"]),
                at_least=0,
                means="difference of returns at equal steps, seed by seed",
            )
    if rows:
        report.table("returns", rows)
    add_clock(report, clock)
    report.note(
        "Returns are compared at equal steps, where all are as old: verdicts do not wait for the "
        f"clock. They are means of the last {LOOKS} evaluations."
    )


def draw_bandit(report: Report, config: Config, grid: Grid) -> None:
    """Actions after training, and masses over it."""
    usual, titles = min(config.bandit.rates), ("Actions at the end", "Mass at the lesser peak")
    caption = (
        f"Bandit at a rate of {usual:g}. Left: density of all seeds' actions, dashed where the "
        "peaks are. Right: mass at the peak that has less, over training; dashed the threshold."
    )
    with picture(report, "bandit", caption, titles=titles) as (left, right):
        for kind, cell in grid.at(rate=usual).trained.items():
            style = {"color": COLOURS[kind], "label": kind}
            bins = np.linspace(-1, 1, 81).tolist()
            left.hist(cell["actions"].ravel(), bins, density=True, histtype="step", **style)
            mass = cell["mass"].min(-1)
            every = config.bandit.updates // mass.shape[1]
            at = every * np.arange(1, mass.shape[1] + 1)
            curve_with_band(right, at, mass, kind, colours=COLOURS)
        for peak in (-PEAK, PEAK):
            left.axvline(peak, color="black", linestyle="--", linewidth=0.8)
        level(right, BOTH)
        left.set_xlabel("action")
        right.set_xlabel("gradient steps")


def draw_gradients(report: Report, config: Config, trained: Trained) -> None:
    """Norms over training, of the bandit at every rate and of the simulators."""
    panels: dict[str, Grid] = {}
    if trained.bandit is not None:
        rates = config.bandit.rates
        panels = {f"bandit, rate {rate:g}": trained.bandit.at(rate=rate) for rate in rates}
    if trained.online is not None:
        panels |= {name: trained.online.at(environment=name) for name in config.environments}
    caption = "Norm of the policy's gradient over training: 95 % quantiles within twentieths of it."
    with picture(report, "gradients", caption, titles=[*panels], columns=2) as axes:
        for ax, cells in zip(axes, panels.values(), strict=True):
            for kind, cell in cells.trained.items():
                curve_with_band(ax, *quantiles(cell), kind, colours=COLOURS)
            ax.set_yscale("log")
            ax.set_xlabel("gradient steps")
        axes[0].set_ylabel("norm")


def draw_returns(report: Report, config: Config, trained: Trained) -> None:
    """Learning curves."""
    shown = dict(places(config, trained))
    caption = "Return without noise while training; bands over seeds."
    with picture(report, "returns", caption, titles=[*shown]) as axes:
        for ax, cells in zip(axes, shown.values(), strict=True):
            for kind, cell in cells.trained.items():
                curve_with_band(ax, *cell.curve("return"), kind, colours=COLOURS)
            ax.set_xlabel("gradient steps")
        axes[0].set_ylabel("return")


EXPERIMENT = LISTINGS["flow_policies"].experiment(
    config_type=Config,
    presets={"smoke": SMOKE, "bandit": BANDIT, "cpu": Config(), "gpu": GPU},
    run=run,
)
