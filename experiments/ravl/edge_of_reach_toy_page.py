"""Tables, claims and pictures of `edge_of_reach_toy`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from jaxrl_rollouts.offline.environments.plane import GOAL, PLANE, START, ValueGrid, optimal_return
from jaxrl_rollouts.reports.report import Report

from ..kit.claims import claims
from ..kit.colours import colour
from ..kit.draw import curves, level, picture
from ..kit.grid import Grid
from .edge_of_reach_toy_cells import HALF, POINTS, Config, Setting
from .plane import Reach

SOURCE = "Sims et al. 2024 (arXiv 2402.12527), simple environment"
COLUMNS = {
    "return, % of optimum": "percent",
    "estimated value": "estimated_value",
    "true value": "true_value",
    "spread within reach": "spread_within",
    "spread at the edge": "spread_edge",
    "mean - min within reach": "gap_within",
    "mean - min at the edge": "gap_edge",
    "edge states in the buffer, %": lambda cell: 100.0 * cell["edge_share"],
}
IMPOSSIBLE, REACHED = "#D55E00", "#dbe9f4"


def make_report(report: Report, config: Config, setting: Setting, grid: Grid) -> Report:
    """Fill `report` with everything the run has to say."""
    for (method, dynamics), cell in grid.items():
        name = f"{method}, {dynamics} dynamics"
        report.number(f"return: {name}", cell["percent"], "% of the optimum")
        report.number(f"estimated value: {name}", cell["estimated_value"])
    report.table("after training", grid.rows(COLUMNS))
    discount = config.agent.discount
    starts = PLANE.observe(PLANE.reset(jax.random.key(config.seed), 4096))
    at_start = float(np.mean(optimal_return(starts, discount=discount, horizon=None)))
    best = 1.0 / (1.0 - discount)
    report.number("V* at the start states", at_start)
    report.number("highest V* anywhere", best)
    add_claims(report, grid, best)
    draw_reach(report, setting)
    draw_training(report, grid, at_start)
    draw_spread(report, grid.at(dynamics="true"))
    draw_maps(report, setting, grid.at(dynamics="true"))
    report.note(
        "With true dynamics the penalties of MOPO and MOBILE are zero: they are base, exactly, and "
        "are not trained a second time."
    )
    report.note(
        "Edge states: Chebyshev distance from the data in (k - 1, k]. The oracle patch replaces "
        "the bootstrapped value of those next states by V* (dynamic programming); nothing else "
        "differs from base. Estimated value: mean over critics at the start states; true value: "
        "measured discounted return of the same policy over 600 steps."
    )
    report.note(
        f"{config.epochs * config.rollouts.updates_per_epoch} updates per run, all seeds of a run "
        f"vmapped. MOPO's lambda is {config.methods.mopo.penalty}; true_dynamics sweeps it."
    )
    return report


def add_claims(report: Report, grid: Grid, best: float) -> None:
    """The paper's, with true dynamics and, where they were trained, with learned ones."""
    claim = claims(report, SOURCE)
    base, patched, ravl = (grid[name, "true"] for name in ("base", "oracle patch", "ravl"))
    # fmt: off
    claim("base fails with true dynamics", base["percent"], at_most=50,
          means="at most half of the optimal return")
    claim("base's values explode with true dynamics", base["estimated_value"],
          at_least=1.5 * best,
          means="promises at least 1.5 times what any policy can earn anywhere")
    claim("the oracle at edge states cures base", patched["percent"], at_least=95,
          means="near-optimal return once edge states alone have their true value")
    claim("the patched critics are calibrated", patched["estimated_value"] / patched["true_value"],
          between=(0.85, 1.15), means="estimated over true value close to 1")
    claim("RAVL is near-optimal with true dynamics", ravl["percent"], at_least=90,
          means="at least 90 % of the optimal return")
    claim("RAVL's values do not explode", ravl["estimated_value"], at_most=1.1 * best,
          means="no more than a policy can earn")
    claim("RAVL's critics disagree at the edge", ravl["spread_edge"] / ravl["spread_within"],
          at_least=2, means="spread at the edge at least twice the spread within reach")
    claim("RAVL's minimum is lower at the edge than base's", ravl["gap_edge"] / base["gap_edge"],
          at_least=1,
          means="mean minus minimum over critics at the edge exceeds that of two critics")
    claim("edge states are rare in the buffer", 100.0 * base["edge_share"], at_most=5,
          means="at most 5 % of the next states")
    if ("ravl", "learned") in grid:
        learned = grid["ravl", "learned"]["percent"]
        claim("RAVL is near-optimal with learned dynamics", learned, at_least=90,
              means="at least 90 % of the optimal return")
        claim("RAVL is better than base with learned dynamics",
              learned - grid["base", "learned"]["percent"], at_least=10,
              means="by at least 10 points of the optimal return")
    # fmt: on


def draw_training(report: Report, grid: Grid, best_at_start: float) -> None:
    """Return and promised value over training, with true and with learned dynamics."""
    kinds = list(dict.fromkeys(dynamics for _, dynamics in grid))
    titles = [f"{what}: {kind} dynamics" for kind in kinds for what in ("Return", "Promised value")]
    caption = (
        "Left: return of the mean action in the true environment. Right: what the critics promise "
        "at the start states; above the dashed line it is more than any policy can earn. Lines: "
        "interquartile mean over seeds, bands: 95 % bootstrap interval."
    )
    with picture(report, "training", caption, titles=titles, columns=2, sharex=True) as axes:
        for kind, left, right in zip(kinds, axes[::2], axes[1::2], strict=True):
            curves(left, grid.at(dynamics=kind), "percent")
            curves(right, grid.at(dynamics=kind), "estimated_value")
            left.set(ylabel="return, % of optimum", ylim=(-3, 106))
            level(left, 100, linewidth=0.9)
            level(right, best_at_start, "optimum", linewidth=0.9)
            right.set(yscale="log", ylabel="value at the start")
        for ax in axes[:-2]:
            ax.set_xlabel("")


