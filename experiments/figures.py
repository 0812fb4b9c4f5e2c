"""Plot the pages' pictures from `evidence/*.csv`.

    python -m jaxrl_rollouts.experiments.figures [--format svg] [--out FOLDER]

Names and one colour a method come from `reports.names`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxrl_rollouts.reports import pictures
from jaxrl_rollouts.reports.names import colour, named
from jaxrl_rollouts.reports.statistics import iqm

HERE = Path(__file__).parent
LOGS = ("medium", "medium-replay")


class Evidence:
    """One study's table."""

    def __init__(self, name: str, folder: Path = HERE / "evidence") -> None:
        with (folder / f"{name}.csv").open() as file:
            self.rows = list(csv.DictReader(file))

    def seeds(self, arm: str, metric: str, *, whole: bool = False) -> np.ndarray:
        """`[seeds]` of an arm's metric, or its one value for all; empty where there is none."""
        # Some arms end in the number of their row.
        rows = (r for r in self.rows if r["arm"].partition(", row=")[0] == arm)
        rows = (r for r in rows if r["metric"] == metric)
        return np.array([float(r["value"]) for r in rows if (r["seed"] == "all") == whole])


def estimates() -> Figure:
    """NEUBAY's page: estimated and true value of four methods, every seed."""
    methods = ("base", "mopo", "ravl", "neubay")
    figure, (ax,) = pictures.figure(1, 1, width=5.6, height=3.0)
    pairs(ax, Evidence("neubay"), {named(m): f"promises: results: {m}" for m in methods})
    ax.legend()
    ax.set_ylabel("discounted value at the start")
    ax.set_title("HalfCheetah, 4 seeds; bars: interquartile mean")
    return figure


def pairs(ax: Axes, found: Evidence, arms: Mapping[str, str]) -> None:
    """Estimated (filled) and true values (open) of each seed, arms by label."""
    for at, (label, arm) in enumerate(arms.items()):
        for metric, aside, marker in (("estimated value", -0.15, "o"), ("true value", 0.15, "s")):
            values, shade = found.seeds(arm, metric), colour(label)
            face, x = shade if marker == "o" else "none", np.full(len(values), at + aside)
            ax.plot(x, values, marker, color=shade, markerfacecolor=face, markersize=5)
            ax.plot(x[:1], [iqm(values)], "_", color=shade, markersize=18)
    ax.plot([], [], "o", color="#555555", label="critics' estimate")
    ax.plot([], [], "s", color="#555555", markerfacecolor="none", label="true value")
    ax.set_xticks(range(len(arms)), list(arms))
    ax.set_xlim(-0.5, len(arms) - 0.5)


def exact_model() -> Figure:
    """The toy's page: estimated and true value with the exact model, by rollout length."""
    arms = {"MBPO": "base", "true values\nat the edge": "oracle patch", "RAVL": "ravl 10, 1"}
    lengths, found = (4, 6, 8), Evidence("edge_of_reach_toy")
    titles = tuple(f"rollouts of k = {k} steps" for k in lengths)
    figure, axes = pictures.figure(1, 3, width=2.6, height=3.0, titles=titles, sharey=True)
    for ax, k in zip(axes, lengths, strict=True):
        start = "edge_of_reach_toy: after training"
        pairs(ax, found, {name: f"{start}: {arm}, k={k}" for name, arm in arms.items()})
        ax.axhline(100, color="black", linestyle="--", linewidth=0.8, label="highest possible")
        ax.set_yscale("symlog", linthresh=100)
    axes[0].set_ylabel("discounted value at the start")
    pictures.legend(figure, axes)
    return figure


