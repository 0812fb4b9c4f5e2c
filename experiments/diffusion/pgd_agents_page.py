"""Tables, claims and pictures of `pgd_agents`: sources against each other, default and best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.experiments.kit.claims import claims
from jaxrl_rollouts.experiments.kit.colours import colour
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves, intervals, level, picture
from jaxrl_rollouts.experiments.kit.grid import Cell, Grid
from jaxrl_rollouts.experiments.kit.offline_pages import note_environments
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour, slug
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .pgd_agents_cells import Config

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356; Lu et al. 2023 (SynthER), arXiv 2303.06614"
PILOT = "a pilot of two seeds on the acrobot"
BY_SOURCE = (
    "Return by source of data, at the agent's default regulariser and at the best one of that "
    "source (chosen on the other seeds). Bars: 95 % bootstrap interval of the interquartile "
    "mean; dots: seeds; dashed: the behaviour that made the real data."
)
SWEPT = (
    "Return over the agent's regulariser (weaker to the right) for every source of data. "
    "Dashed: the behaviour that made the real data."
)
Settings = Mapping[str, Setting]  # by dataset
Grids = Mapping[str, Grid]  # by dataset: agent, source, regulariser


def best_by_others(returns: np.ndarray) -> np.ndarray:
    """What each seed earns with the setting that is best on the mean of the *other* seeds.

    The maximum over settings of a mean would reward noise; this does not.

    Args:
        returns: `[settings, seeds]`; NaN (a diverged cell) is never chosen if anything else is
            left.

    Returns:
        `[seeds]`; a single seed takes its own best.
    """
    count = returns.shape[1]
    if count == 1:
        return np.nan_to_num(returns, nan=-np.inf).max(0)
    others = (returns.sum(1, keepdims=True) - returns) / (count - 1)
    chosen = np.where(np.isnan(others), -np.inf, others).argmax(0)
    return returns[chosen, np.arange(count)]


def sweep(grid: Grid, config: Config, agent: str, source: str) -> np.ndarray:
    """Returns of all regularisers, `[settings, seeds]`, the default first."""
    labels = config.regularisers(agent)
    return np.stack([grid[agent, source, label]["return"] for label in labels])


def page(report: Report, config: Config, settings: Settings, grids: Grids) -> None:
    """Everything below, and what a reader has to know."""
    earned = {name: float(behaviour(setting).mean()) for name, setting in settings.items()}
    report.table("cells", [row for name in grids for row in cells(name, grids[name], earned[name])])
    best = [row for name, grid in grids.items() for row in compared(config, name, grid)]
    report.table("default and best", best)
    for name, grid in grids.items():
        for agent in config.agents:
            add_claims(report, config, name, agent, grid)
    draw(report, config, grids, earned)
    report.note(
        "One denoiser of each kind per dataset, shared by all seeds; SynthER's and the unguided "
        "rows are drawn once and shared, guided ones are every seed's own. A batch on a synthetic "
        f"source has {config.real_share:.3g} real rows."
    )
    report.note(
        "Best: for every seed the regulariser that is best on the mean of the other seeds. "
        "Action gap: mean squared distance of a source's actions from those of the final policy."
    )
    if any(name.startswith("jr/") for name in settings):
        report.note(
            "jr/* are real MuJoCo transitions in D4RL's layout, not D4RL's files. Scores use "
            "D4RL's reference returns and must not be compared with D4RL tables."
        )
    note_environments(report, settings.values())


def cells(name: str, grid: Grid, earned: float) -> list[dict[str, Any]]:
    """The behaviour, and every agent by source by regulariser; columns that exist."""

    def dynamics(cell: Cell) -> float | None:
        return float(cell["dynamics"].mean()) if "dynamics" in cell.extra else None

    columns = {
        "return": "return",
        "score": lambda cell: normalised_score(name, cell["return"]),
        "estimated value": "estimated_value",
        "true value": "discounted_return",
        "action gap": "gap",
        "terminations": lambda cell: float(cell["terminations"].mean()),
        "dynamics error": dynamics,
    }
    rows = [{"source": "behaviour", "return": earned}, *grid.rows(columns)]
    return [{"dataset": name} | {k: v for k, v in row.items() if v is not None} for row in rows]


def compared(config: Config, name: str, grid: Grid) -> list[dict[str, Any]]:
    """Every source at the default regulariser and at its best."""
    rows: list[dict[str, Any]] = []
    for agent in config.agents:
        labels = list(config.regularisers(agent))
        for source in config.sources:
            returns = sweep(grid, config, agent, source)
            best = best_by_others(returns)
            means = np.where(np.isnan(returns.mean(1)), -np.inf, returns.mean(1))
            row = {"dataset": name, "agent": agent, "source": source}
            row |= {"default": summarize(returns[0]), "best": summarize(best)}
            row["best regulariser"] = labels[int(means.argmax())]
            score = normalised_score(name, best)
            rows.append(row if score is None else row | {"best score": summarize(score)})
    return rows


def add_claims(report: Report, config: Config, name: str, agent: str, grid: Grid) -> None:
    """What is expected of one agent on one dataset; the acrobot's are bands of a pilot."""
    returns = {source: sweep(grid, config, agent, source) for source in config.sources}
    default = {source: sweeps[0] for source, sweeps in returns.items()}
    pilot = name == "acrobot-broad" and agent == "td3_bc"
    source = PILOT if pilot else SOURCE
    claim = claims(report, source)

    def better(text: str, gain: np.ndarray, means: str, least: float = 0.0, **of: str) -> None:
        means = f"{means}, by {least:g} or more, seed by seed"
        claim(f"{agent}, {slug(name)}: {text}", gain, at_least=least, means=means, **of)

    if {"guided", "unguided"} <= set(returns):
        gain, least = default["guided"] - default["unguided"], 20.0 if pilot else 0.0
        text = "guided beats unguided at the default"
        better(text, gain, "return above that on unguided", least)
    if {"guided", "real"} <= set(returns):
        gain, least = default["guided"] - default["real"], 10.0 if pilot else 0.0
        text = "guided beats real at the default"
        better(text, gain, "return above that on real data", least)
        gain = best_by_others(returns["guided"]) - best_by_others(returns["real"])
        text, means = (
            "guided beats real, best against best",
            "the same with each source's own best regulariser",
        )
        better(text, gain, means, source=SOURCE)
        if len(returns["real"]) > 1:
            gain = best_by_others(returns["real"][1:]) - default["guided"]
            text = "a weaker regulariser on real data does what guidance does"
            means = "best other regulariser on real data against guided data at the default"
            better(text, gain, means, source=PILOT)
    if pilot and {"unguided", "real"} <= set(returns):
        gain, text = default["real"] - default["unguided"], "unguided is no better than real"
        better(text, gain, "return on real data above that on unguided at the default")
    if {"synther", "real"} <= set(returns):
        real, synther = (normalised_score(name, default[s]) for s in ("real", "synther"))
        if real is not None and synther is not None:
            text = "SynthER's data are as good as the real ones"
            means = "score on SynthER's data above that on real ones at the default"
            better(text, synther - real, means, -5.0, source=SOURCE)


