"""Pictures of `ks_refiner`: rollouts, correlation, spectra, refinement, reliability."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxrl_rollouts.pde.metrics import correlation_horizons
from jaxrl_rollouts.pictures import colour, curve_with_band, figure, legend
from jaxrl_rollouts.report import Report

from .ks_study import Emulated, KsConfig, KsData

Results = Mapping[str, Emulated]


def draw_all(
    report: Report, config: KsConfig, data: KsData, results: Results, true_late: np.ndarray
) -> None:
    """Every picture."""
    draw_rollouts(report, config, data, results)
    draw_correlation(report, config, data, results)
    draw_spectra(report, results, true_late)
    if "refiner" in results:
        draw_refiner(report, config, data, results["refiner"])


def draw_rollouts(report: Report, config: KsConfig, data: KsData, results: Results) -> None:
    """Truth, predictions and errors of one test trajectory in space and time."""
    truth = np.asarray(data.test.fields[0, 1 : config.steps + 1, 0])
    limit = float(np.abs(truth).max())
    made, axes = figure(1 + len(results), 2, width=5.0, height=1.25, sharex=True, sharey=True)
    span = (data.dt, config.steps * data.dt, 0.0, float(config.points))
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


def draw_correlation(report: Report, config: KsConfig, data: KsData, results: Results) -> None:
    """Correlation with the truth over time."""
    made, (ax,) = figure(width=5.6, height=3.2)
    clock = data.dt * np.arange(1, config.steps + 1)
    for name, e in results.items():
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
        for ax, values in ((left, e.first_error), (right, e.last_spectrum)):
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


def draw_refiner(report: Report, config: KsConfig, data: KsData, e: Emulated) -> None:
    """One-step error along refinement, and predicted against true horizon."""
    assert e.cross is not None
    made, (left, right) = figure(1, 2, titles=("Along refinement", "How long to trust it"))
    left.semilogy(np.arange(e.one_step.shape[1]), e.one_step.T, "o-", markersize=3,
                  color=colour("refiner"))  # fmt: skip
    left.set_xticks(range(e.one_step.shape[1]))
    left.set_xlabel("refinements applied")
    left.set_ylabel("one-step mean square error")
    for cross, own in zip(e.cross, e.correlation, strict=True):
        predicted = correlation_horizons(cross, data.dt)
        true = correlation_horizons(own[:, : config.sampled], data.dt)
        right.plot(predicted, true, ".", color=colour("refiner"), markersize=3, alpha=0.6)
    top = config.steps * data.dt
    right.plot([0, top], [0, top], color="black", linestyle=":", linewidth=0.8)
    right.set_xlabel(f"predicted from {config.samples} samples")
    right.set_ylabel("true time above 0.8")
    report.picture(
        "refiner", made,
        "Left: each line is a seed. Right: per test trajectory, the time for which samples agree "
        "against the time for which the rollout is right; all seeds.",
    )  # fmt: skip
