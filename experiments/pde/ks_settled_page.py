"""Tables, claims and pictures of `ks_settled`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Grid
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.colours import colour
from .ks_settled_cells import (
    REFINERS,
    REGIMES,
    Case,
    SettledConfig,
    bound,
    noise_amplitude,
    refined_error,
)

OURS = "the project's question"
PAYS = 1.05  # T(0.8) over MSE training's behind the low-pass
TAIL = 8  # the first of the wavenumbers that hardly have an amplitude
TIMES = {"mean curve": "time_curve", "per trajectory": "time_each"}
DRAWN = {"low_pass": "#E69F00", "refiner": "#009E73", "weight": "#CC79A7", "own": "#56B4E9"}


def page(
    config: SettledConfig,
    cases: Mapping[str, Case],
    cells: Grid,
    report: Report,
) -> Report:
    """Everything that is said about the cells, by regime and arm."""
    config = replace(config, regimes=tuple(name for name in REGIMES if name in config.regimes))
    refined = [name for name in config.regimes if (name, "refiner") in cells]
    rows = [_regime(name, config, cases[name], cells, name in refined) for name in config.regimes]
    report.table("regimes", rows)
    points = [(name, arm) for name in refined for arm in REFINERS]
    if points:
        report.table("refiners", [_refiner(*point, cells) for point in points])
        known = [point for point in points if point[1] == "own" and not cells[point].diverged]
        report.table(
            "one step by wavenumber", [_theory(name, cases[name], cells) for name, _ in known]
        )
    report.table(
        "which wavenumbers end rollouts",
        [
            {
                "regime": name,
                "solver from wavenumber": lowest,
                "T(0.8) over MSE, mean curve": summarize(bound(cells[name, "mse"], lowest)),
                "per trajectory": summarize(bound(cells[name, "mse"], lowest, each=True)),
            }
            for name in config.regimes
            for lowest in config.solved_from
        ],
    )
    _claims(config, cells, points, report)
    _draw_ratios(config, cells, report)
    _draw_bound(config, cells, report)
    _draw_wavenumbers(config, cases, cells, refined, report)
    study = config.study
    report.note(
        f"{study.seeds} seeds, {study.training.updates} gradient steps on batches of "
        f"{study.training.batch} ({config.few_updates:g} times as many on few trajectories), "
        f"{study.test.trajectories} test trajectories of {study.steps * study.test.dt[0]:g}."
    )
    return report


def over(cells: Grid, regime: str, arm: str, time: str, base: str = "low_pass") -> np.ndarray:
    """An arm's time over another's, `[seeds]`."""
    return cells[regime, arm][time] / cells[regime, base][time]


def lower(cells: Grid, regime: str, arm: str) -> np.ndarray:
    """The lower of both times over those of MSE training behind the low-pass, `[seeds]`."""
    return np.minimum(*(over(cells, regime, arm, time) for time in TIMES.values()))


def _regime(
    name: str, config: SettledConfig, case: Case, cells: Grid, refined: bool
) -> dict[str, Any]:
    mse, low = cells[name, "mse"], cells[name, "low_pass"]
    row = {
        "regime": name,
        "what": REGIMES[name].what,
        "time per step": case.data.dt,
        "training trajectories": len(case.data.train.fields),
        "residual scale": case.config.study.residual_scale,
        "one-step MSE": summarize(mse["one_step", :, 0]),
        "low-pass from": summarize(low["cuts"]),
    }
    for what, time in TIMES.items():
        row[f"MSE T(0.8), {what}"] = summarize(mse[time])
        row[f"low-pass over MSE, {what}"] = summarize(over(cells, name, "low_pass", time, "mse"))
    gain = summarize(bound(mse, config.screen_from))
    return row | {f"solver from {config.screen_from} over MSE": gain, "refiners trained": refined}


def _refiner(regime: str, arm: str, cells: Grid) -> dict[str, Any]:
    cell = cells[regime, arm]
    refiner = None if cell.diverged else cell.extra["refiner"]
    row: dict[str, Any] = {"regime": regime, "arm": arm, "what": REFINERS[arm].what}
    row["finest noise variance"] = None if refiner is None else refiner.min_noise_variance
    for what, time in TIMES.items():
        row[f"T(0.8), {what}"] = summarize(cell[time])
        row[f"over MSE, {what}"] = summarize(over(cells, regime, arm, time, "mse"))
        row[f"over MSE + low-pass, {what}"] = summarize(over(cells, regime, arm, time))
    return row | {
        "one-step MSE, first call": summarize(cell["one_step", :, 0]),
        "one-step MSE": summarize(cell["one_step", :, -1]),
        "seconds to train": cell.seconds,
    }


def split(name: str, case: Case, cells: Grid) -> tuple[np.ndarray, ...]:
    """Errors `[seeds, K - 2]` of a refiner after a network of its own, by wavenumber from 1 to the
    last but one: before, after, and after as a best possible one's; and whether the wavenumber is
    below the low-pass's cut."""
    cell, cuts = cells[name, "own"], cells[name, "low_pass"]["cuts"]
    before, after = cell["first_error", :, 0, 1:-1], cell["first_error", :, -1, 1:-1]
    best = refined_error(before, noise_amplitude(cell, case.config.study))
    return before, after, best, np.arange(1, before.shape[1] + 1) < cuts[:, None]