def policy_value() -> Figure:
    """Policy value's page: three estimates against the truth, a dot for each policy."""
    found = Evidence("policy_value")
    sets = [f"{name}-{log}-mini-v1" for name in ("halfcheetah", "hopper") for log in LOGS]
    titles = {"critics": "Critics", "models": "Rollouts in models", "fqe": "Fitted Q evaluation"}
    made, axes = pictures.figure(1, 3, width=2.8, height=3.0, titles=tuple(titles.values()))
    for ax, estimator in zip(axes, titles, strict=True):
        for method in ("base", "mopo", "mobile", "ravl", "iql", "rebrac"):
            arms = [f"choose/{s}: {estimator}: {method}/{k}" for s in sets for k in range(4)]
            true, estimate = ([found.seeds(arm, m) for arm in arms] for m in ("true", "value"))
            style = {"color": colour(method), "label": named(method), "markersize": 4}
            ax.plot(np.concatenate(true), np.concatenate(estimate), "o", **style)
        equal = np.linspace(-200, 400, 601)
        ax.plot(equal, equal, color="black", linestyle=":", linewidth=0.8, label="equal")
        ax.set_xlabel("true discounted value")
    axes[0].set_yscale("symlog", linthresh=400)
    axes[0].set_yticks([0, 1e3, 1e5, 1e7, 1e9])
    axes[0].set_ylabel("estimated value")
    pictures.legend(made, axes, columns=7)
    return made


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
        arms, metric = [f"{run}: rollouts: {m}" for m in ("mse", "refiner")], "T(0.8), mean curve"
        mse, refiner = (found.seeds(arm, metric) for arm in arms)
        dots(ax, at, refiner / mse, colour("refiner"))
        ax.annotate(f"n = {len(mse)}", (at, 1.12), ha="center", fontsize=8)
    ax.axhline(1.0, color="black", linestyle="--", linewidth=0.8, label="MSE training")
    ax.set_xticks(range(len(cases)), list(cases), fontsize=8)
    ax.set(ylim=(0.58, 1.16), xlim=(-0.4, len(cases) - 0.6), ylabel="rollout time over MSE's")
    ax.legend(loc="lower right")
    return figure


def spectra() -> Figure:
    """PDE-Refiner's page: errors of a step, and late amplitudes, by wavenumber."""
    found, run = Evidence("refiner"), "ks_refiner/standardised"
    titles = ("Error after one step", "Late in the rollout")
    figure, axes = pictures.figure(1, 2, width=3.6, height=2.8, titles=titles)
    bands, numbers = ("1-7", "12-19", "20 and above"), (4, 8, 10, 12, 14, 15, 16, 20)
    late = [f"wavenumber {k}" for k in numbers]
    tables = ("one-step error by wavenumber", bands), ("late amplitude over the truth's", late)
    for ax, (table, metrics), x in zip(axes, tables, (range(3), numbers), strict=True):
        for method in ("mse", "refiner"):
            arm = f"{run}: {table}: {method}"
            values = np.stack([found.seeds(arm, metric) for metric in metrics], 1)
            pictures.curve_with_band(ax, x, values, method)
        ax.set(yscale="log", xlabel="wavenumber, waves along the domain")
    axes[0].set_xticks(range(3), ("1-7", "12-19", "≥ 20"))
    axes[0].set_ylabel("mean amplitude of the error, |rfft|")
    axes[1].axhline(1.0, color="black", linestyle="--", linewidth=0.8, label="truth")
    axes[1].set_ylabel("amplitude over the truth's")
    pictures.legend(figure, axes)
    return figure


def dots(ax: Axes, at: float, values: np.ndarray, colour: str) -> None:
    """Seeds as dots, their interquartile mean as a bar."""
    ax.plot(np.full(len(values), at), values, "o", color=colour, markersize=4, alpha=0.7)
    ax.plot([at], [iqm(values)], "_", color=colour, markersize=18, markeredgewidth=2)


FIGURES: Mapping[str, Callable[[], Figure]] = {
    "neubay": estimates,
    "policy_value": policy_value,
    "refiner": refinement,
    "refiner_spectra": spectra,
    "edge_of_reach_toy": exact_model,
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
