"""The edge-of-reach problem on a plane: shown, located by an oracle, and the effect of RAVL.

The data are single steps from a box, so that rollouts of k steps have a sharp edge: states that
are reached in exactly k steps, bootstrapped from and never updated. Dynamics are true: nothing but
the edge can be wrong, and penalties on the model's error (MOPO, MOBILE) are zero. Base fails; base
with the true value at those states, and at no others, does not. Whether RAVL's critics disagree
enough there depends on their number N, their diversity eta, and how many of the states that the
policy seeks lie at the edge: a map over the three.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from jaxrl_rollouts.compare.claims import add_clock, claims, clock_rows
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Grid
from jaxrl_rollouts.offline.environments import plane
from jaxrl_rollouts.offline.methods.model_based import Rollouts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .edge_of_reach_toy_cells import BASE, HARD, PATCHED, SQUARE, Config, optimum, train_all
from .plane import Reach

SOURCE = LISTINGS["edge_of_reach_toy"].source
COLUMNS = {
    "return, % of optimum": "percent",
    "estimated value": "estimated_value",
    "true value": "true_value",
    "least critic at the edge minus V*": "excess",
    "spread within reach": "spread_within",
    "spread at the edge": "spread_edge",
    "edge states in the buffer, %": lambda cell: 100.0 * cell["edge_share"],
}
IMPOSSIBLE = "#D55E00"
CURED = 80.0  # % of the optimal return


def run(config: Config, context: RunContext) -> Report:
    """Train all methods, compare, plot."""
    report, longest = Report.of(context, config.seeds), config.horizons[-1]
    grid = train_all(config, context)
    starts = plane.PLANE.observe(plane.PLANE.reset(jax.random.key(config.seed), 4096))
    best = 1.0 / (1.0 - config.agent.discount)
    report.number("V* at the start states", float(optimum(config, starts).mean()))
    report.number("highest V* anywhere", best)
    report.table("after training", grid.rows(COLUMNS))
    add_clock(report, clock_rows({f"{arm}, k {k}": cell for (arm, k), cell in grid.items()}))
    add_claims(report, grid, longest, best)
    draw_values(report, config, grid.at(k=longest))
    report.note(
        "Dynamics are true, so the penalties of MOPO and MOBILE are zero: they are base, exactly, "
        "and are not trained a second time."
    )
    report.note(
        f"Data: {config.rows:,} single steps from a box of half-width {config.half_width:g}. Edge "
        "states: Chebyshev distance from the box in (k - 1, k]. The oracle patch replaces the "
        "bootstrapped value of those next states by V*, which is known; nothing else differs from "
        "base. Estimated value: mean over critics at the start states; true value: measured "
        "discounted return of the same policy over 600 steps. Least critic at the edge: the mean "
        "over edge states of the minimum over critics, against the mean of V* there."
    )
    return report


def add_claims(report: Report, grid: Grid, k: int, best: float) -> None:
    """The diagnosis in every seed at the longest horizon; where RAVL cures, and why."""
    claim = claims(report, SOURCE)
    plain, patched = grid[BASE, k], grid[PATCHED, k]
    many = [(point, cell) for point, cell in grid.items() if point[0] not in (BASE, PATCHED)]
    ratio = patched["estimated_value"] / patched["true_value"]
    worst = {point: float(cell["percent"].min()) for point, cell in many}
    top = max(worst, key=lambda point: worst[point])
    # fmt: off
    claim(f"k = {k}: base fails in every seed", [plain["percent"].max()], at_most=50,
          cells=[plain], means="the best seed has at most half of the optimal return")
    claim(f"k = {k}: base's values explode in every seed", [plain["estimated_value"].min() / best],
          at_least=1.5, cells=[plain],
          means="the lowest promise is at least 1.5 times what any policy can earn anywhere")
    claim(f"k = {k}: the oracle at the edge alone cures base in every seed",
          [patched["percent"].min()], at_least=CURED, cells=[patched],
          means="the worst seed has so much of the optimal return")
    claim(f"k = {k}: the patched critics are calibrated in every seed",
          [ratio[np.abs(ratio - 1.0).argmax()]], between=(0.85, 1.25), cells=[patched],
          means="estimated over true value, of the seed that is farthest from 1")
    claim("RAVL cures somewhere, in every seed", [worst[top]], at_least=CURED,
          cells=[cell for _, cell in many],
          means=f"the worst seed of its best cell ({top[0]} at k = {top[1]})")
    hard = [cell for (_, horizon), cell in many if horizon == k]
    agree = [(cell["excess"] < 0) == (cell["percent"] >= CURED) for _, cell in many]
    claim(f"k = {k}: RAVL's critics disagree at the edge",
          [min((c["spread_edge"] / c["spread_within"]).min() for c in hard)], at_least=2,
          means="the least ratio of spreads, at the edge over within reach, of all seeds")
    claim("RAVL is cured where its least critic is below V* at the edge",
          [100.0 * np.mean(np.concatenate(agree))], at_least=80,
          cells=[cell for _, cell in many],
          means="per cent of all seeds of RAVL of which both or neither is true")
    # fmt: on


def _plane_axes(ax: Axes, reach: Reach) -> np.ndarray:
    """The square, the goal and the two outlines of the edge; returns what both axes go along."""
    axis, k = np.asarray(SQUARE[:, 0, 0]), reach.horizon
    distance = np.asarray(reach.distance(SQUARE)).T
    ax.contour(axis, axis, distance, [k - 1, k], colors="white", linewidths=0.8)
    star = {"marker": "*", "markeredgecolor": "black", "markersize": 11, "linestyle": ""}
    ax.plot(*plane.GOAL, color="white", label="goal (centre of the reward)", **star)
    ax.set(aspect="equal", xlim=(axis[0], axis[-1]), ylim=(axis[0], axis[-1]))
    ax.grid(visible=False)
    return axis


def draw_values(report: Report, config: Config, grid: Grid) -> None:
    """Values over the plane: base, patched base, RAVL's last arm, and the optimum."""
    last, reach = list(grid)[-1], Reach(config.half_width, config.horizons[-1])
    names = {BASE: "MBPO", PATCHED: "MBPO, true values at the edge", last: last.upper()}
    maps = {title: np.median(grid[method]["map"], axis=0) for method, title in names.items()}
    maps["optimum"] = optimum(config, SQUARE)
    palette = matplotlib.colormaps["viridis"].with_extremes(over=IMPOSSIBLE)
    style = {"cmap": palette, "norm": Normalize(0, 100.5), "shading": "nearest", "rasterized": True}
    caption = (
        "Estimated value of a state: minimum over critics, median over seeds. White "
        "lines: edge of reach; star: goal."
    )
    titles, size = list(maps), {"width": 2.75, "height": 3.2, "legend": False}
    with picture(report, "q_maps", caption, titles=titles, **size) as axes:
        for ax, values in zip(axes, maps.values(), strict=True):
            axis = _plane_axes(ax, reach)
            shown = ax.pcolormesh(axis, axis, values.T, **style)
            ax.set_xlabel(f"x (highest value: {values.max():.3g})")
        axes[0].set_ylabel("y")
        for ax in axes[1:]:
            ax.set_yticklabels([])
        bar = axes[0].figure.colorbar(shown, ax=axes, extend="max", shrink=0.85, pad=0.01)
        bar.set_label("estimated value (orange:\nmore than any policy earns)")


EXPERIMENT = LISTINGS["edge_of_reach_toy"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2,
            rows=200,
            epochs=2,
            evaluations=2,
            starts=8,
            probes=64,
            agent=replace(HARD, hidden_dims=(16,)),
            horizons=(2, 4),
            ravl=((3, 1.0),),
            rollouts=Rollouts(batch_size=100, every=5),
            batch_size=32,
        ),
        "cpu": Config(seeds=6, epochs=80, evaluations=16, ravl=((10, 1.0),)),
        "paper": Config(seeds=10, epochs=200),
    },
    run=run,
)
