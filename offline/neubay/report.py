"""Tables and pictures of NEUBAY: horizons over training, estimated and true value, thresholds."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.reports.names import colour
from jaxrl_rollouts.reports.report import Report

from ..report import holdout
from ..task import Source, slug
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


def add_posterior(report: Report, source: Source, cell: Cell) -> None:
    """Add the posterior's table, if it was fitted, and its rollouts' table and picture."""
    name = source.dataset.name
    if isinstance(source, Posterior):
        report.table("world model", [posterior_row(source)])
    lengths = {column: cell[metric] for column, metric in HORIZONS.items()}
    report.table("rollouts", [{"dataset": name, **lengths}])
    draw_horizons(report, name, cell)
    if "discounted_return" in cell:
        draw_values(report, name, cell)


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


def draw_horizons(report: Report, dataset: str, cell: Cell) -> None:
    """Imagined steps over training, and what ended them."""
    name, titles = f"horizons-{slug(dataset)}", ("Imagined steps", "What ended them")
    caption = (
        "Left: imagined steps of a collection, medians over seeds of median and quartiles over "
        "rollouts. Right: what ended them."
    )
    steps, shade = cell.curve("horizon_median")[0], colour("neubay")
    with picture(report, name, caption, titles=titles, title=dataset) as (left, right):
        low, middle, high = (
            np.median(cell.curve(f"horizon_{which}")[1], 0) for which in ("low", "median", "high")
        )
        left.plot(steps, middle, color=shade)
        left.fill_between(steps, low, high, color=shade, alpha=0.15, linewidth=0)
        left.set_yscale("symlog", linthresh=1)
        ends = ("threshold", "termination", "limit")
        shares = [cell.curve(f"ended_{end}")[1].mean(0) for end in ends]
        right.stackplot(steps, *shares, labels=ends, alpha=0.6)
        left.set(xlabel="gradient steps", ylabel="steps, median and quartiles")
        right.set(xlabel="gradient steps", ylabel="share", ylim=(0, 1))


def draw_values(report: Report, dataset: str, cell: Cell) -> None:
    """Estimated against true value, a point per seed; equal on the dotted line."""
    caption = (
        "The critics' estimate at the start states against the policy's discounted return from "
        "there; on the dotted line they are right, above it they overestimate."
    )
    estimated, true = cell["estimated_value"], cell["discounted_return"]
    title = f"Estimated and true value, {slug(dataset)}"
    with picture(report, "values", caption, title=title, width=4.6) as (ax,):
        both = np.append(estimated, true)
        ends = np.nanmin(both), np.nanmax(both)
        ax.plot(ends, ends, color="black", linewidth=0.8, linestyle=":")
        ax.plot(true, estimated, "o", color=colour("neubay"), markersize=4, alpha=0.8)
        ax.set(xlabel="true value", ylabel="estimated value")
