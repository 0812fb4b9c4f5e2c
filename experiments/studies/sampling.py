"""Rows in few network calls: a diffusion model's solvers beside students distilled from it.

Every sampler's transitions are replayed in the simulator (mean squared error of the next
observation and the reward, in the data's variances) and compared with the data by the sliced
Wasserstein distance. `relabelled`: rewards and next observations by one network of the same rows.
Heek et al. 2024 (multistep consistency models), arXiv 2403.06807.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.grid import Cell, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import DistillationBatch, JumpConfig, SamplerConfig
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.synthetic.relabel import RelabelConfig, fit_relabeller, relabelled_rows
from jaxrl_rollouts.offline.synthetic.synther import RowLayout, draw_rows, fit_layout
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import PyTree

from ..benchmarks.timing import timed
from ..catalogue import LISTINGS
from ..kit.quality import dynamics_error, sliced_wasserstein

MANY = "Heun with churn"  # SynthER's sampler, 255 calls
RELABELLED = "relabelled"


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        seeds, seed: models trained side by side.
        dataset: its environment's observation must determine the state.
        network, training: the teacher, an EDM denoiser of transitions.
        student: updates of a student.
        calls: calls of the students, ascending.
        relabelling: the network of rewards and next observations (`members` is not used).
        rows: rows sampled for each seed and sampler.
    """

    seeds: int = positive(4)
    seed: int = 0
    dataset: str = "acrobot-broad"
    network: diffusion.ResidualMlp = diffusion.ResidualMlp(width=128)
    training: diffusion.DenoiserTrainingConfig = diffusion.small_training(6000, 256)
    student: int = positive(2500)
    calls: tuple[int, ...] = (1, 2, 4, 8)
    relabelling: EnsembleConfig = EnsembleConfig(
        hidden_dims=(128, 128, 128),
        variance="output",
        bootstrap=False,
        cosine=True,
        weight_decay=(0.0,),
        batch_size=512,
        max_epochs=30,
    )
    rows: int = positive(4096)

    def validate(self) -> None:
        if list(self.calls) != sorted(set(self.calls)) or len(self.calls) < 2:
            raise ConfigError("calls", self.calls, "at least two, ascending")


class Arm(NamedTuple):
    """A way to draw rows: a model with its weights, a sampler, and whether rows are relabelled."""

    model: Any
    params: PyTree
    sampler: SamplerConfig | JumpConfig
    relabelled: bool = False


def solvers(calls: tuple[int, ...]) -> dict[str, SamplerConfig | JumpConfig]:
    """The teacher's samplers by name; each makes as many calls as its name says."""
    several = [n for n in calls if n > 1]
    return {
        f"{MANY}, 255": SamplerConfig(128),
        **{f"Euler, {n}": JumpConfig(n, method="euler") for n in calls},
        **{f"Heun, {2 * n - 1}": JumpConfig(n, method="heun") for n in several},
        **{f"DPM-Solver++, {n}": SamplerConfig(n, method="dpmpp_2m") for n in several},
    }


def fit_arms(config: Config, packed: jax.Array, width: int, context: RunContext) -> dict[str, Arm]:
    """Train the teacher and its students on packed rows `[N, F]`; all arms by name."""
    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    denoiser = diffusion.make_denoiser(diffusion.make_residual_mlp(config.network, width))
    run: dict[str, Any] = {"stage": "teacher", "context": context}
    trained = diffusion.train_denoiser(denoiser, config.training, packed, keys, **run)
    teacher = trained.state.average
    arms = {name: Arm(denoiser, teacher, s) for name, s in solvers(config.calls).items()}
    network = diffusion.make_residual_mlp(config.network, width, interval=True)
    for count in config.calls:
        settings = diffusion.small_distil(count, config.student, config.training.batch)
        known = diffusion.flow_of_denoiser(denoiser)
        flow = diffusion.make_flow(network, settings.flow, known)
        run = {"stage": f"student-{count}", "context": context}
        lesson = DistillationBatch(packed, teacher)
        student = diffusion.distil(flow, settings.training, lesson, keys, **run).state.average
        arms[f"student, {count}"] = Arm(flow, student, settings.jumps)
    last = [f"{MANY}, 255", *(f"student, {n}" for n in config.calls[-2:])]
    return arms | {f"{n}, {RELABELLED}": arms[n]._replace(relabelled=True) for n in last}


