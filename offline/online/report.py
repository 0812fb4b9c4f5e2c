"""The report of an online training: its learning curve."""

from __future__ import annotations

from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import curve_with_band, figure
from jaxrl_rollouts.reports.report import Report

from .train import Online


def online_report(outcome: Online, context: RunContext) -> Report:
    """What was earned after how many steps, as table and picture."""
    steps, returns = outcome.curve()
    estimated = outcome.curve("estimated_value")[1]
    earned = outcome.curve("discounted_return")[1]
    report = Report.of(context, returns.shape[1])
    report.wall_seconds = outcome.trained.wall_seconds
    report.compile_seconds = outcome.trained.compile_seconds
    report.number("return", returns[-1])
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
    agent, config = outcome.settings, outcome.config
    report.note(
        f"SAC with {agent.num_critics} critics, networks of "
        f"{' x '.join(map(str, agent.hidden_dims))}, "
        f"{config.update_ratio:g} gradient steps of {config.batch_size} rows for each step in "
        f"{config.environments} copies of {outcome.env.name} ({outcome.env.version})."
    )
    return report
