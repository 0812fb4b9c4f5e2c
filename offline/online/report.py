"""The report of an online training: its learning curve, and what a fine-tuning gained."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import curve_with_band, figure
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.text import format_number

from .rows import mix_of
from .train import Online

NAMES = {"return": "return", "estimated value": "estimated_value", "earned": "discounted_return"}


def online_report(outcome: Online, context: RunContext) -> Report:
    """What was earned after how many steps, as table and picture."""
    steps, before = outcome.curve()[0], outcome.before
    found = {name: outcome.curve(metric)[1] for name, metric in NAMES.items()}
    if before is not None:
        steps = np.append(0, steps)
        found = {name: np.vstack([before[NAMES[name]], x]) for name, x in found.items()}
    returns, estimated, earned = found.values()
    report = Report.of(context, returns.shape[1])
    report.wall_seconds = outcome.trained.wall_seconds
    report.compile_seconds = outcome.trained.compile_seconds
    report.number("return", returns[-1])
    last = {"return": returns[-1], "estimated value": estimated[-1], "true value": earned[-1]}
    about = {name: outcome.about[name] for name in ("dataset", "method")}
    report.table("result", [{**about, **last}])
    rows = zip(steps.tolist(), returns, estimated, earned, strict=True)
    report.table(
        "learning curve",
        [
            {"steps": step, "return": now, "estimated value": value, "earned value": true}
            for step, now, value, true in rows
        ],
    )
    drawn, (left, right) = figure(1, 2, titles=("Return", "Discounted value"))
    curve_with_band(left, steps, returns.T, "return")
    curve_with_band(right, steps, estimated.T, "estimated")
    curve_with_band(right, steps, earned.T, "earned")
    right.legend()
    for ax in (left, right):
        ax.set_xlabel(f"steps in {outcome.env.name}")
    caption = f"Means of {outcome.config.episodes} episodes with the mean action while training."
    report.picture("learning_curve", drawn, caption)
    if before is not None:
        _gain(report, before["return"], returns[-1], outcome.steps)
    config, data = outcome.config, outcome.about["dataset"]
    report.note(
        f"{outcome.about['method']}: {config.update_ratio:g} gradient steps of "
        f"{config.batch_size} rows for each step in {config.environments} copies of "
        f"{outcome.env.name} ({outcome.env.version}); {mix_of(config.share, data)}."
    )
    shown = ", ".join(f"{name} {value}" for name, value in asdict(outcome.settings).items())  # type: ignore[call-overload]
    report.note(f"Agent: {shown}.")
    return report


def _gain(report: Report, before: np.ndarray, after: np.ndarray, steps: int) -> None:
    """Whether every seed earns more than it began with."""
    gain, seeds = after - before, len(after)
    add_claim(
        report,
        "fine-tuning improves the policy",
        gain,
        source="the purpose of fine-tuning",
        means="return after it, less that before it",
        at_least=0.0,
    )
    better = int((gain > 0).sum())
    ends = " to ".join(format_number(float(x)) for x in (before.mean(), after.mean()))
    report.conclusion = [
        f"Return {ends} (mean of {seeds} seeds) in {steps:,} steps; {better} of {seeds} improved.",
    ]
