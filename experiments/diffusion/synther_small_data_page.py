"""Tables, claims and pictures of `synther_small_data`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, stacked
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.page import note_made
from jaxrl_rollouts.offline.study.source import Setting, behaviour
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .synther_small_data_cells import Grids
from .synther_small_data_config import MADE, Config

SOURCE = LISTINGS["synther_small_data"].source
BOUND = "what a better model of the transitions could win at most"
RELABELLED = "relabelling with a world model of the same rows"
POINTS = 5.0  # of normalised score that replacing all rows may cost
KINDS = {
    "rows": "",
    "samples": ", up-sampled",
    "rows with noise": ", with noise",
    "ensemble": ", told by an ensemble",
    "ensemble-drop": ", told by an ensemble, unknown rows dropped",
    "model": ", told by one network",
    "inverse": ", actions by an inverse model",
    "oracle": ", told by the simulator",
}
NAMES = {"td3_bc": "TD3+BC", "iql": "IQL"}
SHADES = {
    "rows": "#777777",
    "samples": "#0072B2",
    "rows with noise": "#E69F00",
    "ensemble": "#D55E00",
    "ensemble-drop": "#CC79A7",
    "model": "#56B4E9",
    "inverse": "#F0E442",
    "oracle": "#009E73",
}
QUALITY = {name: name for name in ("marginal", "correlation", "novelty", "error")}
QUALITY["median error"] = "median"
JUDGEMENT = "Left: how new samples are. Right: how wrong, in the true simulator."


def page(report: Report, config: Config, setting: Setting, grids: Grids) -> None:
    """Tables, claims and pictures."""
    earned = float(behaviour(setting).mean())
    report.table("returns", returns(setting.dataset.name, config, grids, earned))
    report.table("quality", quality(config, grids))
    clocks = [
        clock_rows(grid.at(agent=agent), **{"share, %": 100 * share}, **column(config, agent))
        for share, grid in grids.items()
        for agent in config.agents
    ]
    add_clock(report, [row for rows in clocks for row in rows])
    for agent in config.agents:
        return_claims(report, config, agent, grids)
    quality_claims(report, config, grids)
    if config.told:
        for agent in config.agents:
            told_claims(report, config, agent, setting.dataset.name, grids)
    draw(report, config, grids, earned)
    agents = " and ".join(NAMES[agent] for agent in config.agents)
    report.note(
        f"{config.dataset}, in {setting.env.name} ({setting.env.version}). Every seed has rows, a "
        f"diffusion model and samples of its own: {config.samples} samples, "
        f"{config.synther.training.updates} updates, {config.synther.sampler.steps} sampler steps; "
        f"then {config.updates} updates of {agents}. {real_rows(config.real_share)}"
    )
    noisy = f"'rows with noise' have {config.noise:g} deviations added to both observations."
    errors = (
        "Errors are of the next observation against the simulator, in squared deviations of the "
        "rows"
        if judged(config, grids)
        else "The simulator cannot be set to an observation: errors are not known"
    )
    report.note(f"{errors}; {noisy}")
    report.note(
        "CPU seconds are this process's for one seed, compilation among them, and so more for the "
        "first arm of an agent on each share: 'models' to make the rows (fit and ask the diffusion "
        "model, and whatever tells its samples anew), 'agent' to learn from them and be evaluated."
    )
    if config.told:
        report.note(told_note(config))
    note_made(report, [setting.dataset])


def real_rows(share: float) -> str:
    """What a batch of made-up rows has of real ones."""
    return f"A batch of made-up rows has {100 * share:.3g} % real ones (real_share)."


def told_note(config: Config) -> str:
    """Who tells samples anew, and how."""
    nets, drawn = config.networks, "with" if config.noise_told else "without"
    return (
        "Told anew: the same samples' states and actions, with rewards and next observations by "
        f"an ensemble of {nets.elites} out of {nets.members} networks {nets.hidden} fitted to the "
        f"same rows (a variance for every {nets.variance}; a member drawn for every row, {drawn} "
        f"its noise; at most {nets.max_epochs} passes over all rows, and as many updates on a "
        "share), or by the simulator. Unknown rows are those on which members disagree more than "
        f"on the {config.level:g} quantile of the data; what is left of the samples is repeated to "
        "as many."
    )


def judged(config: Config, grids: Grids) -> bool:
    """Whether the simulator could be set to what was made, and said how wrong it is."""
    return "error" in grids[config.shares[-1]][config.agents[0], "samples"]


def column(config: Config, agent: str) -> dict[str, str]:
    """That says whose row it is, where there are several agents."""
    return {"agent": NAMES[agent]} if len(config.agents) > 1 else {}


def returns(dataset: str, config: Config, grids: Grids, earned: float) -> list[dict[str, Any]]:
    """Of every arm, beside the behaviour's and those on plain rows."""
    table = []
    for share, grid in grids.items():
        for (agent, kind), cell in grid.items():
            row: dict[str, Any] = {"data": f"{100 * share:g} %" + KINDS[kind]}
            row |= column(config, agent) | {"return": cell["return"]}
            score = normalised_score(dataset, cell["return"])
            row |= {} if score is None else {"score": score}
            row["over the behaviour"] = cell["return"] - earned
            plain = grid[agent, "rows"]["return"]
            row |= {} if kind == "rows" else {"gained": cell["return"] - plain}
            spent = {"models, CPU s": "models", "agent, CPU s": "learning"}
            table.append(row | {name: float(cell[of].mean()) for name, of in spent.items()})
    return table


