"""Tables and pictures of policies trained on a dataset and evaluated in its environment.

Cells are those of trained agents: their histories hold what `evaluator` records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.compare.draw import curves, level, picture
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports import pictures
from jaxrl_rollouts.reports.names import colour
from jaxrl_rollouts.reports.report import Report

from .arms import of_arm
from .choosing.choice import Choice, as_row, checked
from .choosing.choice import draw as draw_choice
from .conclusion import disagreeing
from .matching import is_simulator, unlike
from .result import TrainResult
from .task import Source, behaviour, score_in, slug
from .training import Best
from .worlds.fit import FittedDataset
from .worlds.quality import LEVELS, Quality

STEPS = (1, 5, 20, 50)
EXPLODED = 2000.0
COLUMNS = {
    "return": "return",
    "estimated value": "estimated_value",
    "true value": "discounted_return",
}
NOT_EVALUATED = "not evaluated"

RESULT = (
    "Return: undiscounted. True value: discounted return. Estimated value: of the critics at the "
    "start states."
)
IMAGINED = (
    "Imagined value: of the last policies in the world models, from the dataset's start states. A "
    "spread of the members as large as the value leaves it unknown."
)
WORLD = (
    'Errors: open loop, median, in standard deviations of the data; "if nothing changed" is a '
    "model that predicts no change. Inside 90 % interval: share of held-out outcomes."
)


def holdout(history: History, ensemble: EnsembleConfig) -> dict[str, Any]:
    """The selection metric of an ensemble, its holdout error, as a column."""
    by = ensemble.selection_metric
    return {f"holdout {by.upper()}": history.last(f"best_holdout_{by}")}


def world_row(world: FittedDataset, found: Quality) -> dict[str, Any]:
    """How good the world model of a dataset is, as a table row."""
    history = world.fitted.trained.history
    row = {"dataset": world.dataset.name, "rows": len(world.dataset)}
    row |= {"epochs": len(history.records), **holdout(history, world.config)}
    for step in STEPS:
        if step <= len(found.errors):
            row[f"error at step {step}"] = float(np.median(found.errors[step - 1]))
    last = max((step for step in STEPS if step <= len(found.errors)), default=1)
    for step in dict.fromkeys((1, last)):
        row[f"if nothing changed, at {step}"] = float(np.median(found.unchanged[step - 1]))
    return row | {"inside 90 % interval": float(found.inside[LEVELS.index(0.9)])}


def result_rows(setting: Source, method: str, cell: Cell, discount: float) -> list[dict[str, Any]]:
    """The behaviour of a dataset and a method, as table rows.

    Methods maximise the discounted value, of which the behaviour's stands beside theirs: who earns
    less undiscounted may be worth more, on Hopper for one, where many rewards are for standing.
    """
    name, played = setting.dataset.name, behaviour(setting)
    first: dict[str, Any] = {"dataset": name, "method": "behaviour", "return": float(played.mean())}
    row: dict[str, Any] = {"dataset": name, "method": method, "return": NOT_EVALUATED}
    shown = {column: metric for column, metric in COLUMNS.items() if metric in cell}
    row |= {column: cell[metric] for column, metric in shown.items()}
    if is_simulator(setting.env):
        for each, returns in ((first, played), (row, cell["return"])):
            score = score_in(setting.dataset, setting.env, returns)
            if score is not None:
                each["score"] = float(np.mean(score)) if each is first else score
    if "estimated_value" in cell or "discounted_return" in cell:
        first["true value"] = float(behaviour(setting, discount).mean())
    return [first, row]


def add_main_job(report: Report, setting: Source, cell: Cell) -> None:
    """The main job's report on a policy of any method: numbers, claim, environment."""
    if not is_simulator(setting.env):
        if "estimated_value" in cell:
            report.number("estimated value", cell["estimated_value"])
        return
    for column, metric in COLUMNS.items():
        if metric in cell:
            report.number(column, cell[metric])
    reasons = unlike(setting.dataset, setting.env, cell["length"]) or disagreeing(
        cell["return"], behaviour(setting).mean()
    )
    add_claim(
        report,
        "the policy is better than the data",
        cell["return"],
        at_least=behaviour(setting).mean(),
        means="return above the mean return of the dataset's episodes",
        source="the purpose of offline RL",
        cells=[cell],
        undecided=reasons,
    )
    if reasons:
        report.note(f"Whether the policy is better than the data is undecided: {reasons}.")
    note_environments(report, [setting])


GAIN = "gain"  # discounted value by `choose`, less the data's own


def draw_arms(report: Report, cell: Cell, arms: Sequence[str], seeds: int) -> None:
    """Returns while training, a curve for each arm."""
    drawn, (ax,) = pictures.figure(1, 1, titles=("Return",))
    steps, values = cell.curve("return")
    for i, name in enumerate(arms):
        pictures.curve_with_band(ax, steps, of_arm(values, i, seeds), name)
    ax.set_xlabel("gradient steps")
    ax.legend()
    report.picture("arms", drawn, "Means of the evaluations of the mean action while training.")


def gains(found: Choice) -> list[float]:
    """Values of the policies less the data's own."""
    return [row.value - found.behaviour[1] for row in found.table]


