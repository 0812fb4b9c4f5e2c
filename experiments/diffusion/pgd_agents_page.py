"""Tables, claims and pictures of `pgd_agents`: sources against each other, default and best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.experiments.kit.colours import colour
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves, intervals
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.page import note_environments, note_made
from jaxrl_rollouts.offline.study.source import Setting, behaviour, slug
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import best_by_others, spread_name

from ..catalogue import LISTINGS
from .pgd_agents_cells import NORMED, SAMPLED, Config, parts_of

SOURCE = LISTINGS["pgd_agents"].source
PILOT = "a pilot of two seeds on the acrobot"
RELABELLED = "relabelling with a world model of the same rows"
BOUND = "what a better model of the transitions could win at most"
LEFT = 0.1  # of the return on true transitions that an ensemble's may miss
LINES = {"": "-", "told": "--", "oracle": ":"}
BY_SOURCE = (
    "Return by source of data, at the agent's default regulariser and at the best one of that "
    "source (chosen on the other seeds). Bars: {spread} of the interquartile mean; "
    "dots: seeds; dashed: the behaviour that made the real data."
)
SWEPT = (
    "Return over the agent's regulariser (weaker to the right; {norm}) for every source of data. "
    "Black: the behaviour that made the real data."
)
Settings = Mapping[str, Setting]  # by dataset
Grids = Mapping[str, Grid]  # by dataset: agent, source, regulariser


def sweep(grid: Grid, config: Config, agent: str, source: str) -> np.ndarray:
    """Returns of all regularisers, `[settings, seeds]`, the default first."""
    labels = config.regularisers(agent)
    return np.stack([grid[agent, source, label]["return"] for label in labels])


def page(report: Report, config: Config, settings: Settings, grids: Grids) -> None:
    """Everything below, and what a reader has to know."""
    earned = {name: float(behaviour(setting).mean()) for name, setting in settings.items()}
    report.table("cells", [row for name in grids for row in cells(name, grids[name], earned[name])])
    arms = [(name, agent, grids[name]) for name in grids for agent in config.agents]
    by_arm = {name: {", ".join(p): c for p, c in grid.items()} for name, grid in grids.items()}
    clocks = (clock_rows(cells, dataset=name) for name, cells in by_arm.items())
    add_clock(report, [row for rows in clocks for row in rows])
    report.table("default and best", [row for arm in arms for row in compared(config, *arm)])
    for arm in arms:
        add_claims(report, config, *arm)
        told_claims(report, config, *arm)
    draw(report, config, grids, earned)
    report.note(
        "One denoiser of each kind per dataset, shared by all seeds; SynthER's and the unguided "
        "rows are drawn once and shared, guided ones are every seed's own. Of a batch on a "
        f"synthetic source, SynthER's too, {100 * config.real_share:g} % are real rows; SynthER's "
        "authors have none (--real-share 0)."
    )
    report.note(
        "Best: for every seed the regulariser that is best on the mean of the other seeds. "
        "Action gap: mean squared distance of a source's actions from those of the final policy."
    )
    if any(parts_of(source)[1] == "told" for source in config.sources):
        nets, drawn = config.networks, "with" if config.noise_told else "without"
        report.note(
            "Told: the same sampled states and actions, with what follows by an ensemble of "
            f"{nets.elites} out of {nets.members} networks {nets.hidden} of the same rows (a "
            f"member drawn at every step, {drawn} its noise, at most {nets.max_epochs} passes); "
            "windows are rolled on from their first state along their actions. Oracle: the "
            "simulator in its place."
        )
    note_made(report, [setting.dataset for setting in settings.values()])
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
        "size of actions": lambda cell: float(cell["size"].mean()),
        "terminations": lambda cell: float(cell["terminations"].mean()),
        "dynamics error": dynamics,
    }
    rows = [{"source": "behaviour", "return": earned}, *grid.rows(columns)]
    return [{"dataset": name} | {k: v for k, v in row.items() if v is not None} for row in rows]


def compared(config: Config, name: str, agent: str, grid: Grid) -> list[dict[str, Any]]:
    """Every source at the default regulariser and at its best."""
    rows: list[dict[str, Any]] = []
    labels = list(config.regularisers(agent))
    for source in config.sources:
        returns = sweep(grid, config, agent, source)
        best, means = best_by_others(returns), np.nan_to_num(returns.mean(1), nan=-np.inf)
        row = {"dataset": name, "agent": agent, "source": source}
        row |= {"default": returns[0], "best": best, "best regulariser": labels[means.argmax()]}
        score = normalised_score(name, best)
        rows.append(row if score is None else row | {"best score": score})
    return rows


def add_claims(report: Report, config: Config, name: str, agent: str, grid: Grid) -> None:
    """What is expected of one agent on one dataset; the acrobot's are bands of a pilot."""
    returns = {source: sweep(grid, config, agent, source) for source in config.sources}
    default = {source: sweeps[0] for source, sweeps in returns.items()}
    best = {source: best_by_others(sweeps) for source, sweeps in returns.items()}
    pilot = name == "acrobot-broad" and agent == "td3_bc"
    trained = [cell for (arm, *_), cell in grid.items() if arm == agent]
    claim = claims(report, PILOT if pilot else SOURCE, trained)

    def better(text: str, gain: np.ndarray, means: str, least: float = 0.0, **of: str) -> None:
        means = f"{means}, by {least:g} or more, seed by seed"
        claim(f"{agent}, {slug(name)}: {text}", gain, at_least=least, means=means, **of)

    def both(*sources: str) -> bool:
        return set(sources) <= set(returns)

    if both("guided", "unguided"):
        text, means = "guided beats unguided at the default", "return above that on unguided"
        better(text, default["guided"] - default["unguided"], means, 20.0 * pilot)
    if both("guided", "real"):
        text, means = "guided beats real at the default", "return above that on real data"
        better(text, default["guided"] - default["real"], means, 10.0 * pilot)
        means = "the same with each source's own best regulariser"
        gain = best["guided"] - best["real"]
        better("guided beats real, best against best", gain, means, source=SOURCE)
    labels = config.regularisers(agent)
    weaker = [i for i, label in enumerate(labels) if i and NORMED not in label]
    if both("guided", "real") and weaker:
        text = "a weaker regulariser on real data does what guidance does"
        means = "best other regulariser on real data against guided data at the default"
        gain = best_by_others(returns["real"][weaker]) - default["guided"]
        better(text, gain, means, source=PILOT)
    if pilot and both("unguided", "real"):
        means = "return on real data above that on unguided at the default"
        better("unguided is no better than real", default["real"] - default["unguided"], means)
    if both("synther", "real"):
        real, synther = (normalised_score(name, default[s]) for s in ("real", "synther"))
        if real is not None and synther is not None:
            text = "SynthER's data are as good as the real ones"
            means = "score on SynthER's data above that on real ones at the default"
            better(text, synther - real, means, -5.0, source=SOURCE)