def quality(config: Config, grids: Grids) -> list[dict[str, Any]]:
    """Of everything that was made; what was told anew also says how much of it is left."""
    table = []
    for share, grid in grids.items():
        for kind in config.judged_kinds:
            cell = grid[config.agents[0], kind]
            row: dict[str, Any] = {"share, %": 100 * share, "rows": kind}
            row |= {column: cell[name] for column, name in QUALITY.items() if name in cell}
            table.append(row | ({"kept": cell["kept"]} if kind in config.told else {}))
    return table


def earned_by(grids: Grids, share: float, agent: str) -> dict[str, np.ndarray]:
    """Returns by kind of rows, `[seeds]`."""
    return {kind: cell["return"] for kind, cell in grids[share].at(agent=agent).items()}


def points(dataset: str, earned: np.ndarray, plain: np.ndarray) -> np.ndarray | None:
    """Normalised score of returns above that of others, `[seeds]`; None where no returns to
    normalise by are known."""
    scores = [normalised_score(dataset, returns) for returns in (earned, plain)]
    return None if scores[0] is None or scores[1] is None else scores[0] - scores[1]


def cells_of(grids: Grids, agent: str) -> list[Cell]:
    return [cell for grid in grids.values() for cell in grid.at(agent=agent).values()]


def prefix(config: Config, agent: str) -> str:
    """Of the claims about an agent, where there are several."""
    return f"{NAMES[agent]}: " if len(config.agents) > 1 else ""


def return_claims(report: Report, config: Config, agent: str, grids: Grids) -> None:
    """The paper's, about samples as they were drawn."""
    claim, name = claims(report, SOURCE, cells_of(grids, agent)), prefix(config, agent)
    *few, most = config.shares
    for share in few:
        earned, percent = earned_by(grids, share, agent), 100 * share
        better = {"at_least": 0.0, "means": "a higher return, seed by seed"}
        gain = earned["samples"] - earned["rows"]
        claim(f"{name}up-sampling {percent:g} % of the data helps", gain, **better)
        gain = earned["samples"] - earned["rows with noise"]
        claim(f"{name}samples of {percent:g} % do better than rows with noise", gain, **better)
    rows, samples = (earned_by(grids, most, agent)[kind] for kind in ("rows", "samples"))
    text = f"{name}replacing {100 * most:g} % of the data costs nothing"
    means = "return on samples minus that on rows, as a share of the latter"
    gain = (samples - rows) / max(abs(float(rows.mean())), 1e-6)
    claim(text, gain, between=(-0.1, 0.1), means=means)


