"""Tables of `pgd_agents`, and its whole report: sources against each other, default and best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .pgd_agents_best import Grid, best_by_others, sweep
from .pgd_agents_claims import add_claims
from .pgd_agents_config import Config
from .pgd_agents_pictures import draw_intervals, draw_sweeps, draw_training


def add_report(
    report: Report, config: Config, settings: Mapping[str, Setting], grids: Mapping[str, Grid]
) -> None:
    """Everything below, and what a reader has to know."""
    _cells(report, config, settings, grids)
    _compared(report, config, settings, grids)
    for name, grid in grids.items():
        for agent in config.agents:
            add_claims(report, config, name, agent, grid)
    draw_intervals(report, config, settings, grids)
    draw_sweeps(report, config, settings, grids)
    if config.evaluations > 1:
        draw_training(report, config, grids)
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
