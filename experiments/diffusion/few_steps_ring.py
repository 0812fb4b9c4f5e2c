"""The first part of `few_steps`: eight normals on a ring, where one can see what a call buys.

The teacher is an EDM denoiser; every network has its sizes and is judged by the sliced Wasserstein
distance from fresh rows and by the share of samples farther than three deviations from every mode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    FlowConfig,
    JumpConfig,
    Lesson,
    ResidualMlpConfig,
    SamplerConfig,
    distil,
    draw_samples,
    flow_of_denoiser,
    make_flow,
    make_residual_mlp,
    small_training,
    train_denoiser,
)
from jaxrl_rollouts.offline.synthetic.quality import sliced_wasserstein
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

RADIUS, STD, MODES = math.sqrt(2.0), 0.1, 8  # coordinates have unit variance, nearly
Sampler = SamplerConfig | JumpConfig


@dataclass(frozen=True)
class RingConfig:
    """Networks of two dimensions.

    Attributes:
        network: of everyone.
        training: of teacher and of what learns without one.
        student: of what starts from the teacher's weights.
        calls: of the samplers.
        samples: drawn per seed.
        gain: of `unified`'s derivative; at the paper's 1 it does not settle on this budget.
    """

    network: ResidualMlpConfig = ResidualMlpConfig(width=96, blocks=3, embedding=32)
    training: DenoiserTrainingConfig = small_training(4000, 192)
    student: DenoiserTrainingConfig = small_training(2000, 192)
    calls: tuple[int, ...] = (1, 2, 4, 8)
    samples: int = positive(4000)
    gain: float = number(0.25, least=0)


class Net(NamedTuple):
    """A trained network of all seeds, and how it may be sampled, by calls."""

    model: diffusion.Denoiser | diffusion.Flow
    params: PyTree
    samplers: Mapping[str, Mapping[int, Sampler]]


def centres() -> np.ndarray:
    angle = 2.0 * np.pi * np.arange(MODES) / MODES
    return RADIUS * np.stack([np.cos(angle), np.sin(angle)], 1)


def ring(key: jax.Array, count: int) -> jax.Array:
    """`[count, 2]` rows of the data."""
    mode_key, noise_key = jax.random.split(key)
    mode = jax.random.randint(mode_key, (count,), 0, MODES)
    noise = STD * jax.random.normal(noise_key, (count, 2))
    return jnp.asarray(centres(), jnp.float32)[mode] + noise


def off_mode(rows: np.ndarray) -> float:
    """Share of rows farther than three deviations from every mode; 0.011 of the data's own."""
    distance = np.linalg.norm(np.asarray(rows)[:, None] - centres(), axis=-1).min(1)
    return float((distance > 3.0 * STD).mean())


def jumps(calls: tuple[int, ...], **settings: Any) -> dict[int, Sampler]:
    return {n: JumpConfig(n, **settings) for n in calls}


def teachers_samplers(calls: tuple[int, ...]) -> dict[str, Mapping[int, Sampler]]:
    """Of a denoiser: EDM's as published and on the linear path, and DPM-Solver++(2M)."""
    several = [n for n in calls if n > 1]
    heun = {2 * n - 1: JumpConfig(n, method="heun") for n in several}
    levels = {2 * n - 1: SamplerConfig(n, churn=0.0) for n in several}
    two_m = {n: SamplerConfig(n, method="dpmpp_2m") for n in several}
    near = {n: SamplerConfig(n, method="dpmpp_2m", sigma_max=10.0) for n in several}
    return {
        "Euler": jumps(calls, method="euler"),
        "Heun": heun,
        "Heun on EDM's levels": levels,
        "2M": two_m,
        "2M from 10": near,
        "Heun with churn": {255: SamplerConfig(128)},
    }


