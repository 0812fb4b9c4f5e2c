"""What a diffusion model's sampling costs and what it gives, by sampler and number of calls.

A residual MLP learns transitions and temporal U-Nets learn windows of one dataset whose simulator
can be set to any state. They are sampled by EDM's samplers, with churn and without, and by
DPM-Solver++(2M), as an ODE and as an SDE, with equally many calls of the network. What is drawn is
judged by the simulator (dynamics error), as a distribution (sliced Wasserstein distance, spread,
distance to the nearest real row) and by what an agent earns that learns from it alone. The
defaults are to be read off this.
"""

from __future__ import annotations

import jax

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.diffusion import small_training
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.offline.study.source import setting_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .sampler_steps_cells import Config, measure_net, subjects
from .sampler_steps_page import page


def run(config: Config, context: RunContext) -> Report:
    """Train, sample, judge, learn from the samples."""
    report = Report.of(context, config.seeds)
    setting, results = setting_of(config.dataset, config.seed, context), {}
    nets = subjects(config, setting.dataset.with_successors, setting.dataset.name)
    keys = {"mlp": 0, "unet": 1, "unet-step": 1}  # the two U-Nets start from the same numbers
    for net, subject in nets.items():
        key = jax.random.fold_in(jax.random.key(config.seed), keys[net])
        results[net] = measure_net(net, subject, config, setting, key, context)
        jax.clear_caches()  # programs of the other networks are not needed again
    page(report, config, results)
    return report


_TINY = small_training(20, 16)
PRESETS = {
    "smoke": Config(
        dataset=PENDULUM, seeds=2, window_seeds=2, length=8, calls=(4, 8),
        samplers=("heun-churn", "dpmpp-sde"), biased=(),
        window_samplers=("heun-churn", "dpmpp-sde"), window_calls=(4, 8), few=4,
        levels=((80.0, 7.0), (20.0, 7.0)), level_calls=(4,), learned_calls=(8,), rows=64,
        windows=16, mlp=diffusion.ResidualMlpConfig(width=16, blocks=2, embedding=16),
        mlp_training=_TINY, unet=diffusion.TemporalUnetConfig(features=8, blocks=1),
        unet_training=_TINY, agent=Td3BcConfig(hidden=(16,)), iterations=2, updates=10,
        batch_size=16, episodes=2,
    ),
    "cpu": Config(
        window_seeds=2, unet_training=small_training(3000, 32), biased_calls=64,
        window_samplers=("heun-churn", "dpmpp-sde"),
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["sampler_steps"].experiment(Config, PRESETS, run)
