"""Tables, claims and pictures of `pgd_agents`: sources against each other, default and best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.pictures import colour, curve_with_band, figure, intervals, legend
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.statistics import summarize

from ..study import Setting, behaviour, slug
from .pgd_agents_config import Config
from .pgd_agents_study import Cell

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356; Lu et al. 2023 (SynthER), arXiv 2303.06614"
PILOT = "a pilot of two seeds on the acrobot"
Grid = Mapping[tuple[str, str, str], Cell]  # (agent, source, regulariser)


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
    return np.stack([grid[agent, source, label].returns for label in config.regularisers(agent)])


def add_report(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    """Everything below, and what a reader has to know."""
    _cells(report, config, settings, grids)
    _compared(report, config, settings, grids)
    for name, grid in grids.items():
        for agent in config.agents:
            _claims(report, config, name, agent, grid)
    _draw_intervals(report, config, settings, grids)
    _draw_sweeps(report, config, settings, grids)
    if config.evaluations > 1:
        _draw_training(report, config, grids)
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
    for env in {one.env.name: one.env for one in settings.values()}.values():
        report.note(f"Evaluated in {env.name} ({env.version}).")


def _score(name: str, returns: np.ndarray) -> dict[str, Any]:
    score = normalised_score(name, returns)
    return {} if score is None else {"score": summarize(score)}


def _cells(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    rows: list[dict[str, Any]] = []
    for name, grid in grids.items():
        played = behaviour(settings[name])
        rows.append({"dataset": name, "source": "behaviour", "return": float(played.mean())})
        for (agent, source, label), cell in grid.items():
            row = {"dataset": name, "agent": agent, "source": source, "regulariser": label}
            row |= {"return": summarize(cell.returns), **_score(name, cell.returns)}
            row |= {
                "estimated value": summarize(cell.estimated_value),
                "true value": summarize(cell.true_value), "action gap": summarize(cell.gap),
                "terminations": cell.terminations,
            }  # fmt: skip
            if cell.dynamics is not None:
                row["dynamics error"] = float(cell.dynamics.mean())
            rows.append(row)
    report.table("cells", rows)


def _compared(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    rows: list[dict[str, Any]] = []
    for name, grid in grids.items():
        for agent in config.agents:
            labels = list(config.regularisers(agent))
            for source in config.sources:
                returns = sweep(grid, config, agent, source)
                best = best_by_others(returns)
                means = np.where(np.isnan(returns.mean(1)), -np.inf, returns.mean(1))
                row = {"dataset": name, "agent": agent, "source": source}
                row |= {"default": summarize(returns[0]), "best": summarize(best)}
                row["best regulariser"] = labels[int(means.argmax())]
                score = _score(name, best)
                rows.append(row | ({"best score": score["score"]} if score else {}))
    report.table("default and best", rows)


def _claims(report: Report, config: Config, name: str, agent: str, grid: Grid) -> None:
    """What is expected of one agent on one dataset; the acrobot's are bands of a pilot."""
    have = {source: sweep(grid, config, agent, source) for source in config.sources}
    where, pilot = f"{agent}, {slug(name)}", name == "acrobot-broad" and agent == "td3_bc"

    def at_least(what: str, values: np.ndarray, least: float, source: str, expected: str) -> None:
        report.claim(
            Claim.at_least(
                f"{where}: {what}", values=values, threshold=least, source=source,
                expected=f"{expected}, by {least:g} or more, seed by seed",
            )
        )  # fmt: skip

    if {"guided", "unguided"} <= set(have):
        at_least(
            "guided beats unguided at the default", have["guided"][0] - have["unguided"][0],
            20.0 if pilot else 0.0, PILOT if pilot else SOURCE, "return above that on unguided",
        )  # fmt: skip
    if {"guided", "real"} <= set(have):
        at_least(
            "guided beats real at the default", have["guided"][0] - have["real"][0],
            10.0 if pilot else 0.0, PILOT if pilot else SOURCE, "return above that on real data",
        )  # fmt: skip
        best = {k: best_by_others(have[k]) for k in ("guided", "real")}
        at_least(
            "guided beats real, best against best", best["guided"] - best["real"], 0.0, SOURCE,
            "the same with each source's own best regulariser",
        )  # fmt: skip
        if len(have["real"]) > 1:
            at_least(
                "a weaker regulariser on real data does what guidance does",
                best_by_others(have["real"][1:]) - have["guided"][0], 0.0, PILOT,
                "best other regulariser on real data against guided data at the default",
            )  # fmt: skip
    if pilot and {"unguided", "real"} <= set(have):
        at_least(
            "unguided is no better than real", have["real"][0] - have["unguided"][0], 0.0, PILOT,
            "return on real data above that on unguided at the default",
        )  # fmt: skip
    scores = {
        k: normalised_score(name, v[0]) for k, v in have.items() if k in ("synther", "real")
    }  # fmt: skip
    if len(scores) == 2 and scores["real"] is not None and scores["synther"] is not None:
        at_least(
            "SynthER's data are as good as the real ones", scores["synther"] - scores["real"],
            -5.0, SOURCE, "score on SynthER's data above that on real ones at the default",
        )  # fmt: skip


def _draw_intervals(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    pairs = [(name, agent) for name in grids for agent in config.agents]
    columns = len(config.agents)
    made, axes = figure(
        len(grids), columns, height=2.3, width=3.6,
        titles=[f"{slug(name)}, {agent}" for name, agent in pairs],
    )  # fmt: skip
    for ax, (name, agent) in zip(axes, pairs, strict=True):
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


def _draw_sweeps(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    pairs = [(name, agent) for name in grids for agent in config.agents]
    made, axes = figure(
        len(grids), len(config.agents), height=2.3, width=3.4,
        titles=[f"{slug(name)}, {agent}" for name, agent in pairs],
    )  # fmt: skip
    for ax, (name, agent) in zip(axes, pairs, strict=True):
        labels = list(config.regularisers(agent))
        at = np.arange(len(labels))
        for source in config.sources:
            returns = sweep(grids[name], config, agent, source)
            curve_with_band(ax, at, returns.T, source, colour_name=colour(source))
        ax.axhline(behaviour(settings[name]).mean(), color="black", linestyle="--", linewidth=0.8)
        ax.set_xticks(at, labels)
        ax.set_xlim(-0.3, len(labels) - 0.7)
        ax.set_ylabel("return")
    legend(made, axes)
    report.picture(
        "sweeps", made,
        "Return over the agent's regulariser (weaker to the right) for every source of data. "
        "Dashed: the behaviour that made the real data.",
    )  # fmt: skip


def _draw_training(report: Report, config: Config, grids: Mapping[str, Grid]) -> None:
    pairs = [(name, agent) for name in grids for agent in config.agents]
    titles = [f"{slug(name)}, {agent}" for name, agent in pairs]
    made, axes = figure(len(grids), len(config.agents), height=2.3, width=3.4, titles=titles)
    for ax, (name, agent) in zip(axes, pairs, strict=True):
        default = next(iter(config.regularisers(agent)))
        for source in config.sources:
            at, returns = grids[name][agent, source, default].curve
            curve_with_band(ax, at * config.updates, returns, source, colour_name=colour(source))
        ax.set_xlabel("gradient steps")
        ax.set_ylabel("return")
    legend(made, axes)
    report.picture("training", made, "Return while training, at the agents' default regulariser.")