def train_nets(
    config: RingConfig, rows: jax.Array, keys: jax.Array, context: RunContext | None
) -> dict[str, Net]:
    """Teacher, flows from scratch and students, by name."""
    plain, told = (make_residual_mlp(config.network, 2, interval=i) for i in (False, True))
    denoiser, calls = diffusion.make_denoiser(plain), config.calls

    def learned(model: Any, name: str) -> PyTree:
        run: dict[str, Any] = {"stage": f"ring-{name}", "context": context}
        return train_denoiser(model, config.training, rows, keys, **run).state.average

    teacher = learned(denoiser, "teacher")
    lesson = Lesson(rows, teacher)

    def taught(settings: FlowConfig, name: str, *, by_teacher: bool = True) -> tuple[Any, PyTree]:
        known = flow_of_denoiser(denoiser) if by_teacher else None
        flow, run = make_flow(told, settings, known), {"stage": f"ring-{name}", "context": context}
        return flow, distil(flow, config.student, lesson, keys, **run).state.average

    nets = {"teacher": Net(denoiser, teacher, teachers_samplers(calls))}
    flow = make_flow(told)
    euler = {"Euler": jumps(calls, method="euler")}
    nets["velocity"] = Net(flow, learned(flow, "velocity"), euler)
    for power in (0.0, 1.0):
        flow = make_flow(told, FlowConfig(loss="mean", power=power))
        own = {"jumps": jumps(calls)}
        nets[f"mean, p = {power:g}"] = Net(flow, learned(flow, f"mean-{power:g}"), own)
    for n in calls:
        settings = FlowConfig(loss="consistency", segments=n, steps=max(64 // n, 8))
        own = {"jumps": {n: JumpConfig(n)}}
        name = f"consistency, S = {n}"
        nets[name] = Net(*taught(settings, f"consistency-{n}"), own)
        if n == 4:
            untaught = taught(settings, "consistency-untaught", by_teacher=False)
            nets[f"{name}, no teacher"] = Net(*untaught, own)
    settings = FlowConfig(loss="unified", gain=config.gain)
    both = {"jumps": jumps(calls), "jumps, renoised": jumps(calls[1:], renoise=1.0)}
    nets["unified"] = Net(*taught(settings, "unified", by_teacher=False), both)
    settings = FlowConfig(loss="unified", gain=config.gain, push=1.0)
    nets["unified, taught"] = Net(*taught(settings, "unified-taught"), both)
    return nets


def measure_ring(
    config: RingConfig, seeds: int, key: jax.Array, context: RunContext | None
) -> tuple[Grid, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every network by every sampler.

    Returns:
        Cells by net, sampler and calls, with `distance` and `off_mode`, `[seeds]`; the same of
        fresh rows; and the first seed's samples by 4 calls (or the first number) for a picture.
    """
    data_key, fit_key, draw_key, real_key = jax.random.split(key, 4)
    nets = train_nets(config, ring(data_key, 20_000), jax.random.split(fit_key, seeds), context)
    real = [ring(k, config.samples) for k in jax.random.split(real_key, seeds + 1)]
    keys = jax.random.split(draw_key, seeds)

    def judged(rows: Any) -> dict[str, np.ndarray]:
        distance = [sliced_wasserstein(real[-1], own) for own in rows]
        return {"distance": np.array(distance), "off_mode": np.array([off_mode(r) for r in rows])}

    def drawn(net: str, sampler: str, calls: int) -> jax.Array:
        model, params, samplers = nets[net]
        chosen, shape = samplers[sampler][calls], (config.samples, 2)

        def one(per_seed: tuple[PyTree, jax.Array], shared: tuple) -> jax.Array:
            return draw_samples(model, *per_seed, shape, config=chosen)

        return map_seeds(one, (params, keys))

    def cell(*point: Any, stage: str) -> Cell:
        return Cell(measure=lambda: judged(drawn(*point)))

    points = [
        (net, sampler, calls)
        for net, (_, _, samplers) in nets.items()
        for sampler, settings in samplers.items()
        for calls in settings
    ]
    axes = ("net", "sampler", "calls")
    grid = run_grid(axes, cell, context, seeds=seeds, points=points, stage="ring", clear=False)
    shown = {}
    for net, sampler, calls in points:
        if calls in (4, 255) and sampler in ("Euler", "jumps", "Heun with churn"):
            shown[f"{net}: {sampler}, {calls} calls"] = np.asarray(drawn(net, sampler, calls)[0])
    return grid, judged(real[:-1]), shown
