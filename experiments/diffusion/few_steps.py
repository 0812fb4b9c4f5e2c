"""Few calls by training: what a student in 1 to 8 jumps is worth beside its teacher's solvers.

A ring of eight normals shows what every loss and every solver buys per call. On a dataset whose
simulator can be set to any state a teacher of transitions is distilled into students of 1, 2, 4 and
8 jumps; all are judged by the simulator, as distributions, by their speed and by what TD3+BC earns
on their rows, drawn once or inside the compiled training loop. And windows: whether guidance
that acts in 4 or 8 jumps keeps trajectories on a policy.
"""

from __future__ import annotations

import jax

from jaxrl_rollouts.diffusion import ResidualMlpConfig as Mlp
from jaxrl_rollouts.diffusion import TemporalUnetConfig as Unet
from jaxrl_rollouts.diffusion import small_training
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.study.source import setting_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .few_steps_cells import (
    Config,
    conversion,
    fit_rows,
    judge_rows,
    references,
    train_agents,
)
from .few_steps_page import Results, page
from .few_steps_ring import RingConfig, measure_ring
from .few_steps_windows import WindowsConfig, measure_windows


def run(config: Config, context: RunContext) -> Report:
    """The ring, transitions, agents, windows."""
    report, found = Report.of(context, config.seeds), Results()
    keys = jax.random.split(jax.random.key(config.seed), 6)
    if "ring" in config.parts:
        found = found._replace(ring=measure_ring(config.ring, config.seeds, keys[0], context))
        jax.clear_caches()  # programs of two dimensions are not needed again
    setting = None
    if set(config.parts) - {"ring"}:
        setting = setting_of(config.dataset, config.seed, context)
    if setting and "rows" in config.parts:
        rows = fit_rows(config, setting, keys[1], context)
        judged, floor = judge_rows(config, setting, rows, keys[2], context)
        apart = conversion(rows, config.seeds, keys[3], context)
        found = found._replace(rows=judged, floor=floor, apart=apart, calls=rows.calls)
        if "agents" in config.parts:
            agents = train_agents(config, setting, rows, judged, keys[4], context)
            found = found._replace(agents=agents, ends=references(setting, config.seed))
        jax.clear_caches()
    if setting and "windows" in config.parts:
        found = found._replace(
            windows=measure_windows(config.windows, config.seeds, setting, keys[5], context)
        )
    page(report, config, setting, found)
    return report


_TINY = small_training(20, 16)
_NET = EnsembleConfig(hidden=(16,), weight_decay=(0.0,), max_epochs=1)
PRESETS = {
    "smoke": Config(
        seeds=2, network=Mlp(width=16, blocks=2, embedding=16), training=_TINY, student=20,
        calls=(2, 4), networks=_NET, rows=64, samples=64, agent=Td3BcConfig(hidden=(16,)),
        updates=20, per_iteration=10, batch_size=16, refresh=32, evaluations=1, episodes=2,
        ring=RingConfig(
            Mlp(width=16, blocks=1, embedding=8), _TINY, _TINY, calls=(1, 4), samples=100
        ),
        windows=WindowsConfig(
            8, Unet(features=8, blocks=2), _TINY, updates=20, batch=16, calls=(4,),
            coefficients=(0.0, 1.0), windows=8,
        ),
    ),
    "ring": Config(parts=("ring",)),
    # Three minutes of one core: transitions alone, models that have learned for a short while.
    "quick": Config(
        parts=("rows",), calls=(4, 8), training=small_training(2500, 256), student=1250, rows=2048
    ),
    "cpu": Config(),
    "gpu": Config(
        seeds=8, network=Mlp(width=512), training=small_training(60_000, 256), student=30_000,
        dataset="halfcheetah-medium", parts=("ring", "rows", "agents"), samples=100_000,
        refresh=50_000, updates=24_000,
        agent=Td3BcConfig(actor_rate=1e-3, critic_rate=1e-3, polyak=0.025),
    ),
}  # fmt: skip
EXPERIMENT = LISTINGS["few_steps"].experiment(Config, PRESETS, run)
