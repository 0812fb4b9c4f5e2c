"""What a diffusion model's sampling costs and what it gives, by the number of steps.

A residual MLP learns transitions and a temporal U-Net learns windows of one dataset whose simulator
can be set to any state. Both are sampled at every number of steps, with churn and without. What is
drawn is judged by the simulator (dynamics error), as a distribution (sliced Wasserstein distance)
and by what an agent earns that learns from it alone. The defaults are to be read off this.
"""

from __future__ import annotations

import jax

from jaxrl_rollouts.diffusion import ResidualMlpConfig, TemporalUnetConfig, small_training
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.study.model_based import Setting, environment_of
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .sampler_steps_cells import Config, measure_net, subjects
from .sampler_steps_page import SOURCE, page


def run(config: Config, context: RunContext) -> Report:
    """Train, sample, judge, learn from the samples."""
    report = Report.of(context, config.seeds)
    dataset = load_dataset(config.dataset, config.seed)
    setting, measured = Setting(dataset, environment_of(dataset)), {}
    nets = subjects(config, dataset.transitions, dataset.name)
    for index, (net, subject) in enumerate(nets.items()):
        key = jax.random.fold_in(jax.random.key(config.seed), index)
        measured[net] = measure_net(net, subject, config, setting, key, context)
        jax.clear_caches()  # programs of the other network are not needed again
    page(report, config, measured)
    return report


_TINY = small_training(20, 16)
PRESETS = {
    "smoke": Config(
        dataset=PENDULUM, seeds=2, length=8, steps=(4, 8), churns=(80.0,), rows=64, windows=16,
        mlp=ResidualMlpConfig(width=16, blocks=2, embedding=16), mlp_training=_TINY,
        unet=TemporalUnetConfig(features=8, blocks=1), unet_training=_TINY,
        agent=Td3BcConfig(hidden=(16,)), iterations=2, updates=10, batch_size=16, episodes=2,
    ),
    "cpu": Config(),
}  # fmt: skip

EXPERIMENT = Experiment(
    name="sampler_steps",
    summary="what sampling costs and gives by the number of steps: errors, distance, agents",
    source=SOURCE,
    config_type=Config,
    presets=PRESETS,
    run=run,
)
