"""Tables and pictures of NEUBAY: horizons over training, promised and earned value, thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.study.model_based import Outcome, Setting, StudyConfig, behaviour, slug
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    Posterior,
    fit_posterior,
    markov,
    ring_note,
    train_neubay_and_look,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .colours import colour
from .draw import curve_with_band
from .offline_pages import add_main_job, result_rows


def posterior_row(posterior: Posterior) -> dict[str, Any]:
    """The ensembles of a dataset and how far they can be trusted, as a table row."""
    row: dict[str, Any] = {
        "dataset": posterior.dataset.name, "rows": len(posterior.dataset),
        "members": posterior.model.elites,
    }  # fmt: skip
    if posterior.trained is not None:
        history = posterior.trained.history
        row["epochs"] = len(history.records)
        row["holdout MSE"] = summarize(history.curve("best_holdout_mse")[1][-1])
    row["mean spread"] = summarize(np.asarray(posterior.trust.mean))
    levels = np.asarray(posterior.trust.levels)[0]
    for at, level in enumerate(levels):
        if level >= 0.9:
            row[f"spread at {level:g}"] = summarize(np.asarray(posterior.trust.quantiles)[:, at])
    return row


def horizon_row(dataset: str, name: str, outcome: Outcome) -> dict[str, Any]:
    """How long the last collection's rollouts were, what ended them, what the critics said."""
    last = outcome.trained.history.last
    shown = {
        "median horizon": "horizon_median", "longest": "horizon_longest",
        "ended by threshold": "ended_threshold", "by termination": "ended_termination",
        "by the limit": "ended_limit", "Q on real": "q_real", "Q on imagined": "q_imagined",
        "entropy": "entropy", "alpha": "alpha",
    }  # fmt: skip
    return {"dataset": dataset, "arm": name} | {k: summarize(last(v)) for k, v in shown.items()}


def draw_horizons(
    report: Report, dataset: str, outcomes: Mapping[str, Outcome], per_iteration: int
) -> None:
    """Imagined steps over training, medians with quartiles, and what ended them in the first arm.

    Args:
        report: where it goes.
        dataset: for titles.
        outcomes: NEUBAY's arms.
        per_iteration: gradient steps of an iteration.
    """
    made, (left, right) = figure(1, 2, title=dataset, titles=("Imagined steps", "What ended them"))
    for name, outcome in outcomes.items():
        curve = outcome.trained.history.curve
        at, middle = curve("horizon_median")
        steps, shade = np.asarray(at) * per_iteration, colour(name)
        left.plot(steps, np.median(middle, 1), color=shade, label=name)
        low, high = (np.median(curve(n)[1], 1) for n in ("horizon_low", "horizon_high"))
        left.fill_between(steps, low, high, color=shade, alpha=0.15, linewidth=0)
    left.set_yscale("symlog", linthresh=1)
    curve = next(iter(outcomes.values())).trained.history.curve
    shares = [curve(f"ended_{n}")[1].mean(1) for n in ("threshold", "termination", "limit")]
    right.stackplot(steps, *shares, labels=("threshold", "termination", "limit"), alpha=0.6)
    right.set_ylim(0, 1)
    for ax in (left, right):
        ax.set_xlabel("gradient steps")
    left.set_ylabel("steps, median and quartiles")
    right.set_ylabel(f"share, {next(iter(outcomes))}")
    legend(made, (left, right))
    report.picture(
        f"horizons-{slug(dataset)}", made,
        "Left: imagined steps of a collection, medians over seeds of median and quartiles over "
        "rollouts. Right: what ended them.",
    )  # fmt: skip


def draw_values(report: Report, results: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Promised against earned value of every method, a point per seed, a panel per dataset."""
    columns = min(len(results), 2)
    made, axes = figure(
        -(-len(results) // columns), columns, title="Promised and earned value",
        titles=[slug(name) for name in results],
    )  # fmt: skip
    for ax, of in zip(axes, results.values(), strict=False):
        both = np.concatenate([np.stack([o.true_value, o.estimated_value]) for o in of.values()], 1)
        ends = np.nanmin(both), np.nanmax(both)
        ax.plot(ends, ends, color="black", linewidth=0.8, linestyle=":")
        for name, outcome in of.items():
            ax.plot(outcome.true_value, outcome.estimated_value, "o", color=colour(name),
                    markersize=4, alpha=0.8, label=name)  # fmt: skip
        ax.set_xlabel("earned, discounted")
        ax.set_ylabel("promised")
    for ax in axes[len(results) :]:
        ax.set_visible(False)
    legend(made, axes[: len(results)])
    report.picture(
        "values", made,
        "What the critics promise from the start states against what the policy earns there; on "
        "the dotted line they are right, above it they overestimate.",
    )  # fmt: skip


def draw_learning(
    report: Report, dataset: str, setting: Setting,
    curves: Mapping[str, tuple[Outcome, int]],
) -> None:  # fmt: skip
    """Return while training, over gradient steps; `curves` has each method's per iteration."""
    made, (ax,) = figure(title=dataset, width=4.6)
    for name, (outcome, per_iteration) in curves.items():
        at, returns = outcome.trained.history.curve("return")
        curve_with_band(ax, np.asarray(at) * per_iteration, returns.T, name)
    played = behaviour(setting).mean()
    ax.axhline(played, color=colour("behaviour"), linestyle="--", label="behaviour")
    ax.set_xlabel("gradient steps")
    ax.set_ylabel("return in the true environment")
    legend(made, (ax,))
    report.picture(f"learning-{slug(dataset)}", made, "Return of the mean action while training.")


def run_neubay(
    name: str, dataset: Dataset, study: StudyConfig, config: NeubayStudyConfig,
    context: RunContext,
) -> Report:  # fmt: skip
    """The main job with NEUBAY: fit, train, evaluate, report."""
    posterior = fit_posterior(dataset, study, config, context)
    agent: NeubayConfig = config.agent if name == "neubay" else markov(config.agent)
    outcome = train_neubay_and_look(name, posterior, study, agent, context)
    setting = Setting(dataset, posterior.env)
    report = Report.of(context, study.seeds)
    report.table("result", result_rows(setting, {name: outcome}))
    report.table("world model", [posterior_row(posterior)])
    report.table("rollouts", [horizon_row(dataset.name, name, outcome)])
    draw_learning(report, dataset.name, setting, {name: (outcome, agent.updates_per_iteration)})
    draw_horizons(report, dataset.name, {name: outcome}, agent.updates_per_iteration)
    draw_values(report, {dataset.name: {name: outcome}})
    report.note(ring_note(posterior, study, agent))
    add_main_job(report, setting, outcome)
    return report
