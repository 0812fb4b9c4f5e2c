"""Tables, claims and pictures of `guidance_gaussian`: the rules against the closed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import PALETTE, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.draw import curve_with_band

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 3 and public code"
BEHAVIOUR, POLICY = (0.8, 0.6), (-1.0, 0.5)  # slope of the action over the state, and spread
Found = Mapping[str, Mapping[int, np.ndarray]]  # rule -> steps -> [seeds, coefficients, 2]


def closed_form(coefficient: Any) -> tuple[Any, Any]:
    """Mean and standard deviation for behaviour N(0, 1) and policy N(1, 1)."""
    return coefficient / (1.0 + coefficient), 1.0 / np.sqrt(1.0 + coefficient)


def closed_form_given_state(coefficient: Any) -> tuple[Any, Any]:
    """Slope over the state and spread around it, for `BEHAVIOUR` and `POLICY`."""
    (k, s), (m, p) = BEHAVIOUR, POLICY
    precision = 1.0 / s**2 + coefficient / p**2
    return (k / s**2 + coefficient * m / p**2) / precision, 1.0 / np.sqrt(precision)


def add_tables(
    report: Report, name: str, found: Found, at: np.ndarray, exact: Callable, first: str
) -> None:
    wanted = exact(at)
    rows = [
        {
            "rule": rule, "steps": n, "coefficient": float(c),
            first: summarize(values[:, i, 0]), f"{first} of the product": float(wanted[0][i]),
            "spread": summarize(values[:, i, 1]),
            "spread of the product": float(wanted[1][i]),
        }
        for rule, of in found.items()
        for n, values in of.items()
        for i, c in enumerate(at)
    ]  # fmt: skip
    report.table(name, rows)


def errors(values: np.ndarray, wanted: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors over coefficients, `[seeds]`: of the first number and of the spread."""
    first = np.abs(values[..., 0] - wanted[0]).max(1)
    return first, np.abs(values[..., 1] / wanted[1] - 1.0).max(1)


def add_claims(report: Report, config: Any, alone: Found, given: Found) -> None:
    at = np.asarray(config.coefficients)
    fits = [errors(values, closed_form(at)) for values in alone["calibrated"].values()]
    for name, index, most in (("mean", 0, 0.02), ("spread", 1, 0.05)):
        report.claim(
            Claim.at_most(
                f"the calibrated rule has the product's {name} at every number of steps",
                values=np.stack([fit[index] for fit in fits], 1), threshold=most, statistic="max",
                source="pseudo-inverse guidance for normal targets",
                expected=f"error at most {most} at every coefficient",
            )
        )  # fmt: skip
    wanted = closed_form_given_state(at)
    for name, index, most in (("slope", 0, 0.04), ("spread", 1, 0.05)):
        values = errors(given["calibrated, joint"][config.steps[-1]], wanted)[index]
        report.claim(
            Claim.at_most(
                f"the joint rule has the product's {name} given the state",
                values=values, threshold=most, statistic="max", source="Tweedie's formula",
                expected=f"error at most {most} at every coefficient",
            )
        )  # fmt: skip
    nearest = int(np.argmin(np.abs(at - 1.0)))
    many, few = config.steps[-1], config.steps[0]
    published = alone["published"]
    report.claim(
        Claim.at_most(
            "the published rule collapses where its product would not",
            values=published[many][:, nearest, 1] / closed_form(at[nearest])[1], threshold=0.5,
            source=SOURCE,
            expected=f"spread below half of the product's at {many} steps, "
            f"coefficient {at[nearest]:g}",
        )
    )  # fmt: skip
    power = {n: _exponent(published[n][:, 0, 0]) for n in (few, many)}
    report.claim(
        Claim.at_least(
            "the published rule's strength grows with the number of steps",
            values=power[many] / power[few], threshold=0.5 * many / few, source=SOURCE,
            expected=f"effective exponent at {many} steps over that at {few}, at least half "
            f"of {many / few:g}",
        )
    )  # fmt: skip


def _exponent(mean: np.ndarray) -> np.ndarray:
    """The exponent whose product has this mean."""
    return mean / (1.0 - mean)


def draw(report: Report, config: Any, alone: Found, given: Found) -> None:
    at = np.asarray(config.coefficients)
    made, axes = figure(
        2, len(alone), titles=list(alone), sharex=True, width=2.9, height=2.3,
        title="Guided samples against the product (N(0, 1) data, N(1, 1) policy)",
    )  # fmt: skip
    for column, of in enumerate(alone.values()):
        for row, name in enumerate(("mean", "spread")):
            ax = axes[row * len(alone) + column]
            for (n, values), shade in zip(of.items(), PALETTE, strict=False):
                curve_with_band(ax, at, values[..., row], f"{n} steps", colour_name=shade)
            ax.plot(at, closed_form(at)[row], "k--", label="product", linewidth=1.2)
            ax.set_xscale("log")
            ax.set_ylabel(name)
            if row:
                ax.set_xlabel("guidance coefficient")
    legend(made, axes)
    caption = (
        "The calibrated rule follows the product at any number of steps; the published one gets "
        "stronger with more steps and collapses onto the policy."
    )
    report.picture("moments", made, caption)
    made, axes = figure(1, 2, title=f"Actions given the state, {config.steps[-1]} steps")
    for row, name in enumerate(("slope over the state", "spread around it")):
        for (rule, of), shade in zip(given.items(), PALETTE, strict=False):
            values = of[config.steps[-1]][..., row]
            curve_with_band(axes[row], at, values, rule, colour_name=shade)
        exact = closed_form_given_state(at)[row]
        axes[row].plot(at, exact, "k--", label="product", linewidth=1.2)
        axes[row].set_xscale("log")
        axes[row].set_xlabel("guidance coefficient")
        axes[row].set_ylabel(name)
    legend(made, axes)
    caption = (
        "Behaviour and policy depend on the state. Only the joint rule, which moves the state "
        "with the action, is the product given every state."
    )
    report.picture("given_state", made, caption)
