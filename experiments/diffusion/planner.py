"""What do plans cost that are drawn in one network call, and what do they earn?

A diffusion model of windows of states, asked for high returns, plans; an inverse model acts. Its
student draws the same plans in one call, where the model itself takes 255. Both are played, timed
and held against the simulator, beside the model's own samplers in few calls, behaviour cloning and
TD3+BC.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.diffusion import FlowConfig
from jaxrl_rollouts.diffusion import TemporalUnetConfig as Unet
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.agents.planner import PlannerConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .planner_cells import Config, run_dataset
from .planner_page import page


def run(config: Config, context: RunContext) -> Report:
    """All arms on all datasets; each stage resumes by itself."""
    report, results = Report.of(context, config.seeds), {}
    for name, episodes in zip(config.datasets, config.episodes, strict=True):
        results[name] = run_dataset(name, episodes, config, context)
        jax.clear_caches()  # programs of another dataset are not needed again
    page(report, config, results)
    return report


_CPU = Config(
    (PENDULUM,), seeds=3, updates=4000, batch_size=64, per_iteration=250, episodes=(12,),
    # Eight steps of the teacher: what is known at the data climbs to the noise step by step.
    planner=PlannerConfig(
        horizon=7, unet=Unet(features=32, blocks=2), hidden=(128, 128), actor_rate=1e-3,
        student=FlowConfig(loss="consistency", segments=1, steps=8),
    ),
    bc=BcConfig(hidden=(64, 64), actor_rate=1e-3), agent_updates=15_000,
    td3_bc=Td3BcConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, polyak=0.05),
)  # fmt: skip
PRESETS = {
    "smoke": replace(
        _CPU, seeds=2, updates=20, batch_size=16, per_iteration=10, episodes=(2,), plans=4,
        planner=PlannerConfig(horizon=3, unet=Unet(features=8, blocks=1), hidden=(16,)),
        bc=BcConfig(hidden=(16,)), td3_bc=Td3BcConfig(hidden=(16,)), agent_updates=20,
    ),
    "cpu": _CPU,
    # What TD3+BC wants on HalfCheetah: see `synther_small_data`, told with a norm in the critics.
    "halfcheetah": replace(
        _CPU, datasets=("halfcheetah-mixed",), updates=12_000, episodes=(3,), agent_updates=20_000,
        td3_bc=replace(_CPU.td3_bc, critic_norm=True),
    ),
    "gpu": replace(
        Config(), planner=PlannerConfig(unet=Unet(features=64)), updates=100_000,
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["planner"].experiment(Config, PRESETS, run)
