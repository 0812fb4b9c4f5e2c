"""Tables, claims and pictures of `horizon_overestimation`."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.reports.report import Report

from ..kit.claims import claims
from ..kit.draw import intervals, level, picture
from ..kit.grid import Cell, Grid, stacked
from .horizon_overestimation_cells import Arm, PlaneConfig, RunnerConfig

PAPER = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"
SOURCE = f"{PAPER}, figure 1"
RUNNER_SOURCE = f"{PAPER}, ablations; thresholds from pilot runs"
BEST = 283.0  # the most an episode of the runner can bring


def plane_gap(cell: Cell) -> np.ndarray:
    """Promised minus earned value at the end, `[seeds]`."""
    return cell["estimated_value"] - cell["true_value"]


def add_plane(report: Report, config: PlaneConfig, grid: Grid, best: float) -> None:
    """Everything about the plane; `best` is the most any policy can earn."""
    columns = {
        "mean length": "imagined_length",
        "return, % of the best": "percent",
        "earned": "true_value",
        "promised": "estimated_value",
        "promised - earned": plane_gap,
        "promised, % of the best": lambda cell: 100.0 * cell["estimated_value"] / best,
    }
    report.table("values", grid.rows(columns))
    add_plane_claims(report, config, grid, best)
    draw_plane(report, grid, best)
    report.note(
        f"No policy earns more than {best:.1f} (discounted, from the start states). Promised: mean "
        "of the critics under the policy's mean action; earned: the same policy for 600 steps in "
        f"the true environment. {config.epochs * config.updates_per_epoch} gradient steps, at "
        f"most {config.steps_per_epoch} imagined steps every {config.updates_per_epoch}."
    )


def add_plane_claims(report: Report, config: PlaneConfig, grid: Grid, best: float) -> None:
    """Fixed lengths against the last level's adaptive ones."""
    claim, low, high = claims(report, SOURCE), config.levels[0], config.levels[-1]
    longest = Arm(config.longest, high)
    adaptive = grid[longest.name]
    fixed = {horizon: grid[Arm(horizon).name] for horizon in config.fixed}
    short = [cell for h, cell in fixed.items() if 1 < h <= 10] or [fixed[config.fixed[0]]]
    # fmt: off
    claim("short rollouts promise more than they earn",
          np.stack([plane_gap(cell) for cell in short], 1) / best, at_least=0.2,
          means="promised minus earned, as a share of the best value")
    claim("adaptive rollouts are calibrated", plane_gap(adaptive) / best, between=(-0.2, 0.2),
          means="the same for rollouts that stop at the data's largest spread")
    claim("adaptive rollouts earn as much as the best fixed length",
          adaptive["percent"] - stacked(fixed.values(), "percent").max(1), at_least=-5,
          means="return in % of the best, minus that of each seed's best fixed length")
    if len(config.levels) > 1:
        shorter = grid[Arm(config.longest, low).name]
        claim("a higher quantile means longer rollouts",
              adaptive["imagined_length"] / shorter["imagined_length"], at_least=2,
              means=f"length at {high:g} over that at {low:g}")
    if config.penalties:
        strict = longest._replace(penalty=max(config.penalties))
        claim("a penalty makes values pessimistic", plane_gap(grid[strict.name]) / best,
              at_most=-0.1, means="promised minus earned, as a share of the best value")
    # fmt: on


def draw_plane(report: Report, grid: Grid, best: float) -> None:
    """Promised and earned value of every arm; above the line nobody can be."""
    caption = (
        "What the critics promise and what the policy earns; points are seeds, bars medians; "
        "dotted: the most any policy can earn, up to which the axis is linear."
    )
    kinds = (("estimated_value", "promised", "#D55E00"), ("true_value", "earned", "#0072B2"))
    with picture(report, "values", caption, width=6.4, height=3.4) as (ax,):
        for (metric, label, shade), shift in zip(kinds, (-0.12, 0.12), strict=True):
            places, values = np.arange(len(grid)) + shift, stacked(grid.values(), metric)
            style = {"color": shade, "label": label, "markersize": 14, "markeredgewidth": 2}
            ax.plot(places, values.T, ".", color=shade, alpha=0.6)
            ax.plot(places, np.median(values, 0), "_", **style)
        level(ax, best, "the most possible", linestyle=":", linewidth=1.0)
        promised = stacked(grid.trained.values(), "estimated_value")
        lowest, highest = promised.min(), promised.max()
        if np.abs(promised).max() > 5 * best:
            # Linear up to what is possible, logarithmic beyond.
            ax.set_yscale("symlog", linthresh=best, linscale=0.8)
            ax.set_ylim(min(1.3 * lowest, -0.1 * best), 1.3 * highest)
            ticks = best * np.array([-8, -4, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 8, 16, 32, 64])
            within = ticks[(lowest <= ticks) & (ticks <= max(highest, best))]
            ax.set_yticks(within, [f"{tick:.0f}" for tick in within])
            ax.minorticks_off()
        ax.set_xticks(range(len(grid)), list(grid), rotation=35, ha="right")
        ax.set_ylabel("discounted value from the start")