def add_choice(report: Report, found: Choice) -> None:
    """What `choose` found of the policies: a row for each seed, a picture, the check."""
    columns = ("policy", "verdict", "value", "low", "high", "beyond", "fqe", "why")
    rows = [{name: row[name] for name in columns} for row in map(as_row, found.table)]
    low, value, high = found.behaviour
    data = {"policy": "the data", "value": value, "low": low, "high": high}
    report.table("choice", [*rows, data])
    caption = (
        "Left: discounted values in world models that no training used, grey the data's own. "
        "Right: the share of steps on which these models agree as they do on the data."
    )
    report.picture("choice", draw_choice(found), caption)
    report.conclusion = [f"Without a simulator: {found.verdict}.", checked(found)]


def note_best(report: Report, best: Best | None) -> None:
    """What the policies of the best evaluations are, and what their returns are not."""
    if best is not None:
        returns = ", ".join(f"{value:.4g}" for value in best.returns)
        iterations = ", ".join(map(str, best.iterations))
        report.note(
            "Stored besides the last policies (policy-best): each seed's policy of the best "
            f"evaluation, with returns {returns} after iterations {iterations}. They were chosen "
            "by these returns in the true environment: the numbers are biased upwards, and no "
            "offline method could have made this choice."
        )


def note_differences(report: Report, result: TrainResult, source: str) -> None:
    """What differs from the paper, and where its settings are from."""
    if result.differs:
        where = f" ({source})" if source else ""
        report.note(f"Differs from the paper{where}: {'; '.join(result.differs)}.")


def note_environments(report: Report, settings: Iterable[Source]) -> None:
    """Where policies were played, each environment once."""
    for env in {setting.env.name: setting.env for setting in settings}.values():
        report.note(f"Evaluated in {env.name} ({env.version}).")


def draw_world(report: Report, world: Quality) -> None:
    """Open-loop error growth and calibration of the world models."""
    caption = (
        "Left: error of the learned model along logged actions, dashed that of a model that "
        "predicts no change. Right: how often outcomes fall inside the model's intervals, on "
        "held-out rows; on the dotted line it is calibrated, below overconfident."
    )
    titles = ("Open loop", "Calibration")
    with picture(report, "world_model", caption, titles=titles, title="World models") as (
        left,
        right,
    ):
        steps = np.arange(1, len(world.errors) + 1)
        low, middle, high = np.quantile(world.errors, [0.05, 0.5, 0.95], axis=1)
        left.plot(steps, middle, color="C0")
        left.fill_between(steps, low, high, color="C0", alpha=0.12, linewidth=0)
        still = np.median(world.unchanged, axis=1)
        left.plot(steps, still, color="C0", linestyle="--", linewidth=0.8)
        left.set(yscale="log", xlabel="step", ylabel="error in stds, median, 5-95 %")
        right.plot(LEVELS, world.inside, "o-", color="C0", markersize=3)
        right.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        right.set(xlabel="central interval of the model", ylabel="share of outcomes inside")


def draw_training(
    report: Report,
    setting: Source,
    method: str,
    cell: Cell,
    discount: float,
) -> None:
    """Return, and estimated against true value, while training on one dataset; and what its
    behaviour earns."""
    name, cells = setting.dataset.name, {method: cell}
    if not is_simulator(setting.env):
        caption = (
            "The critics' value where the dataset's episodes start. Dashed: what was "
            "earned from there by the behaviour, discounted."
        )
        with picture(report, f"training-{slug(name)}", caption, title=name, width=4.6) as (ax,):
            curves(ax, cells, "estimated_value")
            level(ax, behaviour(setting, discount).mean(), "behaviour", **_BEHAVIOUR)
            ax.set_ylabel("discounted value from the start")
        return
    caption = (
        "Left: return of the mean action. Right: the critics' value of the start states "
        "(solid) and the policy's true value (dotted). Dashed: the behaviour, its discounted value "
        "on the right."
    )
    titles = ("Return", "Estimated and true value")
    with picture(report, f"training-{slug(name)}", caption, titles=titles, title=name) as (
        left,
        right,
    ):
        curves(left, cells, "return")
        curves(right, cells, "estimated_value")
        steps, earned = cell.curve("discounted_return")
        lone = "x" if len(steps) == 1 else ""  # a line of one point is not to be seen
        middle, shade = np.median(earned, 0), colour(method)
        right.plot(steps, middle, color=shade, linestyle=":", marker=lone)
        level(left, behaviour(setting).mean(), "behaviour", **_BEHAVIOUR)
        level(right, behaviour(setting, discount).mean(), **_BEHAVIOUR)
        right.plot([], [], color="black", linestyle=":", label="true value of the same policy")
        values = np.append(earned, cell.curve("estimated_value")[1])
        if np.abs(values).max(initial=0.0) > EXPLODED:  # one such seed would hide the rest
            right.set_yscale("symlog", linthresh=100)
        left.set_ylabel("return in the true environment")
        right.set_ylabel("discounted value from the start")


_BEHAVIOUR = {"color": colour("behaviour"), "linewidth": None}


def draw_learning(report: Report, setting: Source, method: str, cell: Cell) -> None:
    """Return while training on one dataset."""
    name, caption = setting.dataset.name, "Return of the mean action while training."
    with picture(report, f"learning-{slug(name)}", caption, title=name, width=4.6) as (ax,):
        curves(ax, {method: cell}, "return")
        level(ax, behaviour(setting).mean(), "behaviour", **_BEHAVIOUR)
        ax.set_ylabel("return in the true environment")
