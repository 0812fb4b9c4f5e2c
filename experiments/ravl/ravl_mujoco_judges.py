"""Who tells what a policy is worth: its critics, or rollouts of it in the world models.

Only what somebody without a simulator has is judged, by what the simulator says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.scipy.stats import rankdata

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.offline.study.colours import colour
from jaxrl_rollouts.offline.study.source import slug
from jaxrl_rollouts.reports.report import Report

JUDGES = {"critics": "estimated_value", "models": "imagined_value"}
SOURCE = "the project's goals"
LEAST = 6  # policies: fewer have no order to speak of, and no claim is made


def add(report: Report, results: Mapping[str, Grid]) -> None:
    """Tables, picture and claims of all datasets, as the agents' last policies are judged."""
    values, scores = [], []
    for name, grid in results.items():
        cells = grid.trained
        for arm, cell in cells.items():
            columns = {"true value": cell["discounted_return"]}
            columns |= {f"by {j}": cell[m] for j, m in JUDGES.items() if m in cell}
            columns |= {"spread of members": cell["imagined_spread"]}
            values.append({"dataset": name, "arm": arm} | columns)
        found = {judge: score(cells, metric) for judge, metric in JUDGES.items()}
        scores += [{"dataset": name, "judge": judge} | row for judge, row in found.items()]
        add_claims(report, name, cells, found)
        draw(report, name, cells)
    report.table("worth of policies", values)
    report.table("judges", scores)


def promising(cells: Mapping[str, Cell]) -> list[Cell]:
    """Those whose agents have critics, so that both judge the same."""
    return [cell for cell in cells.values() if "estimated_value" in cell]


def score(cells: Mapping[str, Cell], metric: str) -> dict[str, Any]:
    """How a judge orders policies (Spearman), how far off it is, and what its favourite is worth.

    Policies of agents without critics are left out.
    """
    judged = promising(cells)
    said = np.concatenate([cell[metric] for cell in judged])
    true = np.concatenate([cell["discounted_return"] for cell in judged])
    return {
        "policies": len(true),
        "rank correlation": float(np.corrcoef(rankdata(said), rankdata(true))[0, 1]),
        "mean absolute error": float(np.abs(said - true).mean()),
        "its favourite is worth": float(true[np.argmax(said)]),
        "the best": float(true.max()),
        "the mean": float(true.mean()),
    }


def add_claims(
    report: Report, name: str, cells: Mapping[str, Cell], found: Mapping[str, Mapping[str, Any]]
) -> None:
    """What long rollouts in the models are good for, and whether critics are better; nothing is
    claimed of a few policies."""
    claim, short = claims(report, SOURCE), slug(name)
    critics, models = found["critics"], found["models"]
    if models["policies"] < LEAST:
        return
    trained = promising(cells)
    claim(
        f"rollouts in the models order the policies on {short}",
        models["rank correlation"],
        at_least=0.7,
        cells=trained,
        means="Spearman's rank correlation of imagined and true value over all arms and seeds",
    )
    claim(
        f"they are nearer to the truth than critics on {short}",
        critics["mean absolute error"] - models["mean absolute error"],
        at_least=0,
        cells=trained,
        means="mean absolute error of critics minus that of imagined values",
    )
    claim(
        f"the policy that they favour on {short} is nearly the best",
        models["its favourite is worth"] / models["the best"],
        at_least=0.9,
        cells=trained,
        means="true value of the policy with the highest imagined one over the best true value",
    )


def draw(report: Report, name: str, cells: Mapping[str, Cell]) -> None:
    """What each judge says over what is true, a dot for a policy."""
    caption = (
        "What is said of the last policies, over what they are worth in the simulator, discounted; "
        "on the dotted line it is right. Left: their critics. Right: long rollouts of them in the "
        "world models, bars: deviation of the members."
    )
    titles = ("by critics", "in the models")
    with picture(report, f"judges-{slug(name)}", caption, titles=titles, title=name) as axes:
        for ax, metric in zip(axes, JUDGES.values(), strict=True):
            for arm, cell in cells.items():
                if metric not in cell:
                    continue
                bars = cell["imagined_spread"] if metric == "imagined_value" else None
                style: dict[str, Any] = {"color": colour(arm), "label": arm, "alpha": 0.8}
                ax.errorbar(cell["discounted_return"], cell[metric], bars, fmt="o", **style)
            true = [cell["discounted_return"] for cell in cells.values()]
            ends = np.nanmin(true), np.nanmax(true)
            ax.plot(ends, ends, color="black", linewidth=0.8, linestyle=":")
            if np.nanmax(np.abs(ax.get_ylim())) > 100 * ends[1] > 0:  # an explosion hides all else
                low, high = ax.dataLim.intervaly
                ax.set_yscale("symlog", linthresh=ends[1])
                ax.set_ylim(2 * min(low, -ends[1] / 8), 3 * high)
            ax.set_xlabel("true value")
        axes[0].set_ylabel("said")
