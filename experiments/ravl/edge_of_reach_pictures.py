"""Pictures of `edge_of_reach_toy`: the reach of the data, training, what critics believe."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from jaxrl_rollouts.offline.environments.plane import GOAL, START, ValueGrid
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report

from ..kit.colours import colour
from ..kit.draw import curve_with_band
from .edge_of_reach_cells import Cell, Config, Setting
from .plane import Reach, value_map

HALF, POINTS = 18.0, 109
IMPOSSIBLE = "#D55E00"
MAPPED = (("base", "true"), ("oracle patch", "true"), ("ravl", "true"))


def _on_grid(function: ValueGrid) -> np.ndarray:
    axis = jnp.linspace(-HALF, HALF, POINTS)
    return np.asarray(function(jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)))


def _plane_axes(ax: Axes, reach: Reach, *, outline: str = "black") -> None:
    """The square, the goal and the two outlines between which the edge states lie."""
    axis = np.linspace(-HALF, HALF, POINTS)
    levels = [reach.horizon - 1, reach.horizon]
    ax.contour(axis, axis, _on_grid(reach.distance).T, levels, colors=outline, linewidths=0.8)
    ax.plot(*GOAL, marker="*", color="white", markeredgecolor="black", markersize=11)
    ax.set_aspect("equal")
    ax.set_xlim(-HALF, HALF)
    ax.set_ylim(-HALF, HALF)
    ax.grid(visible=False)


def draw_reach(report: Report, setting: Setting) -> None:
    """Data, reach, edge, goal."""
    made, (ax,) = figure(width=5.4, height=4.2)
    axis, reach = np.linspace(-HALF, HALF, POINTS), setting.reach
    distance = _on_grid(reach.distance)
    k = reach.horizon
    ax.contourf(axis, axis, distance.T, [-1, k - 1, k], colors=["#dbe9f4", IMPOSSIBLE])
    points = np.asarray(setting.data.observations)[::4]
    ax.plot(*points.T, ".", color=colour("data"), markersize=1, rasterized=True)
    _plane_axes(ax, reach)
    square = START * np.array([[-1, -1, 1, 1, -1], [-1, 1, 1, -1, -1]])
    ax.plot(*square, color="black", linewidth=1.2)
    handles = [
        Line2D([], [], color=colour("data"), marker="o", linestyle="", markersize=3,
               label="data (random actions)"),
        Line2D([], [], color="#dbe9f4", linewidth=7, label=f"reached in fewer than {k} steps:\n"
               "values are corrected"),
        Line2D([], [], color=IMPOSSIBLE, linewidth=7, label=f"edge: reached in {k} steps only;\n"
               "bootstrapped from, never updated"),
        Line2D([], [], color="black", label="start states"),
        Line2D([], [], color="white", marker="*", markeredgecolor="black", linestyle="",
               markersize=11, label="goal (centre of the reward)"),
    ]  # fmt: skip
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8,
              frameon=False, labelspacing=1.0)  # fmt: skip
    report.picture("reach", made, f"The plane: data, and where {k} model steps from them can lead.")


def draw_training(
    report: Report, config: Config, cells: Mapping[tuple[str, str], Cell], best_at_start: float
) -> None:
    """Return and promised value over training, with true and with learned dynamics."""
    kinds = ("true", "learned") if config.learned else ("true",)
    titles = [f"{what}: {kind} dynamics" for kind in kinds for what in ("Return", "Promised value")]
    made, axes = figure(len(kinds), 2, sharex=True, titles=titles)
    for row, dynamics in enumerate(kinds):
        left, right = axes[2 * row : 2 * row + 2]
        for (method, kind), cell in cells.items():
            if kind != dynamics:
                continue
            for ax, metric in ((left, "percent"), (right, "estimated_value")):
                iterations, values = cell.trained.history.curve(metric)
                steps = iterations * config.rollouts.updates_per_epoch
                curve_with_band(ax, steps, values.T, method)
        left.set_ylabel("return, % of optimum")
        left.set_ylim(-3, 106)
        left.axhline(100, color="black", linestyle="--", linewidth=0.9)
        right.axhline(best_at_start, color="black", linestyle="--", linewidth=0.9, label="optimum")
        right.set_yscale("log")
        right.set_ylabel("value at the start")
    for ax in axes[-2:]:
        ax.set_xlabel("gradient steps")
    legend(made, axes)
    report.picture(
        "training", made,
        "Left: return of the mean action in the true environment. Right: what the critics promise "
        "at the start states; above the dashed line it is more than any policy can earn. Lines: "
        "interquartile mean over seeds, bands: 95 % bootstrap interval.",
    )  # fmt: skip


def draw_spread(report: Report, config: Config, cells: Mapping[tuple[str, str], Cell]) -> None:
    """Disagreement of the critics within reach and at the edge, and how rare edge states are."""
    made, axes = figure(
        1, 3, width=3.0, titles=("Critics' standard deviation", "Mean minus minimum over critics",
                                 "Edge states among next states"),
    )  # fmt: skip
    for method, dynamics in MAPPED:
        history = cells[method, dynamics].trained.history
        for ax, metric in zip(axes[:2], ("spread", "gap"), strict=True):
            for region, line in (("edge", "-"), ("within", ":")):
                iterations, values = history.curve(f"{metric}_{region}")
                steps = iterations * config.rollouts.updates_per_epoch
                curve_with_band(ax, steps, values.T, method if region == "edge" else "_",
                                colour_name=colour(method), linestyle=line)  # fmt: skip
        iterations, values = history.curve("edge_share")
        curve_with_band(axes[2], iterations * config.rollouts.updates_per_epoch, 100 * values.T,
                        method)  # fmt: skip
    for line, text in (("-", "at the edge"), (":", "within reach")):
        axes[0].plot([], [], color="black", linestyle=line, label=text)
    for ax in axes:
        ax.set_xlabel("gradient steps")
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[2].set_ylabel("% of the buffer")
    legend(made, axes)
    report.picture(
        "spread", made,
        "With true dynamics: critics disagree more at the edge of reach (solid) than within reach "
        "(dotted); only with many diverse critics does their minimum feel it.",
    )  # fmt: skip


def draw_maps(report: Report, setting: Setting, cells: Mapping[tuple[str, str], Cell]) -> None:
    """Values over the plane: base, patched base, RAVL, and the optimum."""
    maps: dict[str, np.ndarray] = {}
    for pair in MAPPED:
        values = value_map(cells[pair].agent, cells[pair].trained.state.agent, HALF, POINTS)
        maps[pair[0]] = np.median(values, axis=0)
    maps["V* (exact)"] = _on_grid(setting.optimum)
    names = {"oracle patch": "base + oracle at the edge", "ravl": "RAVL"}
    made, axes = figure(1, 4, width=2.75, height=2.9,
                        titles=[names.get(name, name) for name in maps])  # fmt: skip
    palette = matplotlib.colormaps["viridis"].with_extremes(over=IMPOSSIBLE)
    axis, colours = np.linspace(-HALF, HALF, POINTS), Normalize(0, 100)
    for ax, values in zip(axes, maps.values(), strict=True):
        ax.pcolormesh(axis, axis, values.T, cmap=palette, norm=colours, shading="nearest",
                      rasterized=True)  # fmt: skip
        _plane_axes(ax, setting.reach, outline="white")
        ax.set_xlabel(f"highest: {values.max():.0f}")
        if ax is not axes[0]:
            ax.set_yticklabels([])
    bar = made.colorbar(
        ScalarMappable(colours, palette), ax=axes, extend="max", shrink=0.85, pad=0.01
    )
    bar.set_label("value (orange: more than\nany policy can earn)")
    report.picture(
        "q_maps", made,
        "What the critics (their minimum, median over seeds, true dynamics) believe a state to be "
        "worth. White lines: edge of reach; star: goal.",
    )  # fmt: skip
