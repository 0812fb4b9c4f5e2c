"""The report of an emulator trained on a file: errors, spectra, how long rollouts last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.reports.pictures import curve_with_band, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .evaluation import Evaluation, Holdout, high_correlation_times, late_spectrum
from .fieldset import FieldSet
from .fitting import Fitted
from .pictures import draw_rollouts, draw_spectra, line
from .trained import TrainedEmulator


def make_report(
    report: Report,
    fitted: Fitted,
    train: FieldSet,
    data: Holdout,
    arms: Mapping[str, Evaluation],
) -> None:
    """Fill a report."""
    own, dt = fitted.emulator, data.dt
    end = data.steps * dt
    clock = "time" if own.dt else "frames"
    rows, held = [], []
    for name, arm in arms.items():
        # A seed that diverged has no time, rather than one of zero.
        none = np.where(np.isnan(arm.one_step[:, -1]), np.nan, 0.0)
        curve, each = (none + time for time in high_correlation_times(arm.correlation, dt))
        higher = none + high_correlation_times(arm.correlation, dt, 0.9)[0]
        row = {
            "one-step MSE": arm.one_step[:, -1],
            f"T(0.8), mean curve, {clock}": curve,
            f"T(0.8), per trajectory, {clock}": each,
            f"T(0.9), mean curve, {clock}": higher,
            "NRMSE halfway": arm.nrmse[:, data.steps // 2].mean(-1),
            "NRMSE at the end": arm.nrmse[:, -1].mean(-1),
        }
        rows.append({"": name} | {column: summarize(values) for column, values in row.items()})
        if (curve >= end).any():
            held.append(name)
    report.table("on trajectories it has not seen", rows)
    report.table(
        "as others measure it", [measures_row(name, arm, dt) for name, arm in arms.items()]
    )
    whole = [row for name, arm in arms.items() for row in members_rows(name, arm)]
    if whole:
        report.table("members as one forecast", whole)
    report.number("parameters", sum(x[0].size for x in jax.tree.leaves(own.params)))
    late = np.asarray(late_spectrum(data.truth(), data))
    name, arm = next(iter(arms.items()))
    report.table("by wavenumber", _spectra_rows(name, arm, late))
    draw_rollouts(report, data, {name: arm.rollout}, clock=clock)
    drawn = {name: _finite(arm) for name, arm in arms.items()}
    _draw_correlation(report, data, drawn, clock)
    _draw_validation(report, fitted, name)
    spectra = {name: (arm.first_error[:, -1], arm.late) for name, arm in drawn.items()}
    draw_spectra(report, spectra, late)
    _note(report, own, train, data)
    for seed, iteration in sorted(fitted.trained.diverged.items()):
        steps = iteration * fitted.training.per_iteration
        report.note(
            f"Seed {seed} of {name} diverged by gradient step {steps:,}: its numbers and "
            "parameters are NaN."
        )
    if held:
        report.note(
            f"The test ends at {end:g} in {clock}: T(0.8) of {', '.join(held)} is at least that, "
            "and how much more is unknown. Longer trajectories, or --test with such, would show it."
        )


def _finite(arm: Evaluation) -> Evaluation:
    """What is drawn: the seeds whose steps are finite, where there are some."""
    good = np.isfinite(arm.one_step[:, -1])
    rows = good if good.any() else ~good
    names = ("correlation", "nrmse", "first_error", "late")
    return arm._replace(**{name: getattr(arm, name)[rows] for name in names})


def _note(report: Report, own: TrainedEmulator, train: FieldSet, data: Holdout) -> None:
    """What was trained and tested on, and what of it is assumed."""
    clock = "time" if own.dt else "frames"
    seen = ", ".join(own.conditions) or "no conditions"
    report.note(
        f"Trained on {train.shape[0]} trajectories of {train.shape[1]} frames, tested on "
        f"{len(data.fields.fields)} others, {data.steps} steps of {data.dt:g} in {clock}. Errors "
        f"are in standard deviations of the training data. Its inputs are {seen}."
    )
    if own.constant:
        names = ", ".join(train.channels[i] for i in own.constant)
        report.note(
            f"Constant in time: {names}. They are inputs at every step and are not predicted; the "
            "metrics here exclude them."
        )
    if "" in (train.boundaries or ("",)):
        report.note(
            "The boundaries of some axes are unknown. The network treats these axes as "
            "periodic, and windows were shifted along them only with shift_axes. If "
            "they are walls, give --boundaries."
        )
    if {*train.boundaries} - {"", "periodic"}:
        kinds = ", ".join(kind or "unknown" for kind in train.boundaries)
        report.note(
            f"Boundaries: {kinds}. The network pads walls with zeros (a channel's mean), "
            "Dirichlet ends with their value, others with the last value. Spectra between them are "
            "those of a cosine transform."
        )


WINDOWS = ((6, 12), (13, 30))  # steps over which The Well averages rollouts


def measures_row(name: str, arm: Evaluation, dt: float) -> dict[str, Any]:
    """A row of measures that other libraries and papers report."""
    steps = arm.vrmse.shape[1]
    row: dict[str, Any] = {
        "relative L1 of a step, %": 100 * np.median(arm.relative_l1[:, 0], -1),
        "relative L1 at the end, %": 100 * np.median(arm.relative_l1[:, -1], -1),
        "NRMSE of a step": arm.nrmse[:, 0].mean(-1),
        "VRMSE of a step": arm.vrmse[:, 0].mean(-1),
    }
    for first, last in WINDOWS:
        if steps >= last:
            row[f"VRMSE, steps {first} to {last}"] = arm.vrmse[:, first:last].mean((1, 2))
    if arm.energy.size:
        row |= {
            "T(0.8) on vorticity": high_correlation_times(arm.vorticity, dt)[0]
            + np.where(np.isnan(arm.one_step[:, -1]), np.nan, 0.0),
            "kinetic energy at the end, % off": 100 * np.abs(arm.energy[:, -1]).mean(-1),
            "structure function, % off": 100 * np.median(arm.structure, -1),
        }
    if arm.enstrophy.size:
        row["enstrophy at the end, % off"] = 100 * np.abs(arm.enstrophy[:, -1]).mean(-1)
    return {"": name} | {column: summarize(values) for column, values in row.items()}


def members_rows(name: str, arm: Evaluation) -> list[dict[str, Any]]:
    """Probabilistic scores after some steps, in standard deviations of the training data.

    Members are the seeds, of a stochastic emulator several rollouts of each. Ranks are the rank
    histogram: the share of points at which 0, 1, ... members lie below the truth. Equal shares are
    calibrated.
    """
    rows = []
    for i, lead in enumerate(arm.leads):
        row = {"": name, "members": len(arm.ranks[i]) - 1, "after steps": int(lead)}
        row |= {"CRPS": float(arm.crps[i])}
        row |= {"energy score": float(arm.energy_score[i])}
        row |= {"spread over skill": float(arm.spread_skill[i])}
        shares = 100 * arm.ranks[i] / arm.ranks[i].sum()
        rows.append(row | {"ranks, %": " ".join(f"{share:.0f}" for share in shares)})
    return rows


ROUND_OFF = 1e-6  # of the largest amplitude: what is below it in float32 is nothing to divide by


def _spectra_rows(name: str, arm: Evaluation, late: np.ndarray) -> list[dict]:
    """Some wavenumbers: the error of a step, and late amplitudes over the truth's where it has
    any."""
    top = len(late) - 1
    chosen = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128, top) if k <= top})
    energy = {
        k: {"late energy over the truth's": summarize(ratio) if np.isfinite(ratio).any() else None}
        for k, ratio in enumerate(arm.energy_spectrum.T)
    }
    return [
        {
            "wavenumber": k,
            "of": name,
            "error of a step, |rfft|": summarize(arm.first_error[:, -1, k]),
            "late amplitude over the truth's": (
                summarize(arm.late[:, k] / late[k]) if late[k] > ROUND_OFF * late.max() else None
            ),
        }
        | energy.get(k, {})
        for k in chosen
    ]


def _draw_validation(report: Report, fitted: Fitted, name: str) -> None:
    """The error of a step on the validation trajectories while training, where there are some."""
    if not any("validation_error" in record.metrics for record in fitted.history.records):
        return
    at, errors = fitted.history.curve("validation_error")
    errors = np.delete(errors, list(fitted.trained.diverged), 1)
    made, (ax,) = figure(1, 1, titles=("Validation",))
    steps = at * fitted.training.per_iteration
    curve_with_band(ax, steps, errors.T, name)
    ax.set_yscale("log")
    ax.set_xlabel("gradient steps")
    ax.set_ylabel("error of a step, standard deviations")
    best = steps[errors.argmin(0)]
    report.picture(
        "validation",
        made,
        "Root mean square error of a step on trajectories that are not trained on. The weights of "
        f"the lowest are kept: after {best.mean():,.0f} steps on average.",
    )


def _draw_correlation(
    report: Report,
    data: Holdout,
    arms: Mapping[str, Evaluation],
    clock: str,
) -> None:
    made, (left, right) = figure(1, 2, titles=("Correlation with the truth", "NRMSE"))
    at = data.dt * np.arange(1, data.steps + 1)
    for name, arm in arms.items():
        style: dict[str, Any] = {"linestyle": line(name)}
        curve_with_band(left, at, arm.correlation.mean(2), name, **style)
        curve_with_band(right, at, arm.nrmse.mean(2), name, **style)
    left.axhline(0.8, color="black", linestyle=":", linewidth=0.8)
    for ax in (left, right):
        ax.set_xlabel(clock)
    legend(made, [left])
    caption = "Rollouts, averaged over the test trajectories; dotted: where T(0.8) is read."
    report.picture("correlation", made, caption)
