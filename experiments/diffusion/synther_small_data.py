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
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.study.model_based import Setting, StudyConfig, environment_of
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .synther_quality import Quality, measure_quality
from .synther_small_data_cells import Arm, Config, Result, own_rows, train_arm, upsample, with_noise
from .synther_small_data_page import SOURCE, make_report


def run(config: Config, context: RunContext) -> Report:
    """Every share: sample, look at the samples, train with and without them."""
    study = StudyConfig(seeds=config.seeds, seed=config.seed)
    dataset = load_dataset(config.dataset, study.seed)
    setting = Setting(dataset, environment_of(dataset))
    report = Report.of(context, config.seeds)
    results: dict[Arm, Result] = {}
    quality: dict[tuple[float, str], list[Quality]] = {}
    # The same for every arm: what differs between them is the data.
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    for index, share in enumerate(config.shares):
        rows_key, draw_key, look_key = jax.random.split(
            jax.random.fold_in(jax.random.key(config.seed), 2 + index), 3
        )
        rows = own_rows(dataset.transitions, share, rows_key, config.seeds)
        name = f"{100 * share:g}-percent".replace(".", "-")
        samples = upsample(rows, name, config, draw_key, context)
        looked = measure_quality(
            rows, samples, setting.env, look_key, count=config.judged, noise=config.noise
        )
        quality |= {(share, kind): found for kind, found in looked.items()}
        data = {"rows": None, "samples": samples, "rows with noise": with_noise(rows, config)}
        for kind, made in data.items():
            arm = Arm(share, kind)
            results[arm] = train_arm(arm, rows, made, setting, config, key, context)
        jax.clear_caches()  # programs of other sizes are not needed again
    make_report(report, config, setting, results, quality)
    return report


def _synther(width: int, updates: int, steps: int, batch: int = 256) -> SyntherConfig:
    return SyntherConfig(
        ResidualMlpConfig(width=width), DenoiserTrainingConfig(updates=updates, batch=batch),
        SamplerConfig(steps),
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="synther_small_data",
    summary="SynthER on 3, 15 and 100 % of a dataset: TD3+BC on rows, samples and noisy rows",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, dataset="pendulum-mixed", shares=(0.01, 0.05),
            synther=SyntherConfig(
                ResidualMlpConfig(width=16, blocks=2, embedding=8),
                DenoiserTrainingConfig(updates=20, batch=16, per_iteration=10), SamplerConfig(4),
            ),
            samples=64, sample_batch=50, agent=Td3BcConfig(hidden=(16,)), updates=20,
            per_iteration=10, batch_size=16, evaluations=1, episodes=2, judged=32,
        ),
        "cpu": Config(
            synther=replace(
                _synther(256, 10_000, 32),
                training=DenoiserTrainingConfig(updates=10_000, rate=1e-3, warmup=500),
            ),
            samples=50_000, sample_batch=5000,
            agent=Td3BcConfig(hidden=(128, 128), actor_rate=1e-3, critic_rate=1e-3),
            updates=20_000, evaluations=4, episodes=5, judged=2000,
        ),
        "gpu": Config(
            seeds=8, synther=_synther(1024, 100_000, 128), samples=500_000, sample_batch=50_000,
            updates=200_000, evaluations=5,
        ),
        "paper": Config(
            seeds=8, dataset="halfcheetah-medium-replay-v2",
            synther=_synther(2048, 100_000, 128, batch=1024), sample_batch=100_000,
        ),
    },
    run=run,
)  # fmt: skip
