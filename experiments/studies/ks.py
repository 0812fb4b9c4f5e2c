"""What the Kuramoto-Sivashinsky experiments share: sizes, one method as a cell of a grid, pictures.

Pictures take the cells of `train_cell`, by method; those that diverged are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.pde.generate import GenerateConfig
from jaxrl_rollouts.pde.operators import ResnetConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study import look
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData, make_emulator
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.colours import colour
from ..kit.draw import curve_with_band

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"


def train_cell(
    method: str,
    study: StudyConfig,
    refiner: RefinerConfig | None,
    data: StudyData,
    context: RunContext | None,
    stage: str,
    **how: Any,
) -> Cell:
    """Train a method out of mse, pushforward, correction and refiner, and roll it.

    `how` is for `train_and_roll`: another training, whether to draw samples.
    """
    emulator = make_emulator(method, study, refiner)
    return cell_of(look.train_and_roll(stage, emulator, study, data, context, **how), data.dt)


def cell_of(outcome: look.Outcome, dt: float, extra: Mapping[str, Any] | None = None) -> Cell:
    """An outcome's arrays by their names, and how long its rollouts last, `[seeds]`.

    `time_curve` is the paper's: how long the correlation averaged over trajectories stays above
    0.8 (`time_curve_0.9`: 0.9); `time_each` is the mean of the trajectories' own times. Samples'
    arrays begin with `sampled_`, beside `predicted_horizon` and `true_horizon` `[seeds, B]`.
    """
    evaluation, samples = outcome.evaluation, outcome.samples
    curve, each = look.high_correlation_times(evaluation.correlation, dt)
    arrays = evaluation._asdict() | {"time_curve": curve, "time_each": each}
    arrays["time_curve_0.9"] = look.high_correlation_times(evaluation.correlation, dt, 0.9)[0]
    if samples is not None:
        arrays |= {f"sampled_{name}": value for name, value in samples._asdict().items()}
        horizons = look.sampled_horizons(outcome, dt)
        arrays |= dict(zip(("predicted_horizon", "true_horizon"), horizons, strict=True))
    return Cell.of(outcome.trained, arrays | dict(extra or {}))


def small_domain(trajectories: int, frames: int, seed: int, points: int = 128) -> GenerateConfig:
    """Length 22, where every trajectory is chaotic; frames 0.8 apart, after 80 time units."""
    domain = GenerateConfig(extent=(22.0, 22.0), dt=(0.8, 0.8), burn_in=100, substeps=16)
    return replace(domain, trajectories=trajectories, frames=frames, seed=seed, points=points)


REFINER = RefinerConfig(min_noise_variance=1e-6)

# A minute or two: everything runs, nothing is learnt.
SMOKE = StudyConfig(
    seeds=2, train=small_domain(16, 13, 0, 64), test=small_domain(8, 13, 1, 64),
    resnet=ResnetConfig(width=8, blocks=1, dilations=(1, 2), embedding=16),
    training=TrainingConfig(updates=20, batch=8, warmup=2, per_iteration=10),
    steps=12, samples=3, sampled=4, sampled_steps=10,
)  # fmt: skip

# Two cores.
CPU = StudyConfig(
    train=small_domain(1024, 36, 0),
    test=small_domain(256, 251, 1),
    training=TrainingConfig(updates=10_000),
)

# For one GPU: the paper's data at 64 points, a wider network. A third of its updates were run. Both
# seeds' step in float32 on an H200: 7.6 ms as products, 18.0 ms as the backend's convolutions.
GPU = StudyConfig(
    seeds=2,
    train=GenerateConfig(extent=(57.6, 70.4), chunk=512),
    test=GenerateConfig(extent=(57.6, 70.4), trajectories=256, frames=640, chunk=256, seed=1),
    every=4, conditions=("dt", "dx"), residual_scale=0.3,
    resnet=ResnetConfig(width=128, blocks=4, form="matmul"),
    training=TrainingConfig(
        updates=80_000, batch=128, rate=3e-4, final_rate=1e-6, warmup=1000, per_iteration=1000
    ),
    steps=159, sampled_steps=159,
)  # fmt: skip

# Released settings: 400 epochs of 2240 updates on 53.9 million parameters; days on one GPU.
PAPER = replace(
    GPU, points=256, network="unet", test=replace(GPU.test, trajectories=128), seeds=3,
    training=TrainingConfig(
        updates=896_000, batch=128, rate=1e-4, final_rate=1e-6, warmup=0, clip=None,
        average=0.995, shift=False, per_iteration=1000,
    ),
)  # fmt: skip


def rollouts(cells: Grid) -> dict[str, np.ndarray]:
    """Those to draw, `[T, N]` by method."""
    return {name: cell["rollout"] for name, cell in cells.trained.items()}


def draw_correlation(report: Report, dt: float, cells: Mapping[str, Cell]) -> None:
    """Correlation with the truth over time."""
    caption = (
        "Pearson correlation of rollout and truth, averaged over the test trajectories; lines: "
        "interquartile mean over seeds."
    )
    with picture(report, "correlation", caption, width=5.6, height=3.2) as (ax,):
        for name, cell in cells.items():
            correlation = cell["correlation"].mean(2)
            curve_with_band(ax, dt * np.arange(1, correlation.shape[1] + 1), correlation, name)
        for threshold in (0.8, 0.9):
            level(ax, threshold, linestyle=":")
        ax.set_xlabel("time")
        ax.set_ylabel("correlation, mean over trajectories")


def draw_refinement(report: Report, name: str, cell: Cell) -> None:
    """One-step error along refinement: its size and its spectrum."""
    caption = "Error after 0, 1, ... refinements of the same step. Left: each line is a seed."
    titles = ("Error of one step", "Its spectrum, median seed")
    error, spectra = cell["one_step"], np.median(cell["first_error"], 0)[:, 1:]
    calls, shade = error.shape[1], colour(name)
    with picture(report, "refinement", caption, titles=titles, legend=False) as (left, right):
        left.semilogy(range(calls), error.T, "o-", markersize=3, color=shade)
        left.set_xticks(range(calls))
        left.set_xlabel("refinements applied")
        left.set_ylabel("mean square error")
        for call, spectrum in enumerate(spectra):
            style = {"color": shade, "label": f"{call}", "alpha": (call + 1) / calls}
            right.semilogy(np.arange(len(spectrum)) + 1, spectrum, **style)
        right.set_xlabel("wavenumber")
        right.set_ylabel("mean |rfft|")
        right.legend(frameon=False, fontsize=8, title="refinements")


def draw_samples(report: Report, study: StudyConfig, dt: float, name: str, cell: Cell) -> None:
    """Predicted against true horizon, and the spread of samples against their error."""
    caption = (
        "Left: per test trajectory, the time for which samples agree against the time for which "
        "the rollout is right; all seeds; rollouts end at the dotted line's end. Right: standard "
        "deviation over samples and error of their mean."
    )
    titles, top = ("How long to trust it", "Spread and error"), study.sampled_steps * dt
    with picture(report, "samples", caption, titles=titles, legend=False) as (left, right):
        horizons = cell["predicted_horizon"].T, cell["true_horizon"].T
        left.plot(*horizons, ".", color=colour(name), markersize=3, alpha=0.4)
        left.plot([0, top], [0, top], color="black", linestyle=":", linewidth=0.8)
        left.set_xlabel(f"predicted from {study.samples} samples")
        left.set_ylabel("true time above 0.8")
        for label, metric in (("spread of samples", "spread"), ("error of their mean", "error")):
            values = cell[f"sampled_{metric}"]
            curve_with_band(right, dt * np.arange(1, values.shape[1] + 1), values, label)
        right.set_yscale("log")
        right.set_xlabel("time")
        right.legend(frameon=False, fontsize=8)
