"""Tables, claims and pictures of `relabel_sizes`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture, sweep
from jaxrl_rollouts.compare.grid import Grid
from jaxrl_rollouts.offline.study.page import note_made
from jaxrl_rollouts.offline.study.source import Setting, behaviour
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .relabel_sizes_cells import Arm, Config, Grids
from .synther_small_data_page import KINDS, NAMES, POINTS, SHADES, points, told_note

SOURCE = LISTINGS["relabel_sizes"].source
ALONG = {
    "denoiser": "features of the denoiser",
    "network": "width of the network that tells",
    "real": "real rows in a batch, %",
}
ROWS = Arm("rows")


def page(report: Report, config: Config, setting: Setting, grids: Grids) -> None:
    """Tables, claims and pictures."""
    study, dataset = config.study, setting.dataset.name
    report.table("returns", returns(config, dataset, grids))
    clocks = [
        row
        for share, grid in grids.items()
        for agent in study.agents
        for row in clock_rows(
            {str(Arm(*arm)): cell for arm, cell in grid.at(agent=agent).items()},
            **{"share, %": 100 * share, "agent": NAMES[agent]},
        )
    ]
    add_clock(report, clocks)
    for agent in study.agents:
        size_claims(report, config, agent, dataset, grids)
    for share, grid in grids.items():
        draw(report, config, share, grid, float(behaviour(setting).mean()))
    agents = " and ".join(NAMES[agent] for agent in study.agents)
    report.note(
        f"{study.dataset}, in {setting.env.name} ({setting.env.version}). {study.samples} samples "
        f"per seed from a residual MLP of {study.synther.network.blocks} blocks after "
        f"{study.synther.training.updates} updates; {study.updates} updates of {agents}. Where one "
        f"thing is varied the others are: denoiser {config.centre.denoiser}, networks "
        f"{config.centre.network}, {100 * study.real_share:.3g} % real rows in a batch."
    )
    report.note(told_note(study))
    report.note(
        "CPU seconds are this process's for one seed, compilation among them: to fit the diffusion "
        "model, draw from it, and fit and ask what tells anew."
    )
    note_made(report, [setting.dataset])


def returns(config: Config, dataset: str, grids: Grids) -> list[dict[str, Any]]:
    """Of every arm; sizes of a model that it does without are left empty."""
    table = []
    for share, grid in grids.items():
        for agent in config.study.agents:
            for arm in config.arms():
                cell, plain = grid[agent, *arm], grid[agent, *ROWS]
                row: dict[str, Any] = {"share, %": 100 * share, "agent": NAMES[agent]}
                row |= {"rows": arm.kind, "denoiser": arm.denoiser or "-"}
                row |= {"network": arm.network or "-", "real, %": 100 * arm.real}
                row["return"] = cell["return"]
                score = points(dataset, cell["return"], plain["return"])
                row |= {} if score is None or arm == ROWS else {"points over the rows": score}
                row |= {"error": cell["error"]} if "error" in cell else {}
                if "models" in cell:
                    row["models, CPU s"] = float(cell["models"].mean())
                table.append(row)
    return table


def size_claims(report: Report, config: Config, agent: str, dataset: str, grids: Grids) -> None:
    """Fixed before the run: what small models may cost, and what real rows bring."""
    *few, most = config.study.shares
    claim = claims(report, SOURCE, [c for g in grids.values() for c in g.at(agent=agent).values()])
    grid, name, told = grids[most], NAMES[agent], KINDS[config.teller].removeprefix(", ")
    plain = grid[agent, *ROWS]["return"]
    near = {
        "at_least": -POINTS,
        "means": f"score above that on the rows alone, or at most {POINTS:g} points below it",
    }
    ends = {
        "the smallest denoiser": config.along("denoiser", config.teller)[0],
        "the smallest network": config.along("network", config.teller)[0],
    }
    for what, arm in ends.items():
        gain = points(dataset, grid[agent, *arm]["return"], plain)
        if gain is not None:
            text = f"{name}: samples of {100 * most:g} %, {told}, are as good as rows from {what}"
            claim(text, gain, **near)
    sizes = [grid[agent, *arm]["return"] for arm in config.along("denoiser", "samples")]
    claim(
        f"{name}: samples of {100 * most:g} % as drawn are better from the largest denoiser",
        sizes[-1] - sizes[0],
        at_least=0.0,
        means="return above that from the smallest, seed by seed",
    )
    mixed = [arm for arm in config.along("real", config.teller) if arm.real > 0]
    for share in few if mixed else ():
        made, plain = (grids[share][agent, *arm]["return"] for arm in (mixed[0], ROWS))
        claim(
            f"{name}: rows of {100 * share:g} % with samples, {told}, among them are better",
            made - plain,
            at_least=0.0,
            means=f"return with {100 * mixed[0].real:g} % real rows above that on rows alone",
        )


def draw(report: Report, config: Config, share: float, grid: Grid, earned: float) -> None:
    """Return along every size; agents above each other."""
    agents = config.study.agents
    titles = [NAMES[agent] for agent in agents for _ in ALONG]
    caption = (
        f"{100 * share:g} % of {config.study.dataset}: agents on samples as drawn and told anew, "
        "by the size of what says where, of what says what follows, and by the share of real rows"
    )
    name = f"sizes-{100 * share:g}-percent".replace(".", "-")
    with picture(report, name, caption, titles=titles, columns=3, sharey=True) as axes:
        for index, ax in enumerate(axes):
            agent, axis = agents[index // 3], list(ALONG)[index % 3]
            level(ax, float(grid[agent, *ROWS]["return"].mean()), "rows alone", linestyle="-")
            level(ax, earned, "behaviour", linestyle=":")
            for kind in ("samples", config.teller):
                values = [grid[agent, *arm]["return"] for arm in config.along(axis, kind)]
                at = (100.0 if axis == "real" else 1) * np.array(config.varied[axis])
                label = "as drawn" if kind == "samples" else KINDS[kind].removeprefix(", ")
                shade = SHADES["samples" if kind == "samples" else "ensemble"]
                sweep(ax, at, values, label, shade=shade)
            ax.set_xlabel(ALONG[axis])
            if axis != "real":
                ax.set_xscale("log")
                ax.set_xticks(config.varied[axis], [str(size) for size in config.varied[axis]])
                ax.minorticks_off()
            if index % 3 == 0:
                ax.set_ylabel("return")