def draw(report: Report, config: Config, grids: Grids, earned: Mapping[str, float]) -> None:
    """A row of panels per dataset, a column per agent."""
    pairs = [(name, agent) for name in grids for agent in config.agents]
    titles = [f"{slug(name)}, {agent}" for name, agent in pairs]
    panels: dict[str, Any] = {"titles": titles, "columns": len(config.agents), "height": 2.3}
    with picture(report, "sources", BY_SOURCE, **panels, width=3.6, legend=False) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            rows = {}
            for source in config.sources:
                returns = sweep(grids[name], config, agent, source)
                rows |= {source: returns[0], f"{source}, best": best_by_others(returns)}
            intervals(ax, rows, xlabel="return")
            ax.axvline(earned[name], color="black", linestyle="--", linewidth=0.8)
    with picture(report, "sweeps", SWEPT, **panels, width=3.4) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            labels = list(config.regularisers(agent))
            at = np.arange(len(labels))
            for source in config.sources:
                returns = sweep(grids[name], config, agent, source).T
                curve_with_band(ax, at, returns, source, colour_name=colour(source))
            level(ax, earned[name])
            ax.set_xticks(at, [label.replace(", ", "\n") for label in labels])
            ax.set(xlim=(-0.3, len(labels) - 0.7), ylabel="return")
    if config.evaluations == 1:
        return
    caption = "Return while training, at the agents' default regulariser."
    with picture(report, "training", caption, **panels, width=3.4) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            default = next(iter(config.regularisers(agent)))
            cells = {s: grids[name][agent, s, default] for s in config.sources}
            curves(ax, cells, "return")
            ax.set_ylabel("return")
