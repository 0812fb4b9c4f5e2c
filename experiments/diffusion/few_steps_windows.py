"""Windows of `few_steps`: whether guidance that acts in few jumps keeps them on a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    GuidanceConfig,
    JumpConfig,
    SamplerConfig,
    TemporalUnetConfig,
    small_distil,
    small_training,
)
from jaxrl_rollouts.offline.behaviours.acrobot import EXPERT, pump_gaussian
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.paths import path_quality_of_seeds, paths_of_windows
from jaxrl_rollouts.offline.synthetic.pgd import guided_windows
from jaxrl_rollouts.offline.synthetic.quality import sliced_wasserstein
from jaxrl_rollouts.offline.synthetic.windows import (
    WindowModel,
    cut_windows,
    distil_windows,
    fit_window_models,
)
from jaxrl_rollouts.record.context import RunContext

from .few_steps_ring import Sampler


@dataclass(frozen=True)
class WindowsConfig:
    """Windows of the dataset and guidance towards its scripted expert.

    Attributes:
        length: states of one.
        unet, training: the teacher.
        updates, batch: of the students.
        calls: of the students.
        coefficients: of the guidance, the `calibrated` rule; 0 is none.
        windows: drawn per seed.
    """

    length: int = 16
    unet: TemporalUnetConfig = TemporalUnetConfig(features=16)
    training: DenoiserTrainingConfig = small_training(3000, 64)
    updates: int = positive(1500)
    batch: int = positive(64)
    calls: tuple[int, ...] = (4, 8)
    coefficients: tuple[float, ...] = (0.0, 1.0, 4.0)
    windows: int = positive(256)


def measure_windows(
    settings: WindowsConfig,
    seeds: int,
    setting: Setting,
    key: jax.Array,
    context: RunContext | None,
) -> Grid:
    """Windows guided towards the scripted expert, in many steps and in few jumps.

    Returns:
        Cells by sampler, `[seeds, coefficients]` each: `gap`, the mean squared distance of actions
        from the expert's; `error`, of a step in the simulator, and its `median`; `distance` of
        windows from the data's.
    """
    data = setting.dataset.with_successors
    fit_key, draw_key, look_key = jax.random.split(key, 3)
    windows = cut_windows(data, settings.length, 4, source=setting.dataset.name)
    keys = jax.random.split(fit_key, seeds)
    run: dict[str, Any] = {"stage": "windows-teacher", "context": context}
    teacher = fit_window_models(windows, settings.unet, settings.training, keys, **run)
    models: dict[str, tuple[WindowModel, Sampler]] = {
        "128 levels with churn": (teacher, SamplerConfig(128)),
        "128 levels": (teacher, SamplerConfig(128, churn=0.0)),
    }
    for count in settings.calls:
        student = small_distil(count, settings.updates, settings.batch)
        run = {"stage": f"windows-student-{count}", "context": context}
        taught = distil_windows(teacher, windows, settings.unet, student, keys, **run)
        models[f"{count} steps of the teacher"] = (teacher, JumpConfig(count, method="euler"))
        models[f"{count} jumps"] = (taught, student.jumps)
    packed = teacher.layout.pack(windows)
    some = packed[jax.random.randint(look_key, (settings.windows,), 0, len(packed))]
    experts = jax.tree.map(lambda x: np.full(seeds, x, np.float32), EXPERT)
    policy, rule = (pump_gaussian, experts), GuidanceConfig(rule="calibrated")

    def measured(name: str) -> dict[str, Any]:
        (model, sampler), looks = models[name], []
        asked = jax.random.split(draw_key, seeds), settings.windows, settings.coefficients
        how: dict[str, Any] = {"guidance": rule, "sampler": sampler}
        for drawn in guided_windows(model, *policy, *asked, **how):
            paths = [paths_of_windows(model.layout, own) for own in drawn]
            quality = path_quality_of_seeds(setting.env, paths, data, *policy, look_key).mean()
            distance = np.array([sliced_wasserstein(some, own) for own in drawn])
            looks.append({**quality._asdict(), "distance": distance})
        return {name: np.stack([look[name] for look in looks], 1) for name in looks[0]}

    def cell(name: str, stage: str) -> Cell:
        return Cell(measure=lambda: measured(name))

    axes = {"sampler": tuple(models)}
    return run_grid(axes, cell, context, seeds=seeds, stage="windows", clear=False)
