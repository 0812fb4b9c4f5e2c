"""NEUBAY on MuJoCo datasets, against its own ablations and against MOPO, MOBILE and RAVL.

One agent with a memory and long rollouts, no conservatism; three conservative agents with short
ones. All learn from the same files, with the same number of gradient steps, in world models fitted
for the same number of epochs: NEUBAY's layer-normalised posterior for its arms, the PETS ensemble
of their papers for the others. The datasets are `jr/*`, not D4RL's files.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.methods.registry import MethodConfig, Mobile
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study.model_based import SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.neubay import NeubayStudyConfig, small_neubay
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .neubay_mujoco_cells import PAPER, Config, train_all
from .neubay_mujoco_page import SOURCE, make_report


def run(config: Config, context: RunContext) -> Report:
    """All arms on all datasets; each stage resumes by itself."""
    results = train_all(config, context)
    return make_report(Report.of(context, config.study.seeds), config, results)


# fmt: off
_SMOKE = Config(
    datasets=("jr/hopper-mixed",), methods=("ravl",), study=SMOKE_MUJOCO,
    neubay=small_neubay(
        members=4, hidden=(32, 32), epochs=1, width=16, steps=20, per_iteration=10, rollouts=4,
        tape=1002, capacity=10_000,
    ),
)
# A five-hundredth of the paper's gradient steps: networks are small and learn ten times as fast,
# memories faster than that; the weights of real tokens are the paper's.
_CPU = Config(
    study=StudyConfig(
        seeds=4, epochs=8, evaluations=4, episodes=5, shared_world=True,
        ensemble=EnsembleConfig(max_epochs=12),
        agent=SacConfig(
            hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3,
            initial_alpha=0.1,
        ),
        rollouts=ModelBasedConfig(rollouts_per_epoch=5000, updates_per_epoch=500, real_share=0.5),
        methods=MethodConfig(mobile=Mobile(samples=1)),
    ),
    neubay=small_neubay(
        members=12, hidden=(128,) * 4, epochs=12, width=64, steps=4000, per_iteration=50,
        rollouts=10, tape=1024, capacity=200_000,
    ),
    tuned=tuple(replace(tuned, memory_rate=3e-4) for tuned in PAPER),
)
_ALL = tuple(tuned.dataset for tuned in PAPER)
_GPU_STEPS = 100_000
_GPU = Config(
    datasets=_ALL,
    study=replace(
        _CPU.study, epochs=_GPU_STEPS // 1000, evaluations=20, episodes=10,
        ensemble=EnsembleConfig(max_epochs=60), agent=SacConfig(),
        rollouts=ModelBasedConfig(real_share=0.5), methods=MethodConfig(),
    ),
    neubay=NeubayStudyConfig(
        replace(NEUBAY_ENSEMBLE, max_epochs=60),
        agent=NeubayConfig(capacity=4_000_000, agent=RecurrentSacConfig(steps=_GPU_STEPS)),
    ),
    tuned=tuple(replace(tuned, memory_rate=3e-5) for tuned in PAPER),
)
_PAPER = Config(
    datasets=_ALL, levels=(0.9, 0.99, 0.999), penalties=(0.04, 0.2, 1.0, 5.0),
    study=StudyConfig(
        seeds=6, epochs=2000, evaluations=100, episodes=20,
        ensemble=EnsembleConfig(max_epochs=1200),
    ),
    neubay=NeubayStudyConfig(worlds=6),
)
# fmt: on

EXPERIMENT = Experiment(
    name="neubay_mujoco",
    summary="NEUBAY, its ablations, MOPO, MOBILE and RAVL on MuJoCo data, at equal budgets",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": _CPU, "gpu": _GPU, "paper": _PAPER},
    run=run,
)
