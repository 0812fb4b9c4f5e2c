"""Tables, claims and pictures of `guidance_gaussian`: the rules against the closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.experiments.kit.claims import claims
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, picture
from jaxrl_rollouts.experiments.kit.grid import Grid
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .guidance_gaussian_cells import ACTIONS, Config, closed_form, closed_form_given_state

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 3 and public code"
MOMENTS = (
    "The calibrated rule follows the product at any number of steps; the published one gets "
    "stronger with more steps and collapses onto the policy."
)
GIVEN = (
    "Behaviour and policy depend on the state. Only the joint rule, which moves the state "
    "with the action, is the product given every state."
)


def page(report: Report, config: Config, grid: Grid) -> None:
    """Everything there is to say."""
    at = np.asarray(config.coefficients)
    alone, given = (grid.at(setting=setting) for setting in ("alone", "given state"))
    report.table("alone", rows(alone, at, closed_form, "mean"))
    report.table("given the state", rows(given, at, closed_form_given_state, "slope"))
    add_claims(report, config, alone, given)
    draw(report, config, alone, given)
    report.note("The denoiser is exact: no network is trained.")
    report.note(
        f"'published' normalises the gradient over {ACTIONS} actions, as its trajectories do; "
        f"S_churn is {config.churn:g}."
    )


def rows(grid: Grid, at: np.ndarray, exact: Callable, first: str) -> list[dict[str, Any]]:
    """One per rule, number of steps and coefficient; `exact` gives the product's numbers."""
    table = []
    for (rule, steps), cell in grid.items():
        for i, coefficient in enumerate(at.tolist()):
            row: dict[str, Any] = {"rule": rule, "steps": steps, "coefficient": coefficient}
            for j, name in enumerate((first, "spread")):
                row[name] = summarize(cell["moments"][:, i, j])
                row[f"{name} of the product"] = float(exact(at)[j][i])
            table.append(row)
    return table


def errors(values: np.ndarray, wanted: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors over coefficients, `[seeds]`: of the first number and of the spread."""
    first = np.abs(values[..., 0] - wanted[0]).max(1)
    return first, np.abs(values[..., 1] / wanted[1] - 1.0).max(1)


def within(most: float) -> dict[str, Any]:
    """How claims put it that no error is above `most`."""
    means = f"error at most {most} at every coefficient"
    return {"at_most": most, "statistic": "max", "means": means}


def add_claims(report: Report, config: Config, alone: Grid, given: Grid) -> None:
    claim, at = claims(report, SOURCE), np.asarray(config.coefficients)
    few, many = config.steps[0], config.steps[-1]
    calibrated = alone.at(rule="calibrated").values()
    fits = np.stack([errors(cell["moments"], closed_form(at)) for cell in calibrated], 2)
    joint = errors(given["calibrated, joint", many]["moments"], closed_form_given_state(at))
    for name, values, most in (("mean", fits[0], 0.02), ("spread", fits[1], 0.05)):
        text = f"the calibrated rule has the product's {name} at every number of steps"
        claim(text, values, **within(most), source="pseudo-inverse guidance for normal targets")
    for name, values, most in (("slope", joint[0], 0.04), ("spread", joint[1], 0.05)):
        text = f"the joint rule has the product's {name} given the state"
        claim(text, values, **within(most), source="Tweedie's formula")
    published = {steps: alone["published", steps]["moments"] for steps in (few, many)}
    nearest = int(np.argmin(np.abs(at - 1.0)))
    claim(
        "the published rule collapses where its product would not",
        published[many][:, nearest, 1] / closed_form(at[nearest])[1],
        at_most=0.5,
        means=f"spread below half of the product's at {many} steps, coefficient {at[nearest]:g}",
    )
    # The exponent whose product has this mean.
    power = {n: values[:, 0, 0] / (1.0 - values[:, 0, 0]) for n, values in published.items()}
    means = (
        f"effective exponent at {many} steps over that at {few}, at least half of {many / few:g}"
    )
    text, values = (
        "the published rule's strength grows with the number of steps",
        power[many] / power[few],
    )
    claim(text, values, at_least=0.5 * many / few, means=means)


def lines(ax: Axes, at: np.ndarray, curves: dict[str, np.ndarray], exact: np.ndarray) -> None:
    """Curves over the coefficient, each in a colour of its own, beside the closed form."""
    for (label, values), shade in zip(curves.items(), PALETTE, strict=False):
        curve_with_band(ax, at, values, label, colour_name=shade)
    ax.plot(at, exact, "k--", label="product", linewidth=1.2)
    ax.set_xscale("log")


def draw(report: Report, config: Config, alone: Grid, given: Grid) -> None:
    at, many = np.asarray(config.coefficients), config.steps[-1]
    rules = list(dict.fromkeys(rule for rule, _ in alone))
    title = "Guided samples against the product (N(0, 1) data, N(1, 1) policy)"
    panels: dict[str, Any] = {"titles": (*rules, *[""] * len(rules)), "columns": len(rules)}
    panels |= {"sharex": True, "width": 2.9, "height": 2.3}
    with picture(report, "moments", MOMENTS, title=title, **panels) as axes:
        for i, ax in enumerate(axes):
            cells, j = alone.at(rule=rules[i % len(rules)]), i // len(rules)
            curves = {f"{n} steps": cell["moments"][..., j] for n, cell in cells.items()}
            lines(ax, at, curves, closed_form(at)[j])
            ax.set(ylabel=("mean", "spread")[j], xlabel="guidance coefficient" if j else "")
    title, cells = f"Actions given the state, {many} steps", given.at(steps=many)
    with picture(report, "given_state", GIVEN, titles=("", ""), title=title) as axes:
        for j, name in enumerate(("slope over the state", "spread around it")):
            curves = {rule: cell["moments"][..., j] for rule, cell in cells.items()}
            lines(axes[j], at, curves, closed_form_given_state(at)[j])
            axes[j].set(ylabel=name, xlabel="guidance coefficient")
