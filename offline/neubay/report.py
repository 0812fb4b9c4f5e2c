"""Tables and pictures of NEUBAY: horizons over training, estimated and true value, thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.reports.report import Report

from ..report import colour, holdout
from ..task import slug
from .posterior import Posterior

HORIZONS = {
    "median horizon": "horizon_median",
    "longest": "horizon_longest",
    "ended by threshold": "ended_threshold",
    "by termination": "ended_termination",
    "by the limit": "ended_limit",
    "Q on real": "q_real",
    "Q on imagined": "q_imagined",
    "entropy": "entropy",
    "alpha": "alpha",
}


def add_posterior(report: Report, posterior: Posterior, cells: Mapping[str, Cell]) -> None:
    """Add the posterior's table, and its rollouts' table and picture, to a report."""
    name = posterior.dataset.name
    report.table("world model", [posterior_row(posterior)])
    report.table("rollouts", horizon_rows(name, cells))
    draw_horizons(report, name, cells)
    if all("discounted_return" in cell for cell in cells.values()):
        draw_values(report, {name: cells})


def posterior_row(posterior: Posterior) -> dict[str, Any]:
    """The ensembles of a dataset and their uncertainty on it, as a table row."""
    dataset, stats = posterior.dataset, jax.tree.map(np.asarray, posterior.stats)
    row: dict[str, Any] = {"dataset": dataset.name, "rows": len(dataset)}
    row["members"] = posterior.model.elites
    if posterior.trained is not None:
        history = posterior.trained.history
        row |= {"epochs": len(history.records), **holdout(history, posterior.ensemble)}
    row["mean spread"] = stats.mean
    columns = zip(stats.levels[0], stats.quantiles.T, strict=True)
    return row | {f"spread at {level:g}": values for level, values in columns if level >= 0.9}


def horizon_rows(dataset: str, cells: Mapping[str, Cell]) -> list[dict[str, Any]]:
    """Lengths of the last collections' rollouts, what ended them, and the critics' values."""
    return [
        {"dataset": dataset, "arm": arm}
        | {column: cell[metric] for column, metric in HORIZONS.items()}
        for arm, cell in cells.items()
    ]


def draw_horizons(report: Report, dataset: str, cells: Mapping[str, Cell]) -> None:
    """Imagined steps of NEUBAY's arms over training, and what ended them in the first one."""
    name, titles = f"horizons-{slug(dataset)}", ("Imagined steps", "What ended them")
    caption = (
        "Left: imagined steps of a collection, medians over seeds of median and quartiles over "
        "rollouts. Right: what ended them."
    )
    with picture(report, name, caption, titles=titles, title=dataset) as (left, right):
        for arm, cell in cells.items():
            steps, shade = cell.curve("horizon_median")[0], colour(arm)
            low, middle, high = (
                np.median(cell.curve(f"horizon_{which}")[1], 0)
                for which in ("low", "median", "high")
            )
            left.plot(steps, middle, color=shade, label=arm)
            left.fill_between(steps, low, high, color=shade, alpha=0.15, linewidth=0)
        left.set_yscale("symlog", linthresh=1)
        arm, first = next(iter(cells.items()))
        ends = ("threshold", "termination", "limit")
        shares = [first.curve(f"ended_{end}")[1].mean(0) for end in ends]
        right.stackplot(first.curve("ended_limit")[0], *shares, labels=ends, alpha=0.6)
        left.set(xlabel="gradient steps", ylabel="steps, median and quartiles")
        right.set(xlabel="gradient steps", ylabel=f"share, {arm}", ylim=(0, 1))


def draw_values(report: Report, results: Mapping[str, Mapping[str, Cell]]) -> None:
    """Estimated against true value of every method, a point per seed, a panel per dataset."""
    caption = (
        "The critics' estimate at the start states against the policy's discounted return from "
        "there; on the dotted line they are right, above it they overestimate."
    )
    titles = [slug(name) for name in results]
    title = "Estimated and true value"
    with picture(report, "values", caption, titles=titles, columns=2, title=title) as axes:
        for ax, cells in zip(axes, results.values(), strict=True):
            pairs = {n: (c["estimated_value"], c["discounted_return"]) for n, c in cells.items()}
            estimated_and_true(ax, pairs)


def estimated_and_true(
    ax: Axes, values: Mapping[str, tuple[np.ndarray, np.ndarray]], *, markersize: float = 4
) -> None:
    """Estimated over true value, `[seeds]` each, by label; equal on the dotted line."""
    both = np.concatenate([np.ravel(pair) for pair in values.values()])
    ends = np.nanmin(both), np.nanmax(both)
    ax.plot(ends, ends, color="black", linewidth=0.8, linestyle=":")
    for name, (estimated, true) in values.items():
        style = {"color": colour(name), "markersize": markersize, "alpha": 0.8}
        ax.plot(true, estimated, "o", label=name, **style)
    ax.set_xlabel("true value")
    ax.set_ylabel("estimated value")
