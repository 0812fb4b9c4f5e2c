"""The report of an emulator trained on a file: errors, spectra, how long rollouts last."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxrl_rollouts.reports.pictures import colour, curve_with_band, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..fieldset import FieldSet
from .fit import Fitted
from .look import Evaluation, high_correlation_times, true_spectrum
from .train import StudyConfig, StudyData

COLOURS = {"persistence": "#888888", "truth": "black"}


def make_report(
    report: Report,
    fitted: Fitted,
    train: FieldSet,
    study: StudyConfig,
    data: StudyData,
    arms: Mapping[str, Evaluation],
) -> None:
    """Fill a report.

    Args:
        report: an empty one.
        fitted: the emulator.
        train: what it was trained on.
        study, data: how it was tested, and on what.
        arms: evaluations by name: the emulator's first, then persistence's.
    """
    own, dt = fitted.emulator, data.dt
    clock = "time" if own.dt else "frames"
    rows = []
    for name, arm in arms.items():
        curve, each = high_correlation_times(arm.correlation, dt)
        row = {
            "one-step MSE": arm.one_step[:, -1],
            f"T(0.8), mean curve, {clock}": curve,
            f"T(0.8), per trajectory, {clock}": each,
            f"T(0.9), mean curve, {clock}": high_correlation_times(arm.correlation, dt, 0.9)[0],
            "NRMSE halfway": arm.nrmse[:, study.steps // 2].mean(-1),
            "NRMSE at the end": arm.nrmse[:, -1].mean(-1),
        }
        rows.append({"": name} | {column: summarize(values) for column, values in row.items()})
    report.table("on trajectories it has not seen", rows)
    late = true_spectrum(study, data)
    report.table("by wavenumber", _spectra_rows(next(iter(arms.values())), late))
    _draw_rollouts(report, study, data, arms, clock)
    _draw_correlation(report, study, data, arms, clock)
    _draw_spectra(report, arms, late)
    told = ", ".join(own.conditions) or "nothing"
    report.note(
        f"Trained on {train.shape[0]} trajectories of {train.shape[1]} frames, tested on "
        f"{len(data.test.fields)} others, {study.steps} steps of {dt:g} {clock}. Errors are in "
        f"standard deviations of the training data. The emulator is told {told}."
    )
    if train.boundaries != ("periodic",):
        report.note(
            "The file does not say that its axis is periodic: windows were not moved around it. "
            "The network joins its ends all the same; if they are walls, do not trust it there."
        )


def _spectra_rows(arm: Evaluation, late: np.ndarray) -> list[dict]:
    """Some wavenumbers: the error of a step, and late amplitudes over the truth's."""
    top = len(late) - 1
    chosen = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128, top) if k <= top})
    return [
        {
            "wavenumber": k,
            "error of a step, |rfft|": summarize(arm.first_error[:, -1, k]),
            "late amplitude over the truth's": summarize(arm.late[:, k] / max(late[k], 1e-12)),
        }
        for k in chosen
    ]


def _draw_rollouts(
    report: Report,
    study: StudyConfig,
    data: StudyData,
    arms: Mapping[str, Evaluation],
    clock: str,
) -> None:
    name, arm = next(iter(arms.items()))
    truth = np.asarray(data.truth(study.steps, study.history)[:, 0, 0])
    made, axes = figure(3, 1, width=6.0, height=1.5, sharex=True, sharey=True)
    limit = float(np.abs(truth).max())
    for ax, (label, values) in zip(
        axes, {"truth": truth, name: arm.rollout, "error": arm.rollout - truth}.items(), strict=True
    ):
        image = ax.imshow(
            values.T,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
            extent=(data.dt, study.steps * data.dt, 0.0, float(study.points)),
        )
        ax.set_ylabel(label)
        ax.set_yticks([])
        ax.grid(visible=False)
    axes[-1].set_xlabel(clock)
    made.colorbar(image, ax=axes, shrink=0.6, pad=0.01)
    caption = "A test trajectory (space upwards), the rollout from its first frame, the difference."
    report.picture("rollouts", made, caption)


def _draw_correlation(
    report: Report,
    study: StudyConfig,
    data: StudyData,
    arms: Mapping[str, Evaluation],
    clock: str,
) -> None:
    made, (left, right) = figure(1, 2, titles=("Correlation with the truth", "NRMSE"))
    at = data.dt * np.arange(1, study.steps + 1)
    for name, arm in arms.items():
        curve_with_band(left, at, arm.correlation.mean(2), name, colours=COLOURS)
        curve_with_band(right, at, arm.nrmse.mean(2), name, colours=COLOURS)
    left.axhline(0.8, color="black", linestyle=":", linewidth=0.8)
    for ax in (left, right):
        ax.set_xlabel(clock)
    legend(made, [left])
    caption = "Rollouts, averaged over the test trajectories; dotted: where T(0.8) is read."
    report.picture("correlation", made, caption)


def _draw_spectra(report: Report, arms: Mapping[str, Evaluation], late: np.ndarray) -> None:
    made, (left, right) = figure(1, 2, titles=("Error after one step", "Late in the rollout"))
    numbers = np.arange(1, len(late))
    for name, arm in arms.items():
        shade = colour(name, COLOURS)
        left.semilogy(numbers, np.median(arm.first_error[:, -1, 1:], 0), color=shade, label=name)
        right.semilogy(numbers, np.median(arm.late[:, 1:], 0), color=shade)
    right.semilogy(numbers, late[1:], color="black", linestyle="--", label="truth")
    for ax in (left, right):
        ax.set_xlabel("wavenumber")
    left.set_ylabel("mean |rfft|")
    legend(made, [left, right])
    caption = "Amplitudes of the error after a step, and of rollouts over their last quarter."
    report.picture("spectra", made, caption)
