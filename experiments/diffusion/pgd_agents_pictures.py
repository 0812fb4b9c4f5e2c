"""Pictures of `pgd_agents`: intervals by source, sweeps of the regulariser, training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxrl_rollouts.offline.study.model_based import Setting, behaviour, slug
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report

from ..kit.colours import colour
from ..kit.draw import curve_with_band, intervals
from .pgd_agents_best import Grid, best_by_others, sweep
from .pgd_agents_config import Config


def _panels(
    config: Config, grids: Mapping[str, Grid], width: float
) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """A figure with a row per dataset and a column per agent, by both."""
    pairs = [(name, agent) for name in grids for agent in config.agents]
    made, axes = figure(
        len(grids), len(config.agents), height=2.3, width=width,
        titles=[f"{slug(name)}, {agent}" for name, agent in pairs],
    )  # fmt: skip
    return made, dict(zip(pairs, axes, strict=True))


def draw_intervals(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    made, panels = _panels(config, grids, 3.6)
    for (name, agent), ax in panels.items():
        rows = {}
        for source in config.sources:
            returns = sweep(grids[name], config, agent, source)
            rows[source] = returns[0]
            rows[f"{source}, best"] = best_by_others(returns)
        intervals(ax, rows, xlabel="return")
        ax.axvline(behaviour(settings[name]).mean(), color="black", linestyle="--", linewidth=0.8)
    report.picture(
        "sources", made,
        "Return by source of data, at the agent's default regulariser and at the best one of that "
        "source (chosen on the other seeds). Bars: 95 % bootstrap interval of the interquartile "
        "mean; dots: seeds; dashed: the behaviour that made the real data.",
    )  # fmt: skip


def draw_sweeps(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    made, panels = _panels(config, grids, 3.4)
    for (name, agent), ax in panels.items():
        labels = list(config.regularisers(agent))
        at = np.arange(len(labels))
        for source in config.sources:
            returns = sweep(grids[name], config, agent, source)
            curve_with_band(ax, at, returns.T, source, colour_name=colour(source))
        ax.axhline(behaviour(settings[name]).mean(), color="black", linestyle="--", linewidth=0.8)
        ax.set_xticks(at, [label.replace(", ", "\n") for label in labels])
        ax.set_xlim(-0.3, len(labels) - 0.7)
        ax.set_ylabel("return")
    legend(made, list(panels.values()))
    report.picture(
        "sweeps", made,
        "Return over the agent's regulariser (weaker to the right) for every source of data. "
        "Dashed: the behaviour that made the real data.",
    )  # fmt: skip


def draw_training(report: Report, config: Config, grids: Mapping[str, Grid]) -> None:
    made, panels = _panels(config, grids, 3.4)
    for (name, agent), ax in panels.items():
        default = next(iter(config.regularisers(agent)))
        for source in config.sources:
            at, returns = grids[name][agent, source, default].curve
            curve_with_band(ax, at * config.updates, returns, source, colour_name=colour(source))
        ax.set_xlabel("gradient steps")
        ax.set_ylabel("return")
    legend(made, list(panels.values()))
    report.picture("training", made, "Return while training, at the agents' default regulariser.")
