"""Pictures of the Kuramoto-Sivashinsky experiments: rollouts, correlation, spectra, reliability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxrl_rollouts.pde.study.look import Evaluated, Sampled, reliable
from jaxrl_rollouts.pde.study.train import KsData, StudyConfig
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report

from ..kit.colours import colour
from ..kit.draw import curve_with_band

if TYPE_CHECKING:
    from jaxrl_rollouts.pde.study.look import Emulated

Results = Mapping[str, Evaluated]


def draw_all(
    report: Report, study: StudyConfig, data: KsData, results: Mapping[str, Emulated],
    true_late: np.ndarray,
) -> None:  # fmt: skip
    """Every picture of `ks_refiner`."""
    found = {name: e.found for name, e in results.items()}
    draw_rollouts(report, study, data, found)
    draw_correlation(report, data, found)
    draw_spectra(report, found, true_late)
    for name, e in results.items():
        if e.samples is not None:
            draw_refinement(report, name, e.found)
            draw_samples(report, study, data, e.found, e.samples)


def draw_rollouts(report: Report, study: StudyConfig, data: KsData, results: Results) -> None:
    """Truth, predictions and errors of one test trajectory in space and time."""
    truth = np.asarray(data.truth(study.steps, study.history)[:, 0, 0])
    limit = float(np.abs(truth).max())
    made, axes = figure(1 + len(results), 2, width=5.0, height=1.25, sharex=True, sharey=True)
    span = (data.dt, study.steps * data.dt, 0.0, float(study.points))
    axes[1].set_visible(False)
    shown = None
    rows = {"truth": truth, **{name: e.rollout for name, e in results.items()}}
    for row, (name, field) in enumerate(rows.items()):
        panels = (field,) if row == 0 else (field, field - truth)
        for ax, values in zip(axes[2 * row : 2 * row + 2], panels, strict=False):
            shown = ax.imshow(
                values.T, aspect="auto", origin="lower", extent=span, cmap="RdBu_r", vmin=-limit,
                vmax=limit, interpolation="nearest",
            )  # fmt: skip
            ax.grid(visible=False)
            ax.set_yticks([])
        axes[2 * row].set_ylabel(name, fontsize=8)
        if row == 1:
            axes[2 * row + 1].set_title("error")
    for ax in axes[-2:]:
        ax.set_xlabel("time")
    assert shown is not None
    made.colorbar(shown, ax=axes, shrink=0.6, pad=0.01)
    report.picture(
        "rollouts", made,
        "One test trajectory (space upwards, time to the right) and each method's rollout from "
        "its first frame, first seed; right: prediction minus truth.",
    )  # fmt: skip


def draw_correlation(report: Report, data: KsData, results: Results) -> None:
    """Correlation with the truth over time."""
    made, (ax,) = figure(width=5.6, height=3.2)
    for name, e in results.items():
        clock = data.dt * np.arange(1, e.correlation.shape[1] + 1)
        curve_with_band(ax, clock, e.correlation.mean(2), name)
    for level in (0.8, 0.9):
        ax.axhline(level, color="black", linestyle=":", linewidth=0.8)
    ax.set_xlabel("time")
    ax.set_ylabel("correlation, mean over trajectories")
    ax.legend(frameon=False, fontsize=8)
    report.picture(
        "correlation", made,
        "Pearson correlation of rollout and truth, averaged over the test trajectories; lines: "
        "interquartile mean over seeds.",
    )  # fmt: skip


def draw_spectra(report: Report, results: Results, true_late: np.ndarray) -> None:
    """Error after a step, and amplitudes late in the rollout, over the wavenumber."""
    made, (left, right) = figure(1, 2, titles=("Error after one step", "Late in the rollout"))
    numbers = np.arange(len(true_late))[1:]
    for name, e in results.items():
        for ax, values in ((left, e.first_error[:, -1]), (right, e.late)):
            ax.semilogy(numbers, np.median(values, 0)[1:], color=colour(name), label=name)
            ax.fill_between(
                numbers, values.min(0)[1:], values.max(0)[1:], color=colour(name), alpha=0.2,
                linewidth=0,
            )  # fmt: skip
    right.semilogy(numbers, true_late[1:], color="black", linestyle="--", label="truth")
    right.set_ylim(bottom=max(float(true_late[1:].min()), 1e-7) / 3)
    for ax in (left, right):
        ax.set_xlabel("wavenumber")
    left.set_ylabel("mean |rfft|")
    legend(made, (left, right))
    report.picture(
        "spectra", made,
        "Left: amplitudes of prediction minus truth after one step. Right: amplitudes of the "
        "rollouts themselves over their last quarter. Median and range over seeds.",
    )  # fmt: skip


def draw_refinement(report: Report, name: str, e: Evaluated) -> None:
    """One-step error along refinement: its size and its spectrum."""
    made, (left, right) = figure(1, 2, titles=("Error of one step", "Its spectrum, median seed"))
    calls = e.one_step.shape[1]
    left.semilogy(range(calls), e.one_step.T, "o-", markersize=3, color=colour(name))
    left.set_xticks(range(calls))
    left.set_xlabel("refinements applied")
    left.set_ylabel("mean square error")
    numbers = np.arange(e.first_error.shape[-1])[1:]
    for call in range(calls):
        right.semilogy(
            numbers, np.median(e.first_error[:, call], 0)[1:], color=colour(name), label=f"{call}",
            alpha=(call + 1) / calls,
        )  # fmt: skip
    right.set_xlabel("wavenumber")
    right.set_ylabel("mean |rfft|")
    right.legend(frameon=False, fontsize=8, title="refinements")
    report.picture(
        "refinement", made,
        "Error after 0, 1, ... refinements of the same step. Left: each line is a seed.",
    )  # fmt: skip


def draw_samples(
    report: Report, study: StudyConfig, data: KsData, e: Evaluated, s: Sampled
) -> None:
    """Predicted against true horizon, and the spread of samples against their error."""
    made, (left, right) = figure(1, 2, titles=("How long to trust it", "Spread and error"))
    predicted, true = reliable(study, data, e, s)
    for x, y in zip(predicted, true, strict=True):
        left.plot(x, y, ".", color=colour("refiner"), markersize=3, alpha=0.4)
    top = study.sampled_steps * data.dt
    left.plot([0, top], [0, top], color="black", linestyle=":", linewidth=0.8)
    left.set_xlabel(f"predicted from {study.samples} samples")
    left.set_ylabel("true time above 0.8")
    clock = data.dt * np.arange(1, s.spread.shape[1] + 1)
    for label, values in (("spread of samples", s.spread), ("error of their mean", s.error)):
        curve_with_band(right, clock, values, label)
    right.set_yscale("log")
    right.set_xlabel("time")
    right.legend(frameon=False, fontsize=8)
    report.picture(
        "samples", made,
        "Left: per test trajectory, the time for which samples agree against the time for which "
        "the rollout is right; all seeds; rollouts end at the dotted line's end. Right: standard "
        "deviation over samples and error of their mean.",
    )  # fmt: skip
