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
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.methods import NAMES
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.study import model_based, model_free, neubay
from jaxrl_rollouts.offline.study.model_free import MODEL_FREE, ModelFreeStudyConfig, small_agents
from jaxrl_rollouts.offline.study.neubay import NeubayStudyConfig, small_neubay
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .kit import neubay_pages, offline_pages
from .kit.grid import Cell


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
    study: model_based.StudyConfig = field(default_factory=model_based.StudyConfig)
    model_free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)

    def validate(self) -> None:
        known = (*NAMES, *neubay.NAMES, *MODEL_FREE)
        if self.method not in known:
            raise ConfigError("method", self.method, f"one of {', '.join(known)}")
        if self.method in neubay.NAMES:
            self.neubay.check_looks(self.study.evaluations)


def run(config: Config, context: RunContext) -> Report:
    """Fit, train, evaluate, report."""
    name, study = config.method, config.study
    report = Report.of(context, study.seeds)
    dataset = load_dataset(config.dataset, study.seed)
    setting = model_based.Setting(dataset, model_based.environment_of(dataset))
    if name in MODEL_FREE:
        outcome = model_free.train_model_free_and_look(
            name, setting, study, config.model_free, context
        )
        cells = {name: Cell.of(outcome.trained, updates=config.model_free.per_iteration)}
        offline_pages.draw_training(report, setting, cells)
    elif name in NAMES:
        world = model_based.fit_and_look(dataset, study, context)
        outcome = model_based.train_and_look(name, world, study, context)
        cells = {name: Cell.of(outcome.trained, updates=study.rollouts.updates_per_epoch)}
        report.table("world model", [offline_pages.world_row(world)])
        offline_pages.draw_training(report, setting, cells)
        offline_pages.draw_world(report, {dataset.name: world})
    else:
        posterior = neubay.fit_posterior(dataset, study, config.neubay, context)
        agent = config.neubay.agent if name == "neubay" else neubay.markov(config.neubay.agent)
        outcome = neubay.train_neubay_and_look(name, posterior, study, agent, context)
        cells = {name: Cell.of(outcome.trained, updates=agent.updates_per_iteration)}
        report.table("world model", [neubay_pages.posterior_row(posterior)])
        report.table("rollouts", neubay_pages.horizon_rows(dataset.name, cells))
        offline_pages.draw_learning(report, setting, cells)
        neubay_pages.draw_horizons(report, dataset.name, cells)
        neubay_pages.draw_values(report, {dataset.name: cells})
        report.note(neubay.ring_note(posterior, study, agent))
    report.table("result", offline_pages.result_rows(setting, cells))
    offline_pages.add_main_job(report, setting, cells[name])
    return report


_FAST = SacConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3)

EXPERIMENT = Experiment(
    name="offline",
    summary="the main job: dataset -> (world model ->) RAVL, TD3+BC, IQL, ... -> evaluation",
    source="",
    config_type=Config,
    presets={
        "smoke": Config(
            study=model_based.StudyConfig(
                seeds=2, epochs=2, evaluations=1, episodes=2, error_horizon=20,
                ensemble=EnsembleConfig(
                    hidden=(32, 32), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2
                ),
                agent=SacConfig(critics=2, diversity=0.0, hidden=(32, 32)),
                rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=20),
            ),
            model_free=small_agents(hidden=(32, 32), updates=40, per_iteration=20),
            neubay=small_neubay(
                members=4, hidden=(32, 32), epochs=2, width=16, steps=20, per_iteration=10,
                rollouts=16, tape=256, capacity=20_000,
            ),
        ),
        "cpu": Config(
            study=model_based.StudyConfig(
                seeds=2, epochs=15, evaluations=5, agent=_FAST,
                ensemble=EnsembleConfig(
                    hidden=(64, 64, 64), weight_decay=(2.5e-5,), batch_size=256, max_epochs=15
                ),
                rollouts=ModelBasedConfig(
                    rollouts_per_epoch=2000, updates_per_epoch=500, real_share=0.25
                ),
            ),
            model_free=small_agents(hidden=(64, 64), updates=10_000, per_iteration=500),
            neubay=small_neubay(),
        ),
        "paper": Config(study=model_based.StudyConfig(seeds=5, epochs=3000, evaluations=60)),
    },
    run=run,
)  # fmt: skip
