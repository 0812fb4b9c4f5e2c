"""Guided diffusion or an autoregressive ensemble: who imagines a policy's rollouts more truly?

Policy-guided diffusion draws whole windows at once and pulls their actions towards a policy; an
ensemble rolls the policy itself, step after step. Both are fitted to the same data, and every step
they imagine is repeated in the true simulator: how likely are the actions under the policy, and how
wrong is the next state? On data that are broad, on data the policy leaves at once, and in MuJoCo.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.diffusion import TemporalUnetConfig as Unet
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .pgd_vs_world_model_cells import ENSEMBLE, CaseConfig, Config, measure_sources, prepare
from .pgd_vs_world_model_cells import windows_training as training
from .pgd_vs_world_model_page import page


def run(config: Config, context: RunContext) -> Report:
    """Fit, draw and measure every case; compare, draw."""
    report, results = Report.of(context, config.seeds), {}
    for index, (name, case_config) in enumerate(config.cases().items()):
        fit_key, look_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index))
        case = prepare(case_config, config.horizon, config.seeds, fit_key, context)
        results[name] = case, measure_sources(case, config, look_key)
        jax.clear_caches()  # programs of a finished case are not needed again
    page(report, config, results)
    return report


_TINY = CaseConfig(
    rows=1000, unet=Unet(features=8, blocks=2), training=training(20, batch=8),
    ensemble=EnsembleConfig(
        members=2, elites=2, hidden=(16,), weight_decay=(2.5e-5,), max_epochs=1
    ),
    agent=Td3BcConfig(hidden=(16,), alpha=10.0), agent_updates=20,
)  # fmt: skip
_BROAD = CaseConfig(
    training=training(10_000), ensemble=replace(ENSEMBLE, max_epochs=12), agent_updates=10_000
)
_LONG = CaseConfig(
    unet=Unet(features=128), training=training(100_000), ensemble=replace(ENSEMBLE, max_epochs=100)
)
PRESETS = {
    "smoke": Config(
        seeds=2, broad=_TINY, narrow=replace(_TINY, data="acrobot-narrow"), mujoco=None,
        horizon=8, long_horizon=10, windows=6, steps=4, many_steps=8, published=(1.0, 2.0),
        published_many=(0.5,), calibrated=(10.0,),
    ),
    "cpu": Config(
        windows=192, broad=_BROAD, mujoco=replace(_BROAD, data="halfcheetah-medium", rows=0),
        narrow=replace(
            _BROAD, data="acrobot-narrow", rows=20_000, training=training(6000),
            ensemble=replace(ENSEMBLE, max_epochs=60),
        ),
    ),
    "gpu": Config(
        seeds=8, windows=1024, joint=(1.0, 3.0, 10.0, 30.0, 100.0),
        broad=_LONG, narrow=replace(_LONG, data="acrobot-narrow", rows=20_000),
        mujoco=replace(_LONG, data="halfcheetah-medium", rows=0, agent_updates=200_000),
    ),
    "paper": Config(
        broad=None, narrow=None, steps=256, many_steps=0, windows=1024, reference=1.0,
        published=(0.25, 0.5, 1.0, 2.0), published_many=(),
        mujoco=CaseConfig(
            "halfcheetah-medium-v2", rows=0, unet=Unet(features=1024, time_scale=1.0),
            training=replace(
                training(500_000, batch=32), rate=2e-3, clip=None, average=0.995, average_every=10,
                ramp="updates",
            ),
            ensemble=EnsembleConfig(), agent_updates=1_000_000,
        ),
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["pgd_vs_world_model"].experiment(Config, PRESETS, run)
