"""PDE-Refiner on Kuramoto-Sivashinsky: what refinement does to small amplitudes and to rollouts.

One-step MSE, pushforward, error correction (a second call without noise: the control) and
PDE-Refiner with the same network, data, updates and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.evaluation import late_spectrum
from jaxrl_rollouts.pde.objectives import Refiner
from jaxrl_rollouts.pde.pictures import draw_spectra
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LIPPE, LISTINGS
from . import ks

METHODS = ("mse", "pushforward", "correction", "refiner")
HIGH = slice(20, None)  # wavenumbers
COLUMNS = {
    "T(0.8), mean curve": "time_curve",
    "T(0.8), per trajectory": "time_each",
    "one-step MSE": lambda cell: cell["one_step", :, -1],
    "seconds to train": lambda cell: cell.seconds,
}


@dataclass(frozen=True)
class KsConfig:
    """Methods out of mse, pushforward, correction (two calls, no noise) and refiner.

    Attributes:
        methods: methods to train.
        study: data, networks and trainings.
        refiner: PDE-Refiner's settings.
    """

    methods: tuple[str, ...] = METHODS
    study: ks.Study = field(default_factory=ks.Study)
    refiner: Refiner = field(default_factory=Refiner)

    def validate(self) -> None:
        if not self.methods or set(self.methods) - set(METHODS):
            raise ConfigError("methods", self.methods, f"names out of {', '.join(METHODS)}")


def run(config: KsConfig, context: RunContext) -> Report:
    """Solve, train every method, roll, compare."""
    study, data = config.study, ks.prepare(config.study, context)

    def train(method: str, stage: str) -> Cell:
        sampled = method == "refiner"
        objective = config.refiner if sampled else method
        return ks.train_cell(stage, study, objective, data, context, sampled=sampled)

    cells = run_grid({"method": config.methods}, train, context, seeds=study.seeds)
    report = Report.of(context, study.seeds)
    true_late = np.asarray(late_spectrum(data.test.truth(), data.test))
    report.table("rollouts", cells.rows(COLUMNS))
    errors = {
        name: lambda cell, band=band: cell["first_error", :, -1, band].mean(1)
        for name, band in bands(study.test.points).items()
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
    spectra = {n: (c["first_error", :, -1], c["late"]) for n, c in cells.trained.items()}
    draw_spectra(report, spectra, true_late)
    report.note(
        f"{study.test.trajectories} test trajectories, {study.steps} steps of {data.test.dt:g}. "
        "The mean-curve time is the paper's: how long the correlation averaged over trajectories "
        "stays above the threshold. The other one averages each trajectory's own time."
    )
    return report


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


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one of them does not vary."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _claims(report: Report, study: ks.Study, cells: Grid, true_late: np.ndarray) -> None:
    claim, mse, refiner = claims(report, LIPPE), cells["mse"], cells["refiner"]
    high = {name: cell["first_error", :, -1, HIGH].mean(1) for name, cell in cells.items()}
    means = "error at wavenumbers from 20 at most a seventh of MSE training's"
    repaired = high["refiner"] / high["mse"]
    claim("refinement repairs high wavenumbers", repaired, at_most=1 / 7, means=means)
    means = "one-step MSE after one refinement against the first prediction's"
    after = refiner["one_step", :, 1] / refiner["one_step", :, 0]
    claim("error falls along refinement", after, at_most=0.6, means=means)

    # Amplitudes late in the rollout, in the truth's.
    late_mse, late = (cell["late", :, :] / true_late for cell in (mse, refiner))
    first, at = where_first_off(late_mse), min(15, len(true_late) - 1)
    name = "the refiner's late spectrum is the truth's"
    means = "amplitude within 10 % at the lowest wavenumber where MSE's is off by 2"
    there = late[np.arange(len(first)), first]
    claim(f"{name} where MSE training's first fails", there, between=(0.9, 1.1), means=means)
    means = f"amplitude at wavenumber {at} within 10 %"
    claim(name, late[:, at], between=(0.9, 1.1), means=means)
    means = f"off by 2 or more at wavenumber {at}"
    off = np.maximum(late_mse[:, at], 1 / late_mse[:, at])
    claim("MSE training's late spectrum is not", off, at_least=2.0, means=means)

    means = f"Pearson correlation of predicted and true horizon, {study.samples} samples"
    horizons = zip(refiner["predicted_horizon", :, :], refiner["true_horizon", :, :], strict=True)
    agreement = [pearson(*pair) for pair in horizons]
    claim("samples know how long a rollout lasts", agreement, at_least=0.5, means=means)
    means = "mean-curve T(0.8) against MSE training's at equal updates"
    longer = refiner["time_curve"] / mse["time_curve"]
    claim("refinement extends rollouts", longer, at_least=1.05, means=means)
    if "correction" in cells:
        means = "error correction's error from wavenumber 20 at least half of MSE's"
        control = high["correction"] / high["mse"]
        claim("extra calls without noise do not repair them", control, at_least=0.5, means=means)


# Error falls along refinement from about 20 000 updates on; 48 points make them fit an hour on two
# cores and still hold the wavenumbers from 20 on, which plain training does not learn.
_DATA = {"train": ks.small_domain(1024, 36, 0, 48), "test": ks.small_domain(256, 251, 1, 48)}
_TWICE_AS_LONG = replace(ks.CPU, training=Training(steps=20_000), **_DATA)

GPU = replace(ks.REFINER, first="zeros", first_share=0.4)
PRESETS = {
    "smoke": KsConfig(study=ks.SMOKE, refiner=ks.REFINER),
    "cpu": KsConfig(study=_TWICE_AS_LONG, refiner=ks.REFINER),
    "gpu": KsConfig(("mse", "refiner"), ks.GPU, GPU),
    "paper": KsConfig(study=ks.PAPER, refiner=Refiner(min_noise_variance=4e-7)),
}
EXPERIMENT = LISTINGS["refiner"].experiment(KsConfig, PRESETS, run)