def told_claims(report: Report, config: Config, name: str, agent: str, grid: Grid) -> None:
    """What is expected of sources told anew: the paper's order, and what telling is worth."""
    cells = {source: sweep(grid, config, agent, source) for source in config.sources}
    default = {source: returns[0] for source, returns in cells.items()}
    best = {source: best_by_others(returns) for source, returns in cells.items()}
    trained = [cell for (arm, *_), cell in grid.items() if arm == agent]
    claim = claims(report, SOURCE, trained)

    def above(one: str, other: str, **of: str) -> None:
        """At the default, and each at its own best."""
        if not {one, other} <= set(default):
            return
        for how, earned in (("at the default", default), ("best against best", best)):
            text = f"{agent}, {slug(name)}: {one} beats {other}, {how}"
            means = f"return on {one} above that on {other}, seed by seed"
            claim(text, earned[one] - earned[other], at_least=0.0, means=means, **of)

    for one, other in (
        ("guided-told", "unguided-told"),
        ("guided-told", "real"),
        ("unguided-told", "real"),
    ):
        above(one, other)
    for sampled in SAMPLED:
        told, true = f"{sampled}-told", f"{sampled}-oracle"
        above(told, sampled, source=RELABELLED)
        if {told, true} <= set(default):
            text = f"{agent}, {slug(name)}: true transitions would add little to {told}"
            means = "return on true ones above that on told ones, as a share of its size"
            gain = (default[true] - default[told]) / np.abs(default[true])
            claim(text, gain, at_most=LEFT, means=means, source=BOUND)
        if {told, sampled} <= set(default) and "dynamics" in grid[
            agent, told, _first(config, agent)
        ]:
            label = _first(config, agent)
            errors = [grid[agent, s, label]["dynamics"].mean() for s in (told, sampled)]
            text = f"{agent}, {slug(name)}: {told} makes fewer errors than {sampled}"
            means = "mean squared error of the next observation, as a share"
            claim(
                text, [errors[0] / errors[1]], at_most=0.5, means=means, source=RELABELLED, cells=()
            )


