"""NEUBAY on MuJoCo datasets, against its own ablations and against MOPO, MOBILE and RAVL.

One agent with a memory and long rollouts, no conservatism; three conservative agents with short
ones. All learn from the same files, with the same number of gradient steps, in world models fitted
for the same number of epochs: NEUBAY's layer-normalised posterior for its arms, the PETS ensemble
of their papers for the others. The datasets are `jr/*`, not D4RL's files.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.methods import MethodConfig, Mobile
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study.model_based import (
    SMOKE_MUJOCO,
    FittedDataset,
    Outcome,
    Setting,
    StudyConfig,
    fit_dataset,
    train_model_based,
)
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    Posterior,
    fit_posterior,
    ring_note,
    small_neubay,
    train_neubay,
)
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .neubay_mujoco_cells import PAPER, Config, Tuned
from .neubay_mujoco_page import make_report

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"


def run(config: Config, context: RunContext) -> Report:
    """All arms on all datasets; each stage resumes by itself."""
    study = config.study
    posteriors: dict[str, Posterior] = {}
    worlds: dict[str, FittedDataset | Setting] = {}
    results: dict[str, dict[str, Outcome]] = {}
    notes = []
    for name in config.datasets:
        dataset = load_dataset(name, study.seed)
        posterior = fit_posterior(dataset, study, config.neubay, context, config.levels)
        posteriors[name], results[name] = posterior, {}
        notes.append(f"{name}: {ring_note(posterior, study, config.agent(name))}")
        for arm, settings in config.arms(name).items():
            results[name][arm] = train_neubay(arm, posterior, study, settings, context)
        jax.clear_caches()  # programs of a finished dataset are not needed again
        worlds[name] = Setting(dataset, posterior.env)
        if config.methods:
            world = fit_dataset(dataset, study, context)
            worlds[name] = world
            for method in config.methods:
                results[name][method] = train_model_based(method, world, study, context)
                jax.clear_caches()
    report = Report.of(context, study.seeds)
    make_report(report, config, posteriors, worlds, results)
    for note in notes:
        report.note(note)
    return report


def _tuned_cpu() -> tuple[Tuned, ...]:
    """The paper's weights of real tokens; memories learn faster where there is less time."""
    return tuple(replace(tuned, memory_rate=3e-4) for tuned in PAPER)


# A five-hundredth of the paper's gradient steps: networks are small and learn ten times as fast.
_STEPS = 4000
_CPU = Config(
    study=StudyConfig(
        seeds=4,
        ensemble=EnsembleConfig(max_epochs=12),
        shared_world=True,
        agent=SacConfig(
            hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3,
            initial_alpha=0.1,
        ),
        rollouts=ModelBasedConfig(
            rollouts_per_epoch=5000, updates_per_epoch=500, real_share=0.5
        ),
        methods=MethodConfig(mobile=Mobile(samples=1)),
        epochs=8,
        evaluations=4,
        episodes=5,
    ),
    neubay=small_neubay(
        members=12, hidden=(128,) * 4, epochs=12, width=64, steps=_STEPS, per_iteration=50,
        rollouts=10, tape=1024, capacity=200_000,
    ),
    tuned=_tuned_cpu(),
)  # fmt: skip

_GPU_STEPS = 100_000

EXPERIMENT = Experiment(
    name="neubay_mujoco",
    summary="NEUBAY, its ablations, MOPO, MOBILE and RAVL on MuJoCo data, at equal budgets",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            datasets=("jr/hopper-mixed",),
            methods=("ravl",),
            levels=(0.9,),
            penalties=(1.0,),
            study=SMOKE_MUJOCO,
            neubay=small_neubay(
                members=4, hidden=(32, 32), epochs=1, width=16, steps=20, per_iteration=10,
                rollouts=4, tape=1002, capacity=10_000,
            ),
        ),
        "cpu": _CPU,
        "gpu": Config(
            datasets=tuple(tuned.dataset for tuned in PAPER),
            study=replace(
                _CPU.study,
                agent=SacConfig(),
                ensemble=EnsembleConfig(max_epochs=60),
                rollouts=ModelBasedConfig(real_share=0.5),
                methods=MethodConfig(),
                epochs=_GPU_STEPS // 1000,
                evaluations=20,
                episodes=10,
            ),
            neubay=NeubayStudyConfig(
                ensemble=replace(NEUBAY_ENSEMBLE, max_epochs=60),
                agent=NeubayConfig(
                    capacity=4_000_000, agent=RecurrentSacConfig(steps=_GPU_STEPS)
                ),
            ),
            tuned=tuple(replace(tuned, memory_rate=3e-5) for tuned in PAPER),
        ),
        "paper": Config(
            datasets=tuple(tuned.dataset for tuned in PAPER),
            levels=(0.9, 0.99, 0.999),
            penalties=(0.04, 0.2, 1.0, 5.0),
            study=StudyConfig(
                seeds=6, ensemble=EnsembleConfig(max_epochs=1200), epochs=2000, evaluations=100,
                episodes=20,
            ),
            neubay=NeubayStudyConfig(worlds=6),
        ),
    },
    run=run,
)  # fmt: skip
