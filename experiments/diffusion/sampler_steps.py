"""What a diffusion model's sampling costs and what it gives, by the number of steps.

A residual MLP learns transitions and a temporal U-Net learns windows of one dataset whose simulator
can be set to any state. Both are sampled at every number of steps, with churn and without. What is
drawn is judged by the simulator (dynamics error), as a distribution (sliced Wasserstein distance)
and by what an agent earns that learns from it alone. The defaults are to be read off this.
"""

from __future__ import annotations

import jax

from jaxrl_rollouts.diffusion import ResidualMlpConfig, SamplerConfig, TemporalUnetConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.study.model_based import environment_of
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .budgets import denoiser_training
from .sampler_steps_cells import SOURCE, Config
from .sampler_steps_page import Found, Look, Real, add_report
from .sampler_steps_study import (
    fit,
    floor,
    learn,
    measure,
    real_samples,
    subjects,
)


def run(config: Config, context: RunContext) -> Report:
    """Train, sample, judge, learn from the samples."""
    report = Report.of(context, config.seeds)
    dataset = load_dataset(config.dataset, config.seed)
    env, data = environment_of(dataset), dataset.transitions
    found: Found = {}
    real: dict[str, Real] = {}
    for index, (name, subject) in enumerate(subjects(config, data, dataset.name).items()):
        key = jax.random.fold_in(jax.random.key(config.seed), index)
        # The same for every sampler: what differs between them is the number of steps.
        fit_key, look_key, learn_key, real_key = jax.random.split(key, 4)
        params = fit(name, subject, config, fit_key, context)
        own = real_samples(subject, real_key, config.seeds)
        returns = learn(own, env, config, learn_key, f"{name}-agent-real", context)
        real[name] = Real(floor(subject, look_key), returns)
        for churn in config.churns:
            for steps in config.steps:
                sampler = SamplerConfig(steps, churn=churn)
                one, samples = measure(subject, params, sampler, env, data, look_key)
                earned = None
                if churn == config.churns[0]:
                    stage = f"{name}-agent-{steps}"
                    earned = learn(samples, env, config, learn_key, stage, context)
                found[name, churn, steps] = Look(one, earned)
        jax.clear_caches()  # programs of the other kind are not needed again
    add_report(report, config, found, real)
    return report


_TINY = denoiser_training(20, 16)

EXPERIMENT = Experiment(
    name="sampler_steps",
    summary="what sampling costs and gives by the number of steps: errors, distance, agents",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            dataset=PENDULUM, seeds=2, mlp=ResidualMlpConfig(width=16, blocks=2, embedding=16),
            mlp_training=_TINY, unet=TemporalUnetConfig(features=8, blocks=1), unet_training=_TINY,
            length=8, steps=(4, 8), churns=(80.0,), rows=64, windows=16,
            agent=Td3BcConfig(hidden=(16,)), iterations=2, updates=10, batch_size=16, episodes=2,
        ),
        "cpu": Config(),
    },
    run=run,
)  # fmt: skip