def told_claims(report: Report, config: Config, agent: str, dataset: str, grids: Grids) -> None:
    """About the first kind of samples told anew, and how far the simulator's own would reach."""
    kind, name = config.told[0], prefix(config, agent)
    arms = cells_of(grids, agent)
    claim = claims(report, RELABELLED if kind != "oracle" else BOUND, arms)
    *few, most = config.shares
    for share in few:
        earned = earned_by(grids, share, agent)
        for beside in ("rows", "rows with noise"):
            text = f"{name}samples of {100 * share:g} %{KINDS[kind]}, do better than {beside}"
            means = "a higher return, seed by seed"
            claim(text, earned[kind] - earned[beside], at_least=0.0, means=means)
    earned = earned_by(grids, most, agent)
    means = f"score above that on the rows themselves, or at most {POINTS:g} points below it"
    bound = ["oracle"] if "oracle" in config.told and kind != "oracle" else []
    for arm in (kind, *bound):
        gain = points(dataset, earned[arm], earned["rows"])
        if gain is None:
            continue
        text = f"{name}samples of {100 * most:g} %{KINDS[arm]}, are as good as the rows"
        source = {"source": BOUND} if arm == "oracle" else {}
        claim(text, gain, at_least=-POINTS, means=means, **source)


def quality_claims(report: Report, config: Config, grids: Grids) -> None:
    claim, most, agent = claims(report, SOURCE), config.shares[-1], config.agents[0]
    for name in ("marginal", "correlation"):
        means = f"{name} score of samples from {100 * most:g} %"
        values = grids[most][agent, "samples"][name]
        claim(f"samples have the data's {name}s", values, at_least=0.95, means=means)
    samples, noisy = ([grids[s][agent, kind] for s in config.shares] for kind in MADE)
    further = stacked(samples, "novelty") / stacked(noisy, "novelty")
    noise = f"{config.noise:g} deviations of noise"
    text = "samples are further from the data than rows with noise"
    means = f"distance to the nearest row over that of rows with {noise}"
    claim(text, further, at_least=1.0, means=means)
    if not judged(config, grids):
        return
    text = "samples obey the dynamics better than rows with noise"
    error = stacked(samples, "error") / stacked(noisy, "error")
    claim(text, error, at_most=1.0, means="error in the simulator over that of rows with noise")


def draw(report: Report, config: Config, grids: Grids, earned: float) -> None:
    """Returns while training, a row of panels per agent; what was made, over the shares."""
    several, names = len(config.agents) > 1, " and ".join(NAMES[a] for a in config.agents)
    titles = [
        (f"{NAMES[agent]}, " if several else "") + f"{100 * share:g} % of the data"
        for agent in config.agents
        for share in grids
    ]
    told = ", of samples told anew" if config.told else ""
    caption = f"{names} on a share of the data, and on samples or noisy rows in its place{told}"
    panels: dict[str, Any] = {"titles": titles, "columns": len(grids), "sharey": True}
    with picture(report, "returns", caption, **panels) as axes:
        drawn = ((agent, grid) for agent in config.agents for grid in grids.values())
        for ax, (agent, grid) in zip(axes, drawn, strict=True):
            for kind in config.kinds:
                curves(ax, {kind: grid[agent, kind]}, "return", colour_name=SHADES[kind])
            level(ax, earned, "behaviour", linestyle=":", linewidth=1.0)
        for ax in axes[:: len(grids)]:
            ax.set_ylabel("return")
    at = 100 * np.asarray(config.shares)
    looks = {"novelty": "distance to the nearest row"}
    caption = "How new samples are."
    if judged(config, grids):
        looks["error"], caption = "dynamics error", JUDGEMENT
    panels = {"titles": [""] * len(looks), "height": 2.9}
    with picture(report, "quality", caption, **panels) as axes:
        for ax, (name, label) in zip(axes, looks.items(), strict=True):
            for kind in config.judged_kinds:
                cells = [grids[share][config.agents[0], kind] for share in config.shares]
                if name == "error" and kind == "oracle":  # none, to rounding
                    continue
                values = stacked(cells, name)
                curve_with_band(ax, at, values, kind, colour_name=SHADES[kind])
            ax.set(xscale="log", yscale="log", xlabel="share of the data, %", ylabel=label)