def runner_gap(cell: Cell) -> np.ndarray:
    """Promised minus earned value of the data's actions, `[seeds]`."""
    return cell["promised"] - cell["earned"]


def add_runner(report: Report, config: RunnerConfig, grid: Grid, data: Transitions) -> None:
    """Everything about the runner."""
    columns = {
        "median length": "horizon_median",
        "return": "score",
        "promised": "promised",
        "earned": "earned",
        "promised - earned": runner_gap,
    }
    report.table("runner", grid.rows(columns))
    add_runner_claims(report, config, grid)
    draw_runner(report, grid)
    ends = np.asarray(data.terminations | data.truncations)
    report.note(
        f"Runner: {len(ends)} transitions of {int(ends.sum())} clumsy episodes with a mean return "
        f"of {float(np.sum(data.rewards)) / int(ends.sum()):.0f}; {BEST:.0f} is possible. Promised "
        "and earned are discounted and from the data's states and actions."
    )


def add_runner_claims(report: Report, config: RunnerConfig, grid: Grid) -> None:
    """What was robust in a prototype of this task: five statements."""
    claim, adaptive = claims(report, RUNNER_SOURCE), grid["adaptive 1"]
    low, shortest = min(config.levels), min(config.fixed)
    mild, strict = min(config.penalties), max(config.penalties)
    longer, shorter = (
        grid[name].curve("horizon_median")[1].mean(1)
        for name in ("adaptive 1", f"adaptive {low:g}")
    )
    value = max(abs(float(np.mean(adaptive["earned"]))), 1.0)
    # fmt: off
    claim("runner: the largest disagreement lets rollouts go on",
          longer / np.maximum(shorter, 1.0), at_least=4, statistic="min",
          means=f"median length at 1 over that at {low:g}, every seed")
    claim(f"runner: adaptive rollouts earn as much as {shortest} step",
          adaptive["score"] - grid[f"H {shortest}"]["score"], at_least=0, statistic="mean",
          means="return minus that of the shortest fixed rollouts, seed by seed")
    claim(f"runner: a penalty of {strict:g} costs 100 of return",
          adaptive["score"] - grid[f"penalty {strict:g}"]["score"], at_least=100,
          statistic="mean", means="Bayesian minus conservative on low-quality data, seed by seed")
    claim("runner: a penalty makes values pessimistic",
          runner_gap(grid[f"penalty {mild:g}"]) - runner_gap(adaptive), at_most=0,
          statistic="mean",
          means=f"promised minus earned with a penalty of {mild:g}, minus that without")
    claim("runner: adaptive rollouts are calibrated", runner_gap(adaptive) / value,
          between=(-0.2, 0.2), statistic="mean",
          means="promised minus earned, as a share of what is earned")
    # fmt: on


def draw_runner(report: Report, grid: Grid) -> None:
    """Returns, and promised minus earned value, of every arm."""
    caption = (
        "Return of the last evaluations, and how much more the critics promise than the policy "
        "earns from the data's states and actions. Bars: 95 % intervals of the mean over seeds."
    )
    style = {"titles": ("Return", "Promised minus earned"), "title": "Runner", "legend": False}
    with picture(report, "runner", caption, height=3.0, **style) as (left, right):
        scores = {name: cell["score"] for name, cell in grid.items()}
        gaps = {name: runner_gap(cell) for name, cell in grid.items()}
        intervals(left, scores, statistic="mean", xlabel=f"return (of {BEST:.0f})")
        intervals(right, gaps, statistic="mean", xlabel="discounted value")
        right.axvline(0.0, color="black", linewidth=0.8, linestyle=":")
