"""Pictures of `compounding_error`: how errors grow, and what the spread knows of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from jaxrl_rollouts.offline.study.model_based import slug
from jaxrl_rollouts.offline.worlds.judge import OpenLoop
from jaxrl_rollouts.offline.worlds.trust import Trust, threshold
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

COLOURS = {"LN": "#0072B2", "no LN": "#D55E00"}
HIGHEST = 1e6  # what lies above is drawn there
DOTS = 4000


def draw_growth(report: Report, title: str, cases: Mapping[str, OpenLoop]) -> None:
    """Error, size of the prediction and reward bias over the steps; bands are 5 to 95 %."""
    made, axes = figure(1, 3, title=title, titles=("error", "size of the prediction", "reward"))
    for name, found in cases.items():
        quantities = (found.error, found.norm, np.abs(found.reward_bias))
        for ax, values in zip(axes, quantities, strict=True):
            flat = np.swapaxes(values, 0, 1).reshape(values.shape[1], -1)
            flat = np.clip(flat, 1e-6, HIGHEST)
            at = np.arange(1, len(flat) + 1)
            low, middle, high = np.quantile(flat, (0.05, 0.5, 0.95), axis=1)
            ax.plot(at, middle, color=COLOURS[name], label=name)
            ax.fill_between(at, low, high, color=COLOURS[name], alpha=0.2, linewidth=0)
    for ax in axes:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("steps")
    axes[0].set_ylabel("standard deviations of the data")
    axes[1].set_ylabel("root mean square, own units")
    axes[2].set_ylabel("absolute bias")
    axes[0].legend()
    report.picture(
        f"growth-{slug(title)}", made,
        "Open loop along logged actions: median and 5 to 95 % of all trajectories and ensembles; "
        f"what exceeds {HIGHEST:g} is drawn there.",
    )  # fmt: skip


def draw_trust(report: Report, title: str, found: OpenLoop, trust: Trust) -> None:
    """Error against spread, one dot per step, and the thresholds of the data."""
    spread, error = np.ravel(found.uncertainty[0]), np.ravel(found.error[0])
    good = np.flatnonzero(np.isfinite(spread) & np.isfinite(error))
    chosen = np.random.default_rng(0).permutation(good)[:DOTS]
    made, (ax,) = figure(width=5.0, height=3.2, title=title)
    ax.plot(spread[chosen], error[chosen], ".", color=COLOURS["LN"], markersize=2, alpha=0.4)
    for level, style in ((0.9, ":"), (0.99, "--"), (1.0, "-")):
        at = float(np.asarray(threshold(trust, level))[0])
        ax.axvline(at, color="black", linestyle=style, linewidth=0.9, label=f"u({level:g})")
    ax.set_xscale("log")
    # Spreads cover about a decade: matplotlib's own labels would lie on top of each other.
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yscale("log")
    ax.set_xlabel("spread of the members' means")
    ax.set_ylabel("error, standard deviations of the data")
    ax.legend()
    report.picture(
        f"trust-{slug(title)}", made,
        "Each dot is a step of an open-loop rollout with layer normalisation, first ensemble; "
        "lines: quantiles of the spread over the data.",
    )  # fmt: skip
