"""Does a diffusion model help where data are few? SynthER on 3, 15 and 100 % of a dataset.

Every seed takes its own rows, fits its own diffusion model to them, replaces them by many more and
trains TD3+BC on those; beside it the same agent on the rows themselves and on as many rows with
noise added, the usual augmentation. Samples and noisy rows are looked at too: marginals,
correlations, distance to the nearest row and error in the true simulator.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, ResidualMlpConfig, SamplerConfig
from jaxrl_rollouts.experiments.kit.grid import Grid
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.study.model_based import Setting, environment_of
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .synther_small_data_cells import Config, measure_share
from .synther_small_data_page import SOURCE, page


def run(config: Config, context: RunContext) -> Report:
    """Every share: sample, look at the samples, train with and without them."""
    report = Report.of(context, config.seeds)
    dataset = load_dataset(config.dataset, config.seed)
    setting, key = Setting(dataset, environment_of(dataset)), jax.random.key(config.seed)
    # The same for every arm: what differs between them is the data.
    agent_key = jax.random.fold_in(key, 1)
    grids: dict[float, Grid] = {}
    for index, share in enumerate(config.shares):
        keys = *jax.random.split(jax.random.fold_in(key, 2 + index), 3), agent_key
        grids[share] = measure_share(share, setting, config, keys, context)
        jax.clear_caches()  # programs of other sizes are not needed again
    page(report, config, setting, grids)
    return report


def _synther(width: int, updates: int, steps: int, batch: int = 256) -> SyntherConfig:
    training = DenoiserTrainingConfig(updates=updates, batch=batch)
    return SyntherConfig(ResidualMlpConfig(width=width), training, SamplerConfig(steps))


_TINY = SyntherConfig(
    ResidualMlpConfig(width=16, blocks=2, embedding=8),
    DenoiserTrainingConfig(updates=20, batch=16, per_iteration=10),
    SamplerConfig(4),
)
_QUICK = DenoiserTrainingConfig(updates=10_000, rate=1e-3, warmup=500)

PRESETS = {
    "smoke": Config(
        dataset="pendulum-mixed", seeds=2, shares=(0.01, 0.05), synther=_TINY, samples=64,
        sample_batch=50, judged=32, agent=Td3BcConfig(hidden=(16,)), updates=20, per_iteration=10,
        batch_size=16, evaluations=1, episodes=2,
    ),
    "cpu": Config(
        synther=replace(_synther(256, 10_000, 32), training=_QUICK), samples=50_000,
        sample_batch=5000, judged=2000, updates=20_000, evaluations=4, episodes=5,
        agent=Td3BcConfig(hidden=(128, 128), actor_rate=1e-3, critic_rate=1e-3),
    ),
    "gpu": Config(
        seeds=8, synther=_synther(1024, 100_000, 128), samples=500_000, sample_batch=50_000,
        updates=200_000, evaluations=5,
    ),
    "paper": Config(
        dataset="halfcheetah-medium-replay-v2", seeds=8, sample_batch=100_000,
        synther=_synther(2048, 100_000, 128, batch=1024),
    ),
}  # fmt: skip
EXPERIMENT = Experiment(
    name="synther_small_data",
    summary="SynthER on 3, 15 and 100 % of a dataset: TD3+BC on rows, samples and noisy rows",
    source=SOURCE,
    config_type=Config,
    presets=PRESETS,
    run=run,
)
