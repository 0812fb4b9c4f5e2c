"""The main job: one offline dataset, one method, an evaluated policy and a report.

jaxrl-rollouts run offline                                  # Pendulum data made on the spot
jaxrl-rollouts run offline --dataset jr/hopper-mixed --method mobile
jaxrl-rollouts run offline --method neubay                  # a memory, and no conservatism
jaxrl-rollouts run offline --method td3_bc                  # no world model at all
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.methods import NAMES
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.study import neubay as neubay_study
from jaxrl_rollouts.offline.study.model_based import StudyConfig, fit_dataset, train_model_based
from jaxrl_rollouts.offline.study.model_free import MODEL_FREE, ModelFreeStudyConfig
from jaxrl_rollouts.offline.study.neubay import NeubayStudyConfig, small_neubay
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .kit.neubay_pages import run_neubay
from .kit.offline_pages import (
    add_main_job,
    draw_training,
    draw_world,
    result_rows,
    run_model_free,
    world_row,
)


@dataclass(frozen=True)
class Config:
    """One dataset and one method.

    Attributes:
        dataset: `pendulum-mixed` (made on the spot), a file in D4RL's, Minari's or NeoRL's
            layout, or a name such as `hopper-medium-v2` or `jr/halfcheetah-mixed`.
        method: base, mopo, mobile or ravl; neubay, with a posterior and an agent of its own, or
            neubay_markov, the same without a memory; or td3_bc, iql or rebrac, which need no
            world model.
        study: world model, agent and evaluation.
        model_free: the agents of the last three; seeds and evaluation are the study's.
        neubay: NEUBAY's world models and agent; likewise.
    """

    dataset: str = PENDULUM
    method: str = "ravl"
    study: StudyConfig = field(default_factory=StudyConfig)
    model_free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)

    def validate(self) -> None:
        known = (*NAMES, *neubay_study.NAMES, *MODEL_FREE)
        if self.method not in known:
            raise ConfigError("method", self.method, f"one of {', '.join(known)}")
        if self.method in neubay_study.NAMES:
            self.neubay.check_looks(self.study.evaluations)


def run(config: Config, context: RunContext) -> Report:
    """Fit, train, evaluate, report."""
    study = config.study
    if config.method in MODEL_FREE:
        dataset = load_dataset(config.dataset, study.seed)
        return run_model_free(config.method, dataset, study, config.model_free, context)
    if config.method in neubay_study.NAMES:
        dataset = load_dataset(config.dataset, study.seed)
        return run_neubay(config.method, dataset, study, config.neubay, context)
    report = Report.of(context, study.seeds)
    world = fit_dataset(load_dataset(config.dataset, study.seed), study, context)
    outcome = train_model_based(config.method, world, study, context)
    outcomes = {config.method: outcome}
    report.table("result", result_rows(world, outcomes))
    report.table("world model", [world_row(world)])
    draw_training(report, world, outcomes, study)
    draw_world(report, {world.dataset.name: world})
    add_main_job(report, world, outcome)
    return report


_SMALL = EnsembleConfig(hidden=(64, 64, 64), weight_decay=(2.5e-5,), batch_size=256, max_epochs=15)
_AGENT = SacConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3)

EXPERIMENT = Experiment(
    name="offline",
    summary="the main job: dataset -> (world model ->) RAVL, TD3+BC, IQL, ... -> evaluation",
    source="",
    config_type=Config,
    presets={
        "smoke": Config(
            study=StudyConfig(
                seeds=2,
                ensemble=EnsembleConfig(
                    hidden=(32, 32), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2
                ),
                agent=SacConfig(critics=2, diversity=0.0, hidden=(32, 32)),
                rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=20),
                epochs=2,
                evaluations=1,
                episodes=2,
                error_horizon=20,
            ),
            model_free=ModelFreeStudyConfig(
                agents=quick_agents((32, 32)), updates=40, per_iteration=20
            ),
            neubay=small_neubay(
                members=4,
                hidden=(32, 32),
                epochs=2,
                width=16,
                steps=20,
                per_iteration=10,
                rollouts=16,
                tape=256,
                capacity=20_000,
            ),
        ),
        "cpu": Config(
            study=StudyConfig(
                seeds=2,
                ensemble=_SMALL,
                agent=_AGENT,
                rollouts=ModelBasedConfig(
                    rollouts_per_epoch=2000, updates_per_epoch=500, real_share=0.25
                ),
                epochs=15,
                evaluations=5,
            ),
            model_free=ModelFreeStudyConfig(
                agents=quick_agents((64, 64)), updates=10_000, per_iteration=500
            ),
            neubay=small_neubay(),
        ),
        "paper": Config(study=StudyConfig(seeds=5, epochs=3000, evaluations=60)),
    },
    run=run,
)
