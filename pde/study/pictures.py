"""What rollouts of emulators look like: in space and time, and by wavenumber."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.reports.pictures import colour
from jaxrl_rollouts.reports.report import Report

from .train import StudyConfig, StudyData


def draw_rollouts(
    report: Report,
    study: StudyConfig,
    data: StudyData,
    rollouts: Mapping[str, np.ndarray],
    *,
    clock: str = "time",
) -> None:
    """Truth, predictions and errors of one test trajectory in space and time.

    Args:
        report: where it goes.
        study, data: how the emulators were rolled, and over what.
        rollouts: `[T, N]` by name: `Evaluation.rollout`.
        clock: what `data.dt` counts, for the axis.
    """
    caption = (
        "One test trajectory (space upwards, time to the right) and each method's rollout from "
        "its first frame, first seed; right: prediction minus truth."
    )
    truth = np.asarray(data.truth(study.steps, study.history)[:, 0, 0])
    rows, limit = {"truth": truth, **rollouts}, float(np.abs(truth).max())
    extent = (data.dt, study.steps * data.dt, 0.0, float(study.points))
    style: dict[str, Any] = {"extent": extent, "vmin": -limit, "vmax": limit, "cmap": "RdBu_r"}
    style |= {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    titles = ["error" if panel == 3 else "" for panel in range(2 * len(rows))]
    size = {"columns": 2, "width": 5.0, "height": 1.25, "sharex": True, "sharey": True}
    with picture(report, "rollouts", caption, titles=titles, legend=False, **size) as axes:
        axes[1].set_visible(False)
        for left, right, (name, field) in zip(axes[::2], axes[1::2], rows.items(), strict=True):
            for ax, values in ((left, field), (right, field - truth)):
                ax.imshow(values.T, **style)
                ax.grid(visible=False)
                ax.set_yticks([])
            left.set_ylabel(name, fontsize=8)
        for ax in axes[-2:]:
            ax.set_xlabel(clock)
        axes[0].figure.colorbar(axes[0].images[0], ax=axes, shrink=0.6, pad=0.01)


def draw_spectra(
    report: Report,
    spectra: Mapping[str, tuple[np.ndarray, np.ndarray]],
    true_late: np.ndarray,
    *,
    colours: Mapping[str, str] | None = None,
) -> None:
    """Error after a step, and amplitudes late in the rollout, over the wavenumber.

    Args:
        report: where it goes.
        spectra: both by name, `[seeds, K]` each.
        true_late: the truth's late amplitudes `[K]`.
        colours: known names and theirs; see `pictures.colour`.
    """
    caption = (
        "Left: amplitudes of prediction minus truth after one step. Right: amplitudes of the "
        "rollouts themselves over their last quarter. Median and range over seeds."
    )
    titles = ("Error after one step", "Late in the rollout")
    numbers = np.arange(1, len(true_late))
    with picture(report, "spectra", caption, titles=titles) as (left, right):
        for name, both in spectra.items():
            shade = colour(name, colours)
            for ax, amplitudes in zip((left, right), both, strict=True):
                low, middle, high = np.quantile(amplitudes[:, 1:], (0.0, 0.5, 1.0), axis=0)
                ax.semilogy(numbers, middle, color=shade, label=name)
                ax.fill_between(numbers, low, high, color=shade, alpha=0.2, linewidth=0)
        right.semilogy(numbers, true_late[1:], color="black", linestyle="--", label="truth")
        right.set_ylim(bottom=max(float(true_late[1:].min()), 1e-7) / 3)
        for ax in (left, right):
            ax.set_xlabel("wavenumber")
        left.set_ylabel("mean |rfft|")
