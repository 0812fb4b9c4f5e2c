"""Do long adaptive rollouts keep values honest where short ones overestimate?

Two tasks, each with data of low quality and an agent without pessimism: a plane where data end
before the goal, and a runner where falling ends episodes and the data are clumsy. Rollouts have a
fixed length or go on until the members disagree more than they do on the data (NEUBAY). Promised
value is compared with what the policy then earns. A reward penalty on the disagreement is the
conservative control.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from matplotlib.ticker import FixedLocator

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, stacked
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread_name

from ..catalogue import LISTINGS
from ..kit.draw import intervals
from . import neubay_horizon_cells as cells
from .neubay_horizon_cells import PlaneConfig, RunnerConfig

PAPER = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"
SOURCE = LISTINGS["neubay_horizon"].source
RUNNER_SOURCE = f"{PAPER}, ablations; thresholds from pilot runs"
TICKS = (0.0, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0)  # in best values, where values explode
BEST = 283.0  # the most an episode of the runner can bring


@dataclass(frozen=True)
class Config:
    """Which tasks, and the settings of each.

    Attributes:
        seed: of the random numbers; the same one gives the same numbers.
        tasks: `plane`, `runner`, or both.
        plane: the first task.
        runner: the second.
    """

    seed: int = 0
    tasks: tuple[Literal["plane", "runner"], ...] = ("plane", "runner")
    plane: PlaneConfig = field(default_factory=PlaneConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)

    def validate(self) -> None:
        if not self.tasks:
            raise ConfigError("tasks", self.tasks, "at least one")


def run(config: Config, context: RunContext) -> Report:
    """Fit, train every arm, compare promised with earned value."""
    seeds = min(getattr(config, task).seeds for task in config.tasks)
    report = Report.of(context, seeds)
    if "plane" in config.tasks:
        add_plane(report, config.plane, *cells.train_plane(config.plane, config.seed, context))
    if "runner" in config.tasks:
        add_runner(report, config.runner, *cells.train_runner(config.runner, config.seed, context))
    return report


def gap(cell: Cell) -> np.ndarray:
    """Promised minus earned value, `[seeds]`."""
    return cell["promised"] - cell["earned"]


def add_plane(report: Report, config: PlaneConfig, grid: Grid, best: float) -> None:
    """Everything about the plane; `best` is the most any policy can earn."""
    columns = {
        "mean length": "imagined_length",
        "return, % of the best": "percent",
        "earned": "earned",
        "promised": "promised",
        "promised - earned": gap,
        "promised, % of the best": lambda cell: 100.0 * cell["promised"] / best,
    }
    report.table("values", grid.rows(columns))
    add_clock(report, clock_rows(grid), "clock of the plane")
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
    claim, high = claims(report, SOURCE, grid.values()), f"adaptive {config.levels[-1]:g}"
    adaptive, fixed = grid[high], {h: grid[f"H {h}"] for h in config.fixed}
    short = [cell for h, cell in fixed.items() if 1 < h <= 10] or [fixed[config.fixed[0]]]
    # fmt: off
    claim("short rollouts promise more than they earn",
          np.stack([gap(cell) for cell in short], 1) / best, at_least=0.2,
          means="promised minus earned, as a share of the best value")
    claim("adaptive rollouts are calibrated", gap(adaptive) / best, between=(-0.2, 0.2),
          means="the same for rollouts that stop at the data's largest spread")
    claim("adaptive rollouts earn as much as the best fixed length",
          adaptive["percent"] - stacked(fixed.values(), "percent").max(1), at_least=-5,
          means="return in % of the best, minus that of each seed's best fixed length")
    if len(config.levels) > 1:
        shorter = grid[f"adaptive {config.levels[0]:g}"]
        claim("a higher quantile means longer rollouts",
              adaptive["imagined_length"] / shorter["imagined_length"], at_least=2, cells=(),
              means=f"length at {config.levels[-1]:g} over that at {config.levels[0]:g}")
    if config.penalties:
        penalised = grid[f"{high}, penalty {max(config.penalties):g}"]
        claim("a penalty makes values pessimistic", gap(penalised) / best, at_most=-0.1,
              means="promised minus earned, as a share of the best value")
    # fmt: on


def draw_plane(report: Report, grid: Grid, best: float) -> None:
    """Promised and earned value of every arm; above the line nobody can be."""
    caption = (
        "What the critics promise and what the policy earns; points are seeds, bars medians; "
        "dotted: the most any policy can earn, up to which the axis is linear."
    )
    kinds = (("promised", "#D55E00", -0.12), ("earned", "#0072B2", 0.12))
    with picture(report, "values", caption, width=6.4, height=3.4) as (ax,):
        for name, shade, shift in kinds:
            places, values = np.arange(len(grid)) + shift, stacked(grid.values(), name)
            bar = {"label": name, "color": shade, "markersize": 14, "markeredgewidth": 2}
            ax.plot(places, values.T, ".", color=shade, alpha=0.6)
            ax.plot(places, np.median(values, 0), "_", **bar)
        level(ax, best, "the most possible", linestyle=":", linewidth=1.0)
        if np.nanmax(np.abs(stacked(grid.values(), "promised"))) > 5 * best:
            ax.set_yscale("symlog", linthresh=best, linscale=0.8)
            ticks = (best * np.outer([-1, 1], TICKS) + 0.0).ravel().tolist()  # no minus 0
            ax.yaxis.set_major_locator(FixedLocator(ticks))
            ax.yaxis.set_major_formatter("{x:.0f}")
            ax.minorticks_off()
            ax.set_ylim(
                bottom=1.2 * min(np.nanmin(stacked(grid.values(), "promised")), -0.2 * best)
            )
        ax.set_xticks(range(len(grid)), list(grid), rotation=35, ha="right")
        ax.set_ylabel("discounted value from the start")


def add_runner(report: Report, config: RunnerConfig, grid: Grid, data: Transitions) -> None:
    """Everything about the runner."""
    columns = {
        "median length": "horizon_median",
        "return": "score",
        "promised": "promised",
        "earned": "earned",
        "promised - earned": gap,
    }
    report.table("runner", grid.rows(columns))
    add_clock(report, clock_rows(grid), "clock of the runner")
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
    claim, adaptive = claims(report, RUNNER_SOURCE, grid.values()), grid["adaptive 1"]
    low, shortest = min(config.levels), min(config.fixed)
    mild, strict = min(config.penalties), max(config.penalties)
    longer, shorter = (
        grid[name].curve("horizon_median")[1].mean(1)
        for name in ("adaptive 1", f"adaptive {low:g}")
    )
    value = max(abs(float(np.mean(adaptive["earned"]))), 1.0)
    # fmt: off
    claim("runner: the largest disagreement lets rollouts go on",
          longer / np.maximum(shorter, 1.0), at_least=4, statistic="min", cells=(),
          means=f"median length at 1 over that at {low:g}, every seed")
    claim(f"runner: adaptive rollouts earn as much as {shortest} step",
          adaptive["score"] - grid[f"H {shortest}"]["score"], at_least=0, statistic="mean",
          means="return minus that of the shortest fixed rollouts, seed by seed")
    claim(f"runner: a penalty of {strict:g} costs 100 of return",
          adaptive["score"] - grid[f"penalty {strict:g}"]["score"], at_least=100,
          statistic="mean", means="Bayesian minus conservative on low-quality data, seed by seed")
    claim("runner: a penalty makes values pessimistic",
          gap(grid[f"penalty {mild:g}"]) - gap(adaptive), at_most=0,
          statistic="mean",
          means=f"promised minus earned with a penalty of {mild:g}, minus that without")
    claim("runner: adaptive rollouts are calibrated", gap(adaptive) / value,
          between=(-0.2, 0.2), statistic="mean",
          means="promised minus earned, as a share of what is earned")
    # fmt: on


def draw_runner(report: Report, grid: Grid) -> None:
    """Returns, and promised minus earned value, of every arm."""
    caption = (
        "Return of the last evaluations, and how much more the critics promise than the policy "
        "earns from the data's states and actions. "
        f"Lines: means; bars: {spread_name(report.seeds)}."
    )
    style = {"titles": ("Return", "Promised minus earned"), "title": "Runner", "legend": False}
    with picture(report, "runner", caption, height=3.0, **style) as (left, right):
        scores = {name: cell["score"] for name, cell in grid.items()}
        gaps = {name: gap(cell) for name, cell in grid.items()}
        intervals(left, scores, statistic="mean", xlabel=f"return (of {BEST:.0f})")
        intervals(right, gaps, statistic="mean", xlabel="discounted value")
        right.axvline(0.0, color="black", linewidth=0.8, linestyle=":")


_TINY = replace(NEUBAY_ENSEMBLE, members=3, elites=2, hidden=(16,), max_epochs=1)
_SMOKE = Config(
    plane=PlaneConfig(
        seeds=2, rows=600, fixed=(1, 4), levels=(0.5, 1.0), penalties=(1.0,), longest=8,
        ensemble=_TINY, agent=SacConfig(hidden=(16,)), steps_per_epoch=80, updates_per_epoch=5,
        batch_size=16, epochs=2, evaluations=1, starts=8,
    ),
    runner=RunnerConfig(
        seeds=2, episodes=3, fixed=(1,), penalties=(1.0,), looks=1, last=1, plays=2,
        ensemble=_TINY,
        agent=replace(
            cells.AGENT, rollouts=4, updates_per_iteration=2, tape=256, capacity=1000,
            agent=replace(
                cells.AGENT.agent, memory=MemoryConfig("none", width=8), head=(8,), critics=2,
                steps=4,
            ),
        ),
    ),
)  # fmt: skip

# Ten time constants of the plane's critics; the runner's go 3.6.
_CPU = Config(plane=PlaneConfig(agent=SacConfig(hidden=(64, 64), polyak=0.02)))

EXPERIMENT = LISTINGS["neubay_horizon"].experiment(
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": _CPU},
    run=run,
)
