"""Tables, claims and pictures of `beside_others`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.ticker import LogLocator, NullFormatter

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.page import LOOKS
from jaxrl_rollouts.offline.study.source import Setting, behaviour, slug
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread, summarize

from ..catalogue import LISTINGS

OURS, THEIRS = "ours", "d3rlpy"
VALUE = "ours, discounted"
SOURCE = LISTINGS["beside_others"].source


def rows_of(grid: Grid, setting: Setting, data: str, discount: float) -> list[dict[str, Any]]:
    """One row per agent: the last look of both, in returns and scores, and what they took; of ours
    also what is maximised, the discounted value, as mean of the last looks."""
    logged: dict[str, Any] = {"dataset": data, "agent": "behaviour"}
    logged[OURS] = float(behaviour(setting).mean())
    logged[VALUE] = float(behaviour(setting, discount).mean())
    rows = [logged]
    for agent, cells in by_agent(grid.at(dataset=data)):
        row: dict[str, Any] = {"dataset": data, "agent": agent}
        for by, cell in cells.items():
            returns = cell["returns"][:, -1]
            row[by] = summarize(returns)
            score = normalised_score(data, returns)
            if score is not None:
                row[f"{by} score"] = score
            if "values" in cell:
                row[VALUE] = cell["values"][:, -LOOKS:].mean(1)
            row[f"{by} updates/s"] = len(returns) * cell["steps"][0, -1] / cell["seconds"][0, -1]
        rows.append(row)
    return rows


def by_agent(grid: Grid) -> list[tuple[str, dict[str, Cell]]]:
    agents = dict.fromkeys(cell.point["agent"] for cell in grid.values())
    return [(agent, dict(grid.at(agent=agent).items())) for agent in agents]


def add_claims(report: Report, grid: Grid, datasets: Iterable[str]) -> None:
    """Ours is not worse per gradient step: its interval reaches theirs."""
    claim = claims(report, SOURCE)
    for data in datasets:
        for agent, cells in by_agent(grid.at(dataset=data)):
            ours, theirs = (cells[by]["returns"][:, -1] for by in (OURS, THEIRS))
            reach = spread(ours)[1] - spread(theirs)[0]
            claim(
                f"{agent} is not worse per step on {slug(data)}",
                [reach],
                at_least=0,
                means="the upper end of our interval above the lower end of d3rlpy's",
            )


def add_claims_alone(
    report: Report,
    grid: Grid,
    settings: Mapping[str, Setting],
    clocks: Mapping[str, float | None],
) -> None:
    """With nobody beside them agents are held against the data; `clocks` are their critics'."""
    claim = claims(report, SOURCE)
    for data, setting in settings.items():
        logged = float(behaviour(setting).mean())
        for agent, cells in by_agent(grid.at(dataset=data)):
            claim(
                f"{agent} earns more than the data on {slug(data)}",
                cells[OURS]["returns"][:, -LOOKS:].mean(1),
                at_least=logged,
                means="mean return of the last looks above that of the dataset's episodes",
                time_constants=clocks[agent],
            )


def draw(report: Report, grid: Grid, settings: Mapping[str, Setting]) -> None:
    """Returns over gradient steps, and over seconds."""
    for data in settings:
        titles = ("By gradient step", "By second")
        caption = "Solid: this library; dashed: d3rlpy. Mean of the seeds, and their range."
        with picture(report, f"learning-{slug(data)}", caption, titles=titles, title=data) as axes:
            for number, (agent, cells) in enumerate(by_agent(grid.at(dataset=data))):
                for by, cell in cells.items():
                    returns, shade = cell["returns"], f"C{number}"
                    line = "-" if by == OURS else "--"
                    style: dict[str, Any] = {"color": shade, "linestyle": line}
                    for ax, over in zip(axes, ("steps", "seconds"), strict=True):
                        x = cell[over][0]
                        label = agent if by == OURS else None
                        ax.plot(x, returns.mean(0), marker=".", label=label, **style)
                        ax.fill_between(
                            x, returns.min(0), returns.max(0), color=shade, alpha=0.1, linewidth=0
                        )
            axes[0].set(xlabel="gradient steps", ylabel="return in the true environment")
            axes[1].set(xlabel="seconds of all seeds", xscale="log")
            axes[1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes[1].xaxis.set_major_formatter("{x:g}")
            axes[1].xaxis.set_minor_formatter(NullFormatter())
