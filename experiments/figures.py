"""Plot the pages' pictures from `evidence/*.csv`.

    python -m jaxrl_rollouts.experiments.figures [--format svg] [--out FOLDER]

Names, units and one colour a method stand here once. Pictures of fields and of values over a plane
are copies from runs, since their arrays are not in the tables.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxrl_rollouts.offline.report import COLOURS as AGENTS
from jaxrl_rollouts.reports import pictures
from jaxrl_rollouts.reports.statistics import iqm

HERE = Path(__file__).parent
METHODS = ("bc", "base", "mopo", "mobile", "ravl", "edac", "neubay")
NAMES = {method: method.upper() for method in METHODS} | {"base": "MBPO"}
COLOURS = {**AGENTS, "edac": "#009E73"}


class Evidence:
    """One study's table."""

    def __init__(self, name: str, folder: Path = HERE / "evidence") -> None:
        with (folder / f"{name}.csv").open() as file:
            self.rows = list(csv.DictReader(file))

    def seeds(self, arm: str, metric: str, *, whole: bool = False) -> np.ndarray:
        """`[seeds]` of an arm's metric, or its one value for all; empty where there is none."""
        rows = (r for r in self.rows if r["arm"] == arm and r["metric"] == metric)
        return np.array([float(r["value"]) for r in rows if (r["seed"] == "all") == whole])


def estimates() -> Figure:
    """NEUBAY's page: estimated and true value of four methods, every seed."""
    found, methods = Evidence("neubay"), ("base", "mopo", "ravl", "neubay")
    figure, (ax,) = pictures.figure(1, 1, width=5.6, height=3.0)
    for at, method in enumerate(methods):
        arm = f"promises: results: {method}"
        values = found.seeds(arm, "estimated value"), found.seeds(arm, "true value")
        shown = (values[0], -0.15, "o"), (values[1], 0.15, "s")
        for values, aside, marker in shown:
            face = COLOURS[method] if marker == "o" else "none"
            x = np.full(len(values), at + aside)
            ax.plot(x, values, marker, color=COLOURS[method], markerfacecolor=face, markersize=6)
            ax.plot([at + aside], [iqm(values)], "_", color=COLOURS[method], markersize=20)
    ax.plot([], [], "o", color="#555555", label="critics' estimate")
    ax.plot([], [], "s", color="#555555", markerfacecolor="none", label="true value")
    ax.legend()
    ax.set_xticks(range(len(methods)), [NAMES[m] for m in methods])
    ax.set_ylabel("discounted value at the start")
    ax.set_title("HalfCheetah, 4 seeds; bars: interquartile mean")
    return figure


def returns() -> Figure:
    """RAVL's page: returns of six methods on two sets."""
    found = Evidence("ravl_mujoco")
    sets = {
        "halfcheetah-mixed (403456ec), 4 seeds": "ravl_mujoco/halfcheetah-mixed-six-forty",
        "halfcheetah-medium (7d282939), 4 seeds": "ravl_mujoco/halfcheetah-medium-six-forty",
    }
    methods = METHODS[:-1]
    figure, axes = pictures.figure(1, 2, width=3.6, height=2.8, titles=tuple(sets))
    for ax, run in zip(axes, sets.values(), strict=True):
        for at, method in enumerate(methods):
            values = found.seeds(f"{run}: results: {method}", "mean of the last evaluations")
            dots(ax, at, values, COLOURS[method])
        (data,) = found.seeds(f"{run}: results: behaviour", "return", whole=True)
        ax.axhline(data, color="#777777", linestyle="--", label="data")
        ax.set_xticks(range(len(methods)), [NAMES[m] for m in methods], fontsize=7)
        ax.set_ylim(bottom=0)
        ax.set_xlim(-0.5, len(methods) - 0.5)
        ax.legend(loc="lower right")
    axes[0].set_ylabel("undiscounted return")
    return figure


def policy_value() -> Figure:
    """Policy value's page: critics' and rollouts' estimates against the truth."""
    found, run = Evidence("policy_value"), "ravl_mujoco/halfcheetah-medium-six-forty"
    titles = ("Critics", "Rollouts in the models")
    figure, axes = pictures.figure(1, 2, width=3.4, height=3.0, titles=titles)
    for ax, metric in zip(axes, ("by critics", "by models"), strict=True):
        for method, name in NAMES.items():
            arm = f"{run}: value of policies: {method}"
            true, estimate = found.seeds(arm, "true value"), found.seeds(arm, metric)
            if len(estimate):
                ax.plot(true, estimate, "o", color=COLOURS[method], label=name, markersize=5)
        ax.axline((100, 100), slope=1, color="black", linestyle=":", linewidth=0.8)
        ax.set_xlabel("true discounted value")
    axes[0].set_ylabel("estimated value")
    axes[1].legend(fontsize=7)
    return figure


def refinement() -> Figure:
    """PDE-Refiner's page: rollout time over MSE's, every seed."""
    found = Evidence("refiner")
    cases = {
        "length 22\n0.1M weights": "ks_refiner/standardised",
        "length 58-70\n0.1M weights": "ks_refiner/long-domain-small",
        "length 58-70\n1.9M weights": "ks_refiner/long-domain",
    }
    figure, (ax,) = pictures.figure(1, 1, width=4.6, height=2.8)
    for at, run in enumerate(cases.values()):
        mse, refiner = (
            found.seeds(f"{run}: rollouts: {m}", "T(0.8), mean curve") for m in ("mse", "refiner")
        )
        dots(ax, at, refiner / mse, "#009E73")
        ax.annotate(f"n = {len(mse)}", (at, 1.12), ha="center", fontsize=8)
    ax.axhline(1.0, color="black", linestyle="--", linewidth=0.8, label="MSE training")
    ax.set_xticks(range(len(cases)), list(cases), fontsize=8)
    ax.set_ylim(0.58, 1.16)
    ax.set_xlim(-0.4, len(cases) - 0.6)
    ax.set_ylabel("rollout time over MSE's")
    ax.legend(loc="lower right")
    return figure


def dots(ax: Axes, at: float, values: np.ndarray, colour: str) -> None:
    """Seeds as dots, their interquartile mean as a bar."""
    ax.plot(np.full(len(values), at), values, "o", color=colour, markersize=4, alpha=0.7)
    ax.plot([at], [iqm(values)], "_", color=colour, markersize=18, markeredgewidth=2)


FIGURES: Mapping[str, Callable[[], Figure]] = {
    "neubay": estimates,
    "ravl_mujoco": returns,
    "policy_value": policy_value,
    "refiner": refinement,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="png", choices=("png", "svg", "pdf"))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "pictures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(given.out / f"{name}.{given.format}", dpi=150)


if __name__ == "__main__":
    main()
