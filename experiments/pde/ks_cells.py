"""What the Kuramoto-Sivashinsky experiments share: sizes, and one method as a cell of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxrl_rollouts.pde.generate import GenerateConfig
from jaxrl_rollouts.pde.operators import ResnetConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.look import (
    Outcome,
    high_correlation_times,
    sampled_horizons,
    train_and_roll,
)
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData, make_emulators
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext

from ..kit.grid import Cell

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"


def train_cell(
    method: str,
    study: StudyConfig,
    refiner: RefinerConfig,
    data: StudyData,
    context: RunContext | None,
    stage: str,
    *,
    sampled: bool = False,
) -> Cell:
    """Train a method out of mse, pushforward, correction and refiner, and roll it."""
    emulators = make_emulators(method, study, refiner)
    return cell_of(train_and_roll(stage, emulators, study, data, context, sampled=sampled), data.dt)


def cell_of(outcome: Outcome, dt: float, extra: Mapping[str, Any] | None = None) -> Cell:
    """An outcome's arrays by their names, and how long its rollouts last, `[seeds]`.

    `time_curve` is the paper's: how long the correlation averaged over trajectories stays above
    0.8 (`time_curve_0.9`: 0.9); `time_each` is the mean of the trajectories' own times. Samples'
    arrays begin with `sampled_`, beside `predicted_horizon` and `true_horizon` `[seeds, B]`.
    """
    evaluation, samples = outcome.evaluation, outcome.samples
    curve, each = high_correlation_times(evaluation.correlation, dt)
    arrays = evaluation._asdict() | {"time_curve": curve, "time_each": each}
    arrays["time_curve_0.9"] = high_correlation_times(evaluation.correlation, dt, 0.9)[0]
    if samples is not None:
        arrays |= {f"sampled_{name}": value for name, value in samples._asdict().items()}
        horizons = sampled_horizons(outcome, dt)
        arrays |= dict(zip(("predicted_horizon", "true_horizon"), horizons, strict=True))
    return Cell.of(outcome.trained, arrays | dict(extra or {}))


def small_domain(trajectories: int, frames: int, seed: int, points: int = 128) -> GenerateConfig:
    """Length 22, where every trajectory is chaotic; frames 0.8 apart, after 80 time units."""
    return GenerateConfig(
        trajectories=trajectories, points=points, extent=(22.0, 22.0), dt=(0.8, 0.8),
        frames=frames, burn_in=100, substeps=16, seed=seed,
    )  # fmt: skip


# A minute or two: everything runs, nothing is learnt.
SMOKE = StudyConfig(
    seeds=2, train=small_domain(16, 12, 0, 64), test=small_domain(8, 13, 1, 64),
    resnet=ResnetConfig(width=8, blocks=1, dilations=(1, 2, 1), embedding=16),
    training=TrainingConfig(updates=20, batch=8, warmup=2, per_iteration=10),
    steps=12, samples=3, sampled=4, sampled_steps=10,
)  # fmt: skip

# Two cores.
CPU = StudyConfig(
    seeds=4, train=small_domain(1024, 36, 0), test=small_domain(256, 251, 1),
    training=TrainingConfig(updates=10_000),
)  # fmt: skip

# For one GPU, and never run: the paper's data at 64 points, a wider network.
GPU = StudyConfig(
    seeds=2,
    train=GenerateConfig(extent=(57.6, 70.4), chunk=512),
    test=GenerateConfig(extent=(57.6, 70.4), trajectories=256, frames=640, chunk=256, seed=1),
    points=64, every=4, conditions=("dt", "dx"), residual_scale=0.3,
    resnet=ResnetConfig(width=128, blocks=4),
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
