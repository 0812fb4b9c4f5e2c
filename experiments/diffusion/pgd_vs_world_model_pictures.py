"""Pictures of `pgd_vs_world_model`: likelihood against error, and error over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm

from ..kit.draw import curve_with_band
from .pgd_measured import LENGTHS, Found, Source, log_likelihood, three

SHADES = {
    "ensemble": "#000000", "unguided": "#777777", "published": "#D55E00",
    "published, noised": "#E69F00", "calibrated": "#0072B2", "calibrated, joint": "#56B4E9",
}  # fmt: skip


def _tradeoff(ax: Axes, config: Any, found: Found) -> None:
    def place(source: Source, steps: int) -> tuple[float, float]:
        m = found[source].first(steps)
        return float(iqm(log_likelihood(m.gap.mean(1)))), float(iqm(m.error.mean(1)))

    seen = False
    for rule, steps, _ in config.sweeps():
        line = [s for s in found if s.rule == rule and s.steps == steps]
        points = [place(s, config.horizon) for s in [Source("unguided", steps), *line]]
        style = "-" if steps == config.steps else "--"
        label = f"{rule}, {steps} steps"
        ax.plot(*zip(*points, strict=True), marker=".", color=SHADES[rule], linestyle=style,
                label=label)  # fmt: skip
        for source, point in zip(line, points[1:], strict=True):
            ax.annotate(f"{source.coefficient:g}", point, fontsize=6, color=SHADES[rule],
                        xytext=(2, 3), textcoords="offset points")  # fmt: skip
        ax.plot(*points[0], "o", color=SHADES["unguided"], zorder=3,
                label=None if seen else "unguided")  # fmt: skip
        seen = True
    for length in sorted({h for h in LENGTHS if h <= config.long_horizon}):
        point = place(Source("ensemble"), length)
        label = "ensemble, by length" if length == LENGTHS[0] else None
        ax.plot(*point, "k^", label=label, markersize=5)
        ax.annotate(f"{length}", point, fontsize=6, xytext=(4, -2), textcoords="offset points")
    known = float(iqm(log_likelihood(found[Source("data")].gap.mean(1))))
    ax.axvline(known, color="#777777", linestyle=":", linewidth=1.0, label="the data's actions")
    ax.set_yscale("log")
    ax.set_xlabel("log-likelihood under the policy")


def draw_tradeoff(report: Report, config: Any, results: Mapping[str, tuple[Any, Found]]) -> None:
    made, axes = figure(1, len(results), titles=list(results), width=3.9, height=3.2)
    for ax, (_, found) in zip(axes, results.values(), strict=True):
        _tradeoff(ax, config, found)
    axes[0].set_ylabel("dynamics error of a step")
    legend(made, axes, columns=2 * len(axes))
    report.picture(
        "tradeoff", made,
        "Right is nearer to the policy, down is nearer to the truth. Numbers are coefficients; the "
        "ensemble's are rollout lengths, its error the mean over that many steps.",
    )  # fmt: skip


def draw_time(report: Report, config: Any, results: Mapping[str, tuple[Any, Found]]) -> None:
    made, axes = figure(2, len(results), titles=list(results), sharex=True, height=2.3)
    for column, (_, found) in enumerate(results.values()):
        ensemble, unguided, guided = three(config, found)
        soft = config.calibrated[len(config.calibrated) // 2] if config.calibrated else None
        lines = [("ensemble", ensemble, "ensemble"), ("unguided", unguided, "unguided"),
                 ("published", guided, f"published, {config.reference:g}")]  # fmt: skip
        if soft is not None:
            own = found[Source("calibrated", config.steps, soft)]
            lines.append(("calibrated", own, f"calibrated, {soft:g}"))
        for row, kind in enumerate(("error", "open_loop")):
            ax = axes[row * len(results) + column]
            for rule, m, label in lines:
                values = getattr(m, kind)
                steps = np.arange(1, values.shape[1] + 1)
                curve_with_band(ax, steps, values, label, colour_name=SHADES[rule])
            ax.set_yscale("log")
            ax.set_xscale("log")
            ax.set_xlabel("step" if row else "")
    axes[0].set_ylabel("error of a step")
    axes[len(results)].set_ylabel("error, open loop")
    legend(made, axes, columns=2 * len(results))
    report.picture(
        "over_time", made,
        "Above: every step by itself. Below: how far the path is from where its own actions lead.",
    )  # fmt: skip
