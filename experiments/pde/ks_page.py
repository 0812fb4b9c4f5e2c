"""Pictures of the Kuramoto-Sivashinsky experiments: rollouts, correlation, spectra, reliability.

Cells are those of `ks_cells.cell_of`, by method; those that diverged are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

from ..kit.colours import colour
from ..kit.draw import curve_with_band, level, picture
from ..kit.grid import Cell, Grid


def draw_rollouts(report: Report, study: StudyConfig, data: StudyData, cells: Grid) -> None:
    """Truth, predictions and errors of one test trajectory in space and time."""
    truth = np.asarray(data.truth(study.steps, study.history)[:, 0, 0])
    rows = {"truth": truth, **{name: cell["rollout"] for name, cell in cells.trained.items()}}
    made, axes = figure(len(rows), 2, width=5.0, height=1.25, sharex=True, sharey=True)
    axes[1].set_visible(False)
    limit = float(np.abs(truth).max())
    style: dict[str, Any] = {
        "aspect": "auto", "origin": "lower", "interpolation": "nearest", "cmap": "RdBu_r",
        "extent": (data.dt, study.steps * data.dt, 0.0, float(study.points)),
        "vmin": -limit, "vmax": limit,
    }  # fmt: skip
    for row, (name, field) in enumerate(rows.items()):
        panels = (field,) if row == 0 else (field, field - truth)
        for ax, values in zip(axes[2 * row : 2 * row + 2], panels, strict=False):
            ax.imshow(values.T, **style)
            ax.grid(visible=False)
            ax.set_yticks([])
        axes[2 * row].set_ylabel(name, fontsize=8)
        if row == 1:
            axes[2 * row + 1].set_title("error")
    for ax in axes[-2:]:
        ax.set_xlabel("time")
    made.colorbar(axes[0].images[0], ax=axes, shrink=0.6, pad=0.01)
    report.picture(
        "rollouts",
        made,
        "One test trajectory (space upwards, time to the right) and each method's rollout from "
        "its first frame, first seed; right: prediction minus truth.",
    )


def draw_correlation(report: Report, dt: float, cells: Mapping[str, Cell]) -> None:
    """Correlation with the truth over time."""
    caption = (
        "Pearson correlation of rollout and truth, averaged over the test trajectories; lines: "
        "interquartile mean over seeds."
    )
    with picture(report, "correlation", caption, width=5.6, height=3.2) as (ax,):
        for name, cell in cells.items():
            correlation = cell["correlation", :, :, :]
            clock = dt * np.arange(1, correlation.shape[1] + 1)
            curve_with_band(ax, clock, correlation.mean(2), name)
        for threshold in (0.8, 0.9):
            level(ax, threshold, linestyle=":")
        ax.set_xlabel("time")
        ax.set_ylabel("correlation, mean over trajectories")


def draw_spectra(report: Report, cells: Grid, true_late: np.ndarray) -> None:
    """Error after a step, and amplitudes late in the rollout, over the wavenumber."""
    caption = (
        "Left: amplitudes of prediction minus truth after one step. Right: amplitudes of the "
        "rollouts themselves over their last quarter. Median and range over seeds."
    )
    titles = ("Error after one step", "Late in the rollout")
    numbers = np.arange(len(true_late))[1:]
    with picture(report, "spectra", caption, titles=titles) as (left, right):
        for name, cell in cells.trained.items():
            shade = colour(name)
            for ax, spectra in ((left, cell["first_error", :, -1]), (right, cell["late"])):
                values = spectra[:, 1:]
                ax.semilogy(numbers, np.median(values, 0), color=shade, label=name)
                low, high = values.min(0), values.max(0)
                ax.fill_between(numbers, low, high, color=shade, alpha=0.2, linewidth=0)
        right.semilogy(numbers, true_late[1:], color="black", linestyle="--", label="truth")
        right.set_ylim(bottom=max(float(true_late[1:].min()), 1e-7) / 3)
        for ax in (left, right):
            ax.set_xlabel("wavenumber")
        left.set_ylabel("mean |rfft|")


def draw_refinement(report: Report, name: str, cell: Cell) -> None:
    """One-step error along refinement: its size and its spectrum."""
    made, (left, right) = figure(1, 2, titles=("Error of one step", "Its spectrum, median seed"))
    error, spectra = cell["one_step"], np.median(cell["first_error"], 0)[:, 1:]
    calls = error.shape[1]
    left.semilogy(range(calls), error.T, "o-", markersize=3, color=colour(name))
    left.set_xticks(range(calls))
    left.set_xlabel("refinements applied")
    left.set_ylabel("mean square error")
    for call, spectrum in enumerate(spectra):
        style = {"color": colour(name), "label": f"{call}", "alpha": (call + 1) / calls}
        right.semilogy(np.arange(len(spectrum)) + 1, spectrum, **style)
    right.set_xlabel("wavenumber")
    right.set_ylabel("mean |rfft|")
    right.legend(frameon=False, fontsize=8, title="refinements")
    report.picture(
        "refinement",
        made,
        "Error after 0, 1, ... refinements of the same step. Left: each line is a seed.",
    )


def draw_samples(report: Report, study: StudyConfig, dt: float, name: str, cell: Cell) -> None:
    """Predicted against true horizon, and the spread of samples against their error."""
    made, (left, right) = figure(1, 2, titles=("How long to trust it", "Spread and error"))
    for x, y in zip(cell["predicted_horizon"], cell["true_horizon"], strict=True):
        left.plot(x, y, ".", color=colour(name), markersize=3, alpha=0.4)
    top = study.sampled_steps * dt
    left.plot([0, top], [0, top], color="black", linestyle=":", linewidth=0.8)
    left.set_xlabel(f"predicted from {study.samples} samples")
    left.set_ylabel("true time above 0.8")
    for label, metric in (("spread of samples", "spread"), ("error of their mean", "error")):
        values = cell[f"sampled_{metric}"]
        curve_with_band(right, dt * np.arange(1, values.shape[1] + 1), values, label)
    right.set_yscale("log")
    right.set_xlabel("time")
    right.legend(frameon=False, fontsize=8)
    report.picture(
        "samples",
        made,
        "Left: per test trajectory, the time for which samples agree against the time for which "
        "the rollout is right; all seeds; rollouts end at the dotted line's end. Right: standard "
        "deviation over samples and error of their mean.",
    )
