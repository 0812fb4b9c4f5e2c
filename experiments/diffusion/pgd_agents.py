"""Does guided diffusion make better data for an offline agent? Better than a weaker regulariser?

TD3+BC and IQL on real transitions, on SynthER's, on unguided and on policy-guided windows; where
asked, on the same states and actions with what follows told anew by an ensemble of the real rows or
by the simulator, for what a small diffusion model gets wrong is above all what follows. Guided
data are drawn again and again towards the current policy. Guidance loosens the tie to the
behaviour; so does the agent's own regulariser. Therefore every source gets its own sweep of that,
and the best is compared with the best as well as the default with the default. Which setting is
best for a seed is decided by the other seeds, so that the better of two equal ones wins nothing.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, GuidanceConfig
from jaxrl_rollouts.diffusion import ResidualMlpConfig as Mlp
from jaxrl_rollouts.diffusion import SamplerConfig as Sampler
from jaxrl_rollouts.diffusion import TemporalUnetConfig as Unet
from jaxrl_rollouts.diffusion import small_training as small
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig
from jaxrl_rollouts.offline.synthetic.synthesis import SMALL_WORLD
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .pgd_agents_cells import PLAIN, SOURCES, Config, make_sources, train_grid
from .pgd_agents_page import page


def run(config: Config, context: RunContext) -> Report:
    """All cells of all datasets; each stage resumes by itself."""
    report = Report.of(context, config.seeds)
    settings, grids = {}, {}
    for name in config.datasets:
        sources = make_sources(name, config, context)
        jax.clear_caches()  # programs of finished stages are not needed again
        settings[name], grids[name] = sources.setting, train_grid(name, sources, config, context)
    page(report, config, settings, grids)
    return report


# Relabelled: is guided better than unguided and than real where what follows is true? Targets move
# ten times as fast as published, so that 12 000 updates are three time constants of the critics. No
# push below a noise of 0.3, after which the denoiser can no longer move states after actions.
_FAST = Sampler(32, method="dpmpp_2m", eta=1.0)
_TOLD = Config(
    datasets=("acrobot-broad",), agents=("td3_bc",), sources=SOURCES, alphas=(2.5, 40.0),
    critic_norm=True, seeds=4, hidden=(64, 64), rate=1e-3, polyak=0.05, refreshes=6, updates=2000,
    windows=256, pool=2560, length=16, unet_training=small(8000, 64),
    synther=SyntherConfig(Mlp(width=128), small(8000, 256), _FAST), evaluations=2, episodes=10,
    guidance=GuidanceConfig(reference_steps=256, interval=(0.3, 100.0)),
)  # fmt: skip
# The same with a larger U-Net, and windows only: its steps cost ten times as much. The ensemble is
# fitted by least squares.
_CPU = replace(
    _TOLD, sources=("real", "unguided", "guided", "unguided-told", "guided-told"),
    critic_norm=False, unet=Unet(features=128), networks=SMALL_WORLD,
)  # fmt: skip
PRESETS = {
    "smoke": Config(
        datasets=("acrobot-broad",), agents=("td3_bc",), alphas=(2.5, 40.0), seeds=2, hidden=(16,),
        batch_size=32, refreshes=2, updates=10, windows=8, pool=16, length=4, sampler=Sampler(4),
        unet=Unet(features=8, blocks=1), unet_training=small(20, 16), evaluations=1, episodes=2,
        synther=SyntherConfig(Mlp(width=16, blocks=2, embedding=16), small(20, 16), Sampler(4)),
        sources=(*PLAIN, "synther-told", "unguided-oracle", "guided-told"),
        networks=EnsembleConfig(
            members=2, elites=2, hidden=(16,), weight_decay=(2.5e-5,), max_epochs=1
        ),
    ),
    "cpu": _CPU,
    "told": _TOLD,
    "gpu": Config(
        datasets=(*Config().datasets, "halfcheetah-mixed"), iql=((0.7, 3.0), (0.7, 10.0)), seeds=8,
        refreshes=10, updates=10_000, windows=2048, pool=20_480,
        unet=Unet(features=128), unet_training=small(100_000, 128, rate=5e-4),
        synther=SyntherConfig(Mlp(width=1024), small(100_000, 1024, rate=3e-4)),
        sampler=Sampler(128), evaluations=5, episodes=10,
    ),
    "paper": Config(
        datasets=("halfcheetah-medium-v2", "hopper-medium-v2", "walker2d-medium-v2"),
        refreshes=100, updates=10_000, windows=8192, pool=32_768, length=16,
        unet=Unet(features=1024), synther=SyntherConfig(), sampler=Sampler(256), coefficient=1.0,
        unet_training=DenoiserTrainingConfig(
            updates=500_000, batch=32, rate=2e-3, betas=(0.9, 0.999), warmup=50_000, clip=None
        ),
        evaluations=20, episodes=16,
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["pgd_agents"].experiment(Config, PRESETS, run)
