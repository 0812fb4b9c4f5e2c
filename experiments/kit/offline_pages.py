"""Tables and pictures of a dataset's study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.offline.data import Dataset, normalised_score
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.model_based import (
    LEVELS,
    Outcome,
    Setting,
    StudyConfig,
    World,
    behaviour,
    environment_of,
    slug,
    updates,
)
from jaxrl_rollouts.offline.study.model_free import ModelFreeStudyConfig, train_model_free_and_look
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .colours import colour
from .draw import curve_with_band, intervals

STEPS = (1, 5, 20, 50)
EXPLODED = 2000.0


def world_row(world: World) -> dict[str, Any]:
    """How good the world model of a dataset is, as a table row."""
    history = world.fitted.trained.history
    holdout = history.curve("best_holdout_mse")[1][-1]
    row: dict[str, Any] = {
        "dataset": world.dataset.name,
        "rows": len(world.dataset),
        "epochs": len(history.records),
        "holdout MSE": summarize(holdout),
    }
    for step in STEPS:
        if step <= len(world.errors):
            row[f"error at step {step}"] = float(np.median(world.errors[step - 1]))
    row["inside 90 % interval"] = float(world.inside[LEVELS.index(0.9)])
    return row


def result_rows(world: World | Setting, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """Behaviour and methods of one dataset, as table rows."""
    name, shown = world.dataset.name, behaviour(world)
    rows: list[dict[str, Any]] = [
        {"dataset": name, "method": "behaviour", "return": float(shown.mean())}
    ]
    for method, outcome in outcomes.items():
        rows.append(
            {
                "dataset": name,
                "method": method,
                "return": summarize(outcome.returns),
                "estimated value": summarize(outcome.estimated_value),
                "true value": summarize(outcome.true_value),
            }
        )
    for row, values in zip(rows, [shown, *(o.returns for o in outcomes.values())], strict=True):
        score = normalised_score(name, values)
        if score is not None:
            row["score"] = (
                float(np.mean(score)) if row["method"] == "behaviour" else summarize(score)
            )
    return rows


def add_main_job(report: Report, setting: World | Setting, outcome: Outcome) -> None:
    """What the main job says of a policy, whatever trained it: numbers, claim, where it played."""
    report.number("return", outcome.returns)
    report.number("estimated value", outcome.estimated_value)
    report.number("true value", outcome.true_value)
    report.claim(
        Claim.at_least(
            "the policy is better than the data", values=outcome.returns,
            threshold=float(behaviour(setting).mean()), source="the purpose of offline RL",
            expected="return above the mean return of the dataset's episodes",
        )
    )  # fmt: skip
    note_environments(report, [setting.env])


def note_environments(report: Report, environments: Iterable[Environment]) -> None:
    """Where policies were played, each environment once."""
    for env in {env.name: env for env in environments}.values():
        report.note(f"Evaluated in {env.name} ({env.version}).")


def note_shared_data(report: Report) -> None:
    """What the MuJoCo datasets of the committed reports are."""
    report.note(
        "The datasets are jr/*: real MuJoCo transitions in D4RL's layout, not D4RL's files. "
        "Scores use D4RL's reference returns and must not be compared with D4RL tables."
    )


def draw_world(report: Report, worlds: Mapping[str, World]) -> None:
    """Open-loop error growth and calibration of the world models."""
    made, (left, right) = figure(1, 2, title="World models", titles=("Open loop", "Calibration"))
    for index, (name, world) in enumerate(worlds.items()):
        steps = np.arange(1, len(world.errors) + 1)
        shade = f"C{index}"
        low, middle, high = np.quantile(world.errors, [0.05, 0.5, 0.95], axis=1)
        left.plot(steps, middle, color=shade, label=slug(name))
        left.fill_between(steps, low, high, color=shade, alpha=0.12, linewidth=0)
        right.plot(LEVELS, world.inside, "o-", color=shade, markersize=3)
    left.set_yscale("log")
    left.set_xlabel("step")
    left.set_ylabel("error in stds, median, 5-95 %")
    right.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    right.set_xlabel("central interval of the model")
    right.set_ylabel("share of outcomes inside")
    legend(made, (left, right))
    report.picture(
        "world_model", made,
        "Left: error of the learned model along logged actions. Right: how often outcomes fall "
        "inside the model's intervals; on the dotted line it is calibrated, below overconfident.",
    )  # fmt: skip


def draw_training(
    report: Report, world: World, outcomes: Mapping[str, Outcome], config: StudyConfig
) -> None:
    """Return, and promised against true value, while training on one dataset."""
    name = slug(world.dataset.name)
    made, (left, right) = figure(
        1, 2, title=world.dataset.name, titles=("Return", "Promised and true value")
    )
    drawn: list[np.ndarray] = []
    for method, outcome in outcomes.items():
        steps, curves = updates(outcome, config)
        curve_with_band(left, steps, curves["return"], method)
        curve_with_band(right, steps, curves["estimated_value"], method)
        true = np.median(curves["discounted_return"], axis=0)
        right.plot(steps, true, color=colour(method), linestyle=":")
        drawn += [true, np.median(curves["estimated_value"], axis=0)]
    left.axhline(behaviour(world).mean(), color=colour("behaviour"), linestyle="--",
                 label="behaviour")  # fmt: skip
    right.plot([], [], color="black", linestyle=":", label="true value of the same policy")
    if np.abs(np.concatenate(drawn)).max() > EXPLODED:  # one exploding critic would hide the rest
        right.set_yscale("symlog", linthresh=100)
    for ax in (left, right):
        ax.set_xlabel("gradient steps")
    left.set_ylabel("return in the true environment")
    right.set_ylabel("discounted value from the start")
    legend(made, (left, right))
    report.picture(
        f"training-{name}", made,
        "Left: return of the mean action. Right: what the critics promise from the start states "
        "(solid) and what the policy earns (dotted).",
    )  # fmt: skip


def draw_comparison(
    report: Report, worlds: Mapping[str, World | Setting],
    results: Mapping[str, Mapping[str, Outcome]],
) -> None:  # fmt: skip
    """Final returns of all methods on all datasets, one panel per dataset."""
    columns = min(len(worlds), 2)
    made, axes = figure(
        -(-len(worlds) // columns), columns, height=2.0, title="Final return",
        titles=[slug(name) for name in worlds],
    )  # fmt: skip
    for ax, (name, world) in zip(axes, worlds.items(), strict=False):
        intervals(ax, {m: o.returns for m, o in results[name].items()}, xlabel="return")
        ax.axvline(behaviour(world).mean(), color=colour("behaviour"), linestyle="--")
    for ax in axes[len(worlds) :]:
        ax.set_visible(False)
    report.picture(
        "comparison", made,
        "Bars: 95 % bootstrap interval of the interquartile mean over seeds; dots: seeds; dashed: "
        "mean return of the behaviour that made the data.",
    )  # fmt: skip


def run_model_free(
    name: str, dataset: Dataset, study: StudyConfig, config: ModelFreeStudyConfig,
    context: RunContext,
) -> Report:  # fmt: skip
    """Train, evaluate, report."""
    setting = Setting(dataset, environment_of(dataset))
    outcome = train_model_free_and_look(name, setting, study, config, context)
    report = Report.of(context, study.seeds)
    played = behaviour(setting)
    rows = [
        {"dataset": dataset.name, "method": "behaviour", "return": float(played.mean())},
        {"dataset": dataset.name, "method": name, "return": summarize(outcome.returns)},
    ]
    report.table("result", rows)
    _draw(report, name, outcome, float(played.mean()), config)
    add_main_job(report, setting, outcome)
    return report


def _draw(
    report: Report, name: str, outcome: Outcome, played: float, config: ModelFreeStudyConfig
) -> None:
    history = outcome.trained.history
    made, axes = figure(1, 2, titles=("return", "value of start states"))
    at, returns = history.curve("return")
    steps = np.asarray(at) * config.per_iteration
    curve_with_band(axes[0], steps, returns.T, name)
    axes[0].axhline(played, color="#777777", linestyle=":", label="behaviour")
    for metric, style in (("estimated_value", "-"), ("discounted_return", "--")):
        label = f"{name}, {'promised' if style == '-' else 'earned'}"
        values = history.curve(metric)[1]
        curve_with_band(axes[1], steps, values.T, label, linestyle=style)
    for ax in axes:
        ax.set_xlabel("gradient steps")
    legend(made, axes)
    report.picture("training", made, "Return while training, and what the critics promise of it")