def _theory(name: str, case: Case, cells: Grid) -> dict[str, Any]:
    before, after, best, low = split(name, case, cells)

    def changed(then: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Geometric mean over wavenumbers; NaN without any."""
        count = where.sum(1)
        logs = np.where(where, np.log(then / before), 0.0).sum(1)
        return np.exp(logs / np.where(count, count, np.nan))

    cut = cells[name, "low_pass"]["first_error", :, 0, 1:-1]
    return {
        "regime": name,
        "below the cut: error after over before": summarize(changed(after, low)),
        "of the best possible": summarize(changed(best, low)),
        "above it: error after over before": summarize(changed(after, ~low)),
        "of the low-pass": summarize(changed(cut, ~low)),
    }


def _claims(
    config: SettledConfig, cells: Grid, points: Sequence[tuple[str, str]], report: Report
) -> None:
    claim = claims(report, OURS)
    for regime, arm in points:
        means = "the lower of both T(0.8) over those of MSE + low-pass"
        claim(f"{regime}: {arm} pays", lower(cells, regime, arm), at_least=PAYS, means=means)
    for regime in (name for name in ("0.1", "0.2") if name in config.regimes):
        ratio = over(cells, regime, "low_pass", "time_curve", "mse")
        means = "T(0.8), mean curve, over MSE training's"
        claim(f"{regime}: a low-pass lengthens rollouts", ratio, at_least=1.04, means=means)
    if "0.8" in config.regimes and TAIL in config.solved_from:
        means = f"T(0.8), mean curve, with the solver from wavenumber {TAIL} over MSE training's"
        ratio = bound(cells["0.8", "mse"], TAIL)
        claim("0.8: the tail does not matter", ratio, at_most=1.02, means=means)


def _draw_ratios(config: SettledConfig, cells: Grid, report: Report) -> None:
    caption = (
        "T(0.8) over that of MSE training alone, by time per step or what else makes a regime: "
        "points are seeds, bars their mean; refiners only where they were trained."
    )
    arms = ("low_pass", *REFINERS)
    size: dict[str, Any] = {"titles": tuple(TIMES), "height": 3.2, "sharey": True}
    with picture(report, "ratios", caption, **size) as axes:
        for ax, time in zip(axes, TIMES.values(), strict=True):
            for i, arm in enumerate(arms):
                for x, regime in enumerate(config.regimes):
                    if (regime, arm) in cells.trained:
                        at = x + 0.18 * (i - 1.5)
                        label = arm.replace("low_pass", "MSE + low-pass") if ax is axes[0] else ""
                        seen = {text.get_label() for text in ax.lines}
                        ratio = over(cells, regime, arm, time, "mse")
                        _seeds(ax, at, ratio, DRAWN[arm], "" if label in seen else label)
            level(ax, 1.0, linestyle=":")
            ax.set_xticks(range(len(config.regimes)), config.regimes, rotation=30)
            ax.set_xlabel("regime")
        axes[0].set_ylabel("T(0.8) over MSE training's")


def _seeds(ax: Axes, at: float, values: np.ndarray, shade: str, label: str) -> None:
    ax.plot([at] * len(values), values, ".", color=shade, markersize=4, alpha=0.6)
    bar = {"markersize": 9, "markeredgewidth": 2, "label": label or None}
    ax.plot([at], [values.mean()], "_", color=shade, **bar)


def _draw_bound(config: SettledConfig, cells: Grid, report: Report) -> None:
    caption = (
        "The most that repairing wavenumbers from one on could gain MSE training, mean curve; "
        "points are seeds, bars their mean; dotted: where refiners were trained."
    )
    with picture(report, "bound", caption, width=5.6, height=2.8) as (ax,):
        for i, lowest in enumerate(config.solved_from):
            for x, regime in enumerate(config.regimes):
                if not cells[regime, "mse"].diverged:
                    at = x + 0.2 * (i - (len(config.solved_from) - 1) / 2)
                    label = "" if x else f"solver from wavenumber {lowest}"
                    ratio = bound(cells[regime, "mse"], lowest)
                    _seeds(ax, at, ratio, list(DRAWN.values())[i % len(DRAWN)], label)
        level(ax, config.screen, linestyle=":")
        ax.set_xticks(range(len(config.regimes)), config.regimes, rotation=30)
        ax.set_xlabel("regime")
        ax.set_ylabel("T(0.8) over MSE training's")


def _draw_wavenumbers(
    config: SettledConfig,
    cases: Mapping[str, Case],
    cells: Grid,
    refined: Sequence[str],
    report: Report,
) -> None:
    """One step's error in the first regime, and in the last refined ones."""
    drawn = [n for n in config.regimes if (n, "low_pass") in cells.trained]
    last = [n for n in refined if n in drawn]
    drawn = [n for i, n in enumerate(drawn) if i == 0 or n in last[:1] + last[-1:]]
    if not drawn:
        return
    caption = (
        "Mean |rfft| of one step's error on test trajectories, median seed; grey: of the training "
        "fields; dashed: what the best possible refinement would leave of MSE training's error "
        "with the noise of own."
    )
    with picture(report, "wavenumbers", caption, titles=drawn, height=3.0, sharey=True) as axes:
        for ax, name in zip(axes, drawn, strict=True):
            amplitude = np.median(cells[name, "low_pass"]["amplitude"], 0)[1:]
            k = np.arange(1, len(amplitude) + 1)
            ax.semilogy(k, amplitude, color="#777777", linewidth=3, alpha=0.5, label="field")
            for arm in ("mse", *REFINERS):
                if (name, arm) in cells.trained:
                    error = np.median(cells[name, arm]["first_error", :, -1, :], 0)[1:]
                    ax.semilogy(k, error, color=DRAWN.get(arm, colour("mse")), label=arm)
            if (name, "own") in cells.trained:
                best = np.median(split(name, cases[name], cells)[2], 0)
                ax.semilogy(k[:-1], best, "--", color="#000000", label="best possible")
            ax.set_xlabel("wavenumber")
        axes[0].set_ylabel("mean |rfft|")