def drawn_by(
    arm: Arm, keys: jax.Array, count: int, layout: RowLayout, relabellers: tuple
) -> list[Transitions]:
    """Rows of an arm for all seeds."""

    def one(per_seed: tuple, shared: tuple) -> jax.Array:
        return draw_rows(arm.model, *per_seed, (1, count, layout.features), arm.sampler)

    drawn = [layout.unpack(own) for own in map_seeds(one, (arm.params, keys))]
    if not arm.relabelled:
        return drawn
    per_seed = zip(relabellers, drawn, keys, strict=True)
    return [relabelled_rows(by, r, jax.random.fold_in(key, 1)) for by, r, key in per_seed]


def measure(
    draw: Callable[[], list[Transitions]],
    layout: RowLayout,
    real: jax.Array,
    data: Dataset,
    env: Environment,
    seed: int,
) -> dict[str, np.ndarray]:
    """Errors, distance and seconds of an arm's rows, `[seeds]` each."""
    drawn, at = draw(), jax.random.key(seed + 2)
    seconds = min(timed(draw) for _ in range(2))
    errors = [dynamics_error(env, own, data.transitions, at) for own in drawn]
    return {
        "rate": np.full(len(drawn), len(drawn) * len(real) / seconds),
        "distance": np.array([sliced_wasserstein(real, layout.pack(rows)) for rows in drawn]),
        "error": np.array([e.next_observation.mean() for e in errors]),
        "median": np.array([np.median(e.next_observation) for e in errors]),
        "reward": np.array([e.reward.mean() for e in errors]),
    }


def run(config: Config, context: RunContext) -> Report:
    """Train teacher and students, draw, compare."""
    report = Report.of(context, config.seeds)
    data = load(config.dataset, config.seed)
    env, rows = make(data.environment), data.with_successors
    layout = fit_layout(rows)
    packed = layout.pack(rows)
    arms = fit_arms(config, packed, layout.features, context)
    fits = jax.random.split(jax.random.key(config.seed + 3), config.seeds)
    how: dict[str, Any] = {"termination": env.termination, "context": context}
    settings = RelabelConfig("model", config.relabelling)
    relabellers = tuple(
        fit_relabeller(rows, settings, key, stage=f"relabeller-{i}", **how)
        for i, key in enumerate(fits)
    )
    keys = jax.random.split(jax.random.key(config.seed + 1), config.seeds)
    at = jax.random.key(config.seed + 4)
    real = packed[jax.random.randint(at, (config.rows,), 0, len(packed))]

    def cell(name: str, stage: str) -> Cell:
        draw = partial(drawn_by, arms[name], keys, config.rows, layout, relabellers)
        return Cell(measure=lambda: measure(draw, layout, real, data, env, config.seed))

    grid = run_grid({"sampler": tuple(arms)}, cell, context, seeds=config.seeds, clear=False)
    columns = {"samples/s": "rate", "sliced Wasserstein": "distance", "dynamics error": "error"}
    report.table("samplers", grid.rows(columns | {"its median": "median", "reward": "reward"}))
    add_claims(report, grid, config.calls)
    return report


def add_claims(report: Report, cells: Mapping[str, Cell], calls: tuple[int, ...]) -> None:
    """A student against the teacher's best solver in at most as many calls, seed by seed."""
    claim, many = claims(report, LISTINGS["sampling"].source), cells[f"{MANY}, 255"]
    for n in calls[-2:]:
        student = cells[f"student, {n}"]
        rivals = [name for name, sampler in solvers(calls).items() if sampler.calls <= n]
        best = np.min([cells[name]["distance"] for name in rivals], axis=0)
        means = f"sliced Wasserstein over that of the teacher's best solver in at most {n} calls"
        text = f"a student in {n} calls is twice as near"
        claim(text, student["distance"] / best, at_most=0.5, means=means)
        means = "samples a second over those of 255 calls"
        text = f"a student in {n} calls is at least 8 times as fast"
        claim(text, [(student["rate"] / many["rate"]).mean()], at_least=8.0, means=means)
        means = "dynamics error over that of 255 calls, relabelled by one network"
        ratio = cells[f"student, {n}, {RELABELLED}"]["error"] / many["error"]
        claim(f"a student in {n} calls, relabelled, is as right", ratio, at_most=1.25, means=means)


_TINY = diffusion.small_training(20, 16)
_NET = EnsembleConfig(hidden_dims=(16,), weight_decay=(0.0,), max_epochs=1)
PRESETS = {
    "smoke": Config(
        seeds=2,
        network=diffusion.ResidualMlp(width=16, blocks=2, embedding=16),
        training=_TINY,
        student=20,
        calls=(2, 4),
        relabelling=_NET,
        rows=64,
    ),
    "cpu": Config(),
}
EXPERIMENT = LISTINGS["sampling"].experiment(Config, PRESETS, run)
