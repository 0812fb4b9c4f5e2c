"""Tables, claims and pictures of `ks_refiner`."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.pde.study.look import true_spectrum
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData
from jaxrl_rollouts.reports.report import Report

from ..kit.claims import claims
from ..kit.grid import Grid
from .ks_cells import SOURCE
from .ks_page import (
    draw_correlation,
    draw_refinement,
    draw_rollouts,
    draw_samples,
    draw_spectra,
)

HIGH = slice(20, None)  # wavenumbers
COLUMNS = {
    "T(0.8), mean curve": "time_curve",
    "T(0.8), per trajectory": "time_each",
    "T(0.9), mean curve": "time_curve_0.9",
    "one-step MSE": lambda cell: cell["one_step", :, -1],
    "seconds to train": lambda cell: cell.seconds,
}


def make_report(report: Report, study: StudyConfig, data: StudyData, cells: Grid) -> None:
    """Fill `report` with everything the run has to say."""
    true_late = true_spectrum(study, data)
    report.table("rollouts", cells.rows(COLUMNS))
    errors = {
        name: lambda cell, band=band: cell["first_error", :, -1, band].mean(1)
        for name, band in bands(study.points).items()
    }
    report.table("one-step error by wavenumber", cells.rows(errors))
    late = {
        f"wavenumber {k}": lambda cell, k=k: cell["late", :, k] / true_late[k]
        for k in (4, 8, 10, 12, 14, 15, 16, 20)
        if k < len(true_late)
    }
    report.table("late amplitude over the truth's", cells.rows(late))
    if {"mse", "refiner"} <= set(cells):
        _claims(report, study, cells, true_late)
    draw_rollouts(report, study, data, cells)
    draw_correlation(report, data.dt, cells.trained)
    draw_spectra(report, cells, true_late)
    if "refiner" in cells.trained:
        draw_refinement(report, "refiner", cells["refiner"])
        draw_samples(report, study, data.dt, "refiner", cells["refiner"])
    report.note(
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}. The "
        "mean-curve time is the paper's: how long the correlation averaged over trajectories "
        "stays above the threshold. The other one averages each trajectory's own time."
    )


def bands(points: int) -> dict[str, slice]:
    """Wavenumbers by what refinement is about: energetic, small, and too small to be learnt."""
    half = points // 2 + 1
    edges = {"1-7": (1, 8), "12-19": (12, 20), "20 and above": (20, half)}
    return {name: slice(*edge) for name, edge in edges.items() if edge[0] < half}


def where_first_off(late: np.ndarray, by: float = 2.0) -> np.ndarray:
    """Lowest wavenumber `[seeds]` whose amplitude `[seeds, K]`, in the truth's, is off by a factor.

    The highest one where none is.
    """
    off = np.maximum(late, 1 / np.maximum(late, 1e-30)) >= by
    off[:, 0], off[:, -1] = False, True  # the mean says nothing
    return off.argmax(1)


def _claims(report: Report, study: StudyConfig, cells: Grid, true_late: np.ndarray) -> None:
    claim, mse, refiner = claims(report, SOURCE), cells["mse"], cells["refiner"]
    high = {name: cell["first_error", :, -1, HIGH].mean(1) for name, cell in cells.items()}
    claim(
        "refinement repairs high wavenumbers",
        high["refiner"] / high["mse"],
        at_most=1 / 7,
        means="error at wavenumbers from 20 at most a seventh of MSE training's",
    )
    claim(
        "error falls along refinement",
        refiner["one_step", :, 1] / refiner["one_step", :, 0],
        at_most=0.6,
        means="one-step MSE after one refinement against the first prediction's",
    )
    at = min(15, len(true_late) - 1)
    late = {n: cells[n]["late", :, :] / true_late for n in ("refiner", "mse")}
    first = where_first_off(late["mse"])
    claim(
        "the refiner's late spectrum is the truth's where MSE training's first fails",
        late["refiner"][np.arange(len(first)), first],
        between=(0.9, 1.1),
        means="amplitude within 10 % at the lowest wavenumber where MSE's is off by 2",
    )
    claim(
        "the refiner's late spectrum is the truth's",
        late["refiner"][:, at],
        between=(0.9, 1.1),
        means=f"amplitude at wavenumber {at} within 10 %",
    )
    claim(
        "MSE training's late spectrum is not",
        np.maximum(late["mse"][:, at], 1 / late["mse"][:, at]),
        at_least=2.0,
        means=f"off by 2 or more at wavenumber {at}",
    )
    horizons = refiner["predicted_horizon", :, :], refiner["true_horizon", :, :]
    claim(
        "samples know how long a rollout lasts",
        [pearson(*pair) for pair in zip(*horizons, strict=True)],
        at_least=0.5,
        means=f"Pearson correlation of predicted and true horizon, {study.samples} samples",
    )
    claim(
        "refinement extends rollouts",
        refiner["time_curve"] / mse["time_curve"],
        at_least=1.05,
        means="mean-curve T(0.8) against MSE training's at equal updates",
    )
    if "correction" in cells:
        claim(
            "extra calls without noise do not repair them",
            high["correction"] / high["mse"],
            at_least=0.5,
            means="error correction's error from wavenumber 20 at least half of MSE's",
        )


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one of them does not vary."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0