def _first(config: Config, agent: str) -> str:
    return next(iter(config.regularisers(agent)))


def draw(report: Report, config: Config, grids: Grids, earned: Mapping[str, float]) -> None:
    """A row of panels per dataset, a column per agent."""
    pairs = [(name, agent) for name in grids for agent in config.agents]
    titles = [f"{slug(name)}, {agent}" for name, agent in pairs]
    panels: dict[str, Any] = {"titles": titles, "columns": len(config.agents)}
    wide = 5.4 if len(config.agents) == 1 else 3.4
    tall = max(2.3, 0.3 * len(config.sources))
    with picture(
        report,
        "sources",
        BY_SOURCE.format(spread=spread_name(report.seeds)),
        **panels,
        width=max(wide, 3.6),
        height=max(2.3, 0.36 * len(config.sources)),
        legend=False,
    ) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            rows = {}
            for source in config.sources:
                returns = sweep(grids[name], config, agent, source)
                rows |= {source: returns[0], f"{source}, best": best_by_others(returns)}
            intervals(ax, rows, xlabel="return")
            ax.axvline(earned[name], color="black", linestyle="--", linewidth=0.8)
    swept = SWEPT.format(
        norm="layer-normalised critics last" if config.critic_norm else "default first"
    )
    with picture(report, "sweeps", swept, **panels, width=wide, height=tall) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            labels = list(config.regularisers(agent))
            weaker = [label for label in labels if NORMED not in label]
            for index, source in enumerate(config.sources):
                returns = sweep(grids[name], config, agent, source).T
                line = LINES[parts_of(source)[1]]
                style: dict[str, Any] = {"colour_name": colour(source), "linestyle": line}
                count = len(weaker)
                curve_with_band(ax, np.arange(count), returns[:, :count], source, **style)
                if count < len(labels):  # no weaker one, so no line leads there
                    at = [count + 0.05 * (index - len(config.sources) / 2)]
                    curve_with_band(ax, at, returns[:, count:], f"_{source}", **style)
            level(ax, earned[name], linestyle="-")
            ax.set_xticks(range(len(labels)), [label.replace(", ", "\n") for label in labels])
            ax.set(xlim=(-0.3, len(labels) - 0.7), ylabel="return")
    if config.evaluations == 1:
        return
    caption = "Return while training, at the agents' default regulariser."
    with picture(report, "training", caption, **panels, width=wide, height=tall) as axes:
        for ax, (name, agent) in zip(axes, pairs, strict=True):
            default = next(iter(config.regularisers(agent)))
            cells = {s: grids[name][agent, s, default] for s in config.sources}
            for source, cell in cells.items():
                curves(ax, {source: cell}, "return", linestyle=LINES[parts_of(source)[1]])
            ax.set_ylabel("return")