def draw_spread(report: Report, grid: Grid) -> None:
    """Disagreement of the critics within reach and at the edge, and how rare edge states are."""
    caption = (
        "With true dynamics: critics disagree more at the edge of reach (solid) than within reach "
        "(dotted); only with many diverse critics does their minimum feel it."
    )
    titles = (
        "Critics' standard deviation",
        "Mean minus minimum over critics",
        "Edge states among next states",
    )
    with picture(report, "spread", caption, titles=titles, width=3.0) as axes:
        for ax, metric in zip(axes[:2], ("spread", "gap"), strict=True):
            curves(ax, grid, f"{metric}_edge")
            for method, cell in grid.items():
                within, shade = f"{metric}_within", colour(method)
                curves(ax, {"_": cell}, within, colour_name=shade, linestyle=":")
            ax.set_yscale("log")
        curves(axes[2], grid, "edge_share", scale=100)
        axes[2].set_ylabel("% of the buffer")
        for line, text in (("-", "at the edge"), (":", "within reach")):
            axes[0].plot([], [], color="black", linestyle=line, label=text)


def _on_grid(function: ValueGrid) -> np.ndarray:
    axis = jnp.linspace(-HALF, HALF, POINTS)
    return np.asarray(function(jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)))


def _plane_axes(ax: Axes, reach: Reach, *, outline: str = "black") -> None:
    """The square, the goal and the two outlines between which the edge states lie."""
    axis = np.linspace(-HALF, HALF, POINTS)
    levels = [reach.horizon - 1, reach.horizon]
    ax.contour(axis, axis, _on_grid(reach.distance).T, levels, colors=outline, linewidths=0.8)
    ax.plot(*GOAL, marker="*", color="white", markeredgecolor="black", markersize=11)
    ax.set(aspect="equal", xlim=(-HALF, HALF), ylim=(-HALF, HALF))
    ax.grid(visible=False)


def draw_reach(report: Report, setting: Setting) -> None:
    """Data, reach, edge, goal."""
    axis, reach = np.linspace(-HALF, HALF, POINTS), setting.reach
    k = reach.horizon
    grey = {"color": colour("data"), "marker": "o", "linestyle": "", "markersize": 3}
    star = {"marker": "*", "markeredgecolor": "black", "linestyle": "", "markersize": 11}
    within = f"reached in fewer than {k} steps:\nvalues are corrected"
    edge = f"edge: reached in {k} steps only;\nbootstrapped from, never updated"
    handles = [
        Line2D([], [], label="data (random actions)", **grey),
        Line2D([], [], label=within, color=REACHED, linewidth=7),
        Line2D([], [], label=edge, color=IMPOSSIBLE, linewidth=7),
        Line2D([], [], label="start states", color="black"),
        Line2D([], [], label="goal (centre of the reward)", color="white", **star),
    ]
    caption = f"The plane: data, and where {k} model steps from them can lead."
    with picture(report, "reach", caption, legend=False, width=5.4, height=4.2) as (ax,):
        distance = _on_grid(reach.distance)
        ax.contourf(axis, axis, distance.T, [-1, k - 1, k], colors=[REACHED, IMPOSSIBLE])
        points = np.asarray(setting.data.observations)[::4]
        ax.plot(*points.T, ".", color=colour("data"), markersize=1, rasterized=True)
        _plane_axes(ax, reach)
        square = START * np.array([[-1, -1, 1, 1, -1], [-1, 1, 1, -1, -1]])
        ax.plot(*square, color="black", linewidth=1.2)
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        ax.legend(handles=handles, fontsize=8, frameon=False, labelspacing=1.0, **beside)


def draw_maps(report: Report, setting: Setting, grid: Grid) -> None:
    """Values over the plane: base, patched base, RAVL, and the optimum."""
    names = {"base": "base", "oracle patch": "base + oracle at the edge", "ravl": "RAVL"}
    maps = {title: np.median(grid[method]["map"], axis=0) for method, title in names.items()}
    maps["V* (exact)"] = _on_grid(setting.optimum)
    palette = matplotlib.colormaps["viridis"].with_extremes(over=IMPOSSIBLE)
    axis, colours = np.linspace(-HALF, HALF, POINTS), Normalize(0, 100)
    caption = (
        "What the critics (their minimum, median over seeds, true dynamics) believe a state to be "
        "worth. White lines: edge of reach; star: goal."
    )
    with picture(report, "q_maps", caption, titles=list(maps), width=2.75, height=2.9) as axes:
        style = {"cmap": palette, "norm": colours, "shading": "nearest", "rasterized": True}
        for ax, values in zip(axes, maps.values(), strict=True):
            ax.pcolormesh(axis, axis, values.T, **style)
            _plane_axes(ax, setting.reach, outline="white")
            ax.set_xlabel(f"highest: {values.max():.0f}")
        for ax in axes[1:]:
            ax.set_yticklabels([])
        bar = axes[0].figure.colorbar(
            ScalarMappable(colours, palette), ax=axes, extend="max", shrink=0.85, pad=0.01
        )
        bar.set_label("value (orange: more than\nany policy can earn)")
