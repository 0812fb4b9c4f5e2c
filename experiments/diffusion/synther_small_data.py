"""Does a diffusion model help where data are few? SynthER on 3, 15 and 100 % of a dataset.

Every seed takes its own rows, fits its own diffusion model to them, replaces them by many more and
trains TD3+BC on those; beside it the same agent on the rows themselves and on as many rows with
noise added, the usual augmentation. Where asked (`told`), also on the same samples with rewards and
next observations by a world model of the same rows, or by the simulator: what is lost in the
transitions, and what in the states and actions. Samples and noisy rows are looked at too:
marginals, correlations, distance to the nearest row and, where the simulator can be set to an
observation, error in it.
"""

from __future__ import annotations

from typing import Any

from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, SamplerConfig, small_training
from jaxrl_rollouts.diffusion import ResidualMlpConfig as Mlp
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.environments import true_model
from jaxrl_rollouts.offline.study.source import setting_of
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .synther_small_data_cells import measure_share, of_shares
from .synther_small_data_config import Config
from .synther_small_data_page import page


def run(config: Config, context: RunContext) -> Report:
    """Every share: sample, look at the samples, train with and without them."""
    report = Report.of(context, config.seeds)
    setting = setting_of(config.dataset, config.seed, context)
    if "oracle" in config.told:
        true_model(setting.env)  # refused before anything is trained
    grids = of_shares(
        config, lambda share, key: measure_share(share, setting, config, key, context)
    )
    page(report, config, setting, grids)
    return report


_TINY = SyntherConfig(
    Mlp(width=16, blocks=2, embedding=8),
    DenoiserTrainingConfig(updates=20, batch=16, per_iteration=10),
    SamplerConfig(4),
)
# Targets move five (TD3+BC) and two and a half times (IQL) as fast as published, so that 24 000
# updates are three time constants of the critics, which are layer-normalised: without it both
# agents earn half on real rows. The simulator has no noise, nor has the ensemble, whose networks
# are fitted by least squares (one variance for each output).
_NET: dict[str, Any] = {
    "hidden": (64, 64),
    "actor_rate": 1e-3,
    "critic_rate": 1e-3,
    "critic_norm": True,
}
_CPU = Config(
    samples=40_000, sample_batch=5000, judged=2000,
    synther=SyntherConfig(Mlp(width=128), small_training(6000, 256), SamplerConfig(32)),
    told=("ensemble", "ensemble-drop", "model", "oracle"), noise_told=False,
    networks=EnsembleConfig(
        members=3, elites=3, hidden=(200, 200, 200), weight_decay=(2.5e-5,), batch_size=512,
        max_epochs=30, variance="output",
    ),
    agents=("td3_bc", "iql"), agent=Td3BcConfig(polyak=0.025, **_NET),
    iql=IqlConfig(normalise=True, polyak=0.0125, value_rate=1e-3, cosine_steps=24_000, **_NET),
    updates=24_000, evaluations=3, episodes=5,
)  # fmt: skip
PRESETS = {
    "smoke": Config(
        dataset="pendulum-mixed", seeds=2, shares=(0.01, 0.05), synther=_TINY, samples=64,
        sample_batch=50, judged=32, agent=Td3BcConfig(hidden=(16,)), updates=20, per_iteration=10,
        batch_size=16, evaluations=1, episodes=2, told=("ensemble", "ensemble-drop", "oracle"),
        networks=EnsembleConfig(
            members=2, elites=2, hidden=(16,), weight_decay=(2.5e-5,), max_epochs=1
        ),
        agents=("td3_bc", "iql"), iql=IqlConfig(hidden=(16,), normalise=True),
    ),
    "cpu": _CPU,
    "gpu": Config(
        seeds=8, synther=SyntherConfig(Mlp(width=1024)), samples=500_000, sample_batch=50_000,
        updates=200_000, evaluations=5,
    ),
    "paper": Config(
        dataset="halfcheetah-medium-replay-v2", seeds=8, sample_batch=100_000,
        synther=SyntherConfig(training=DenoiserTrainingConfig(batch=1024)),
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["synther_small_data"].experiment(Config, PRESETS, run)
