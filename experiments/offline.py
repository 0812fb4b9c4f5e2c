"""The main job: one offline dataset, one method, an evaluated policy and a report.

jaxrl-rollouts run offline                                  # Pendulum data made on the spot
jaxrl-rollouts run offline --dataset jr/hopper-mixed --method mobile
jaxrl-rollouts run offline --method neubay                  # a memory, and no conservatism
jaxrl-rollouts run offline --method td3_bc                  # no world model at all
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.offline.methods.registry import NAMES as MODEL_BASED
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.study import Budget, small_budget, train
from jaxrl_rollouts.offline.study.model_based import FittedDataset, StudyConfig
from jaxrl_rollouts.offline.study.model_free import MODEL_FREE, ModelFreeStudyConfig
from jaxrl_rollouts.offline.study.neubay import NAMES as NEUBAY
from jaxrl_rollouts.offline.study.neubay import Posterior, ring_note, rings_of, small_neubay
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .catalogue import LISTINGS
from .kit import neubay_pages, offline_pages
from .kit.grid import Cell
from .kit.needs import open_dataset


@dataclass(frozen=True)
class Config(Budget):
    """One dataset and one method.

    Attributes:
        dataset: `pendulum-mixed` (made on the spot), a file in D4RL's, Minari's or NeoRL's
            layout, or a name such as `hopper-medium-v2` or `jr/halfcheetah-mixed`.
        method: base, mopo, mobile or ravl; neubay, with a posterior and an agent of its own, or
            neubay_markov, the same without a memory; or td3_bc, iql, rebrac or sac, which need no
            world model.
    """

    dataset: str = PENDULUM
    method: str = "ravl"

    def validate(self) -> None:
        self.check_method(self.method)


def run(config: Config, context: RunContext) -> Report:
    """Fit, train, evaluate, report."""
    outcome = train(config.dataset, config.method, config, context=context)
    source, report = outcome.source, Report.of(context, config.study.seeds)
    if isinstance(source, Posterior):
        updates = config.neubay.agent.updates_per_iteration
    elif config.method in MODEL_FREE:
        updates = config.model_free.per_iteration
    else:
        updates = config.study.rollouts.updates_per_epoch
    cells = {config.method: Cell.of(outcome.trained, updates=updates)}
    if isinstance(source, Posterior):
        name = source.dataset.name
        report.table("world model", [neubay_pages.posterior_row(source)])
        report.table("rollouts", neubay_pages.horizon_rows(name, cells))
        offline_pages.draw_learning(report, source, cells)
        neubay_pages.draw_horizons(report, name, cells)
        neubay_pages.draw_values(report, {name: cells})
        report.note(ring_note(source, config.study, config.neubay.agent))
    else:
        offline_pages.draw_training(report, source, cells)
    if isinstance(source, FittedDataset):
        report.table("world model", [offline_pages.world_row(source)])
        offline_pages.draw_world(report, {source.dataset.name: source})
    report.table("result", offline_pages.result_rows(source, cells))
    offline_pages.add_main_job(report, source, cells[config.method])
    return report


def prepare(config: Config) -> list[str]:
    """Read the dataset and make its environment; what it is, and what NEUBAY's rings take."""
    env, fact = open_dataset(config.dataset)
    memory = [rings_of(env, config.study, config.neubay.agent)] if config.method in NEUBAY else []
    return [fact, *memory]


# What only model-based methods read of a study, and what NEUBAY reads of it besides.
_OF_WORLDS = ("ensemble", "targets", "shared_world", "agent", "rollouts", "methods", "epochs")
_OF_ENDINGS = ("termination", "ending")


def unread(config: Config) -> list[str]:
    """Settings of the other methods."""
    method, hidden = config.method, []
    if method not in MODEL_BASED:
        hidden += [f"study.{name}" for name in (*_OF_WORLDS, "error_horizon")]
    if method in MODEL_FREE:
        hidden += [f"study.{name}" for name in _OF_ENDINGS]
    else:
        hidden.append("model_free")
    if method not in NEUBAY:
        hidden.append("neubay")
    hidden += [f"study.methods.{name}" for name in MODEL_BASED if name != method]
    return hidden + [f"model_free.agents.{name}" for name in MODEL_FREE if name != method]


_CPU, _PAPER = small_budget(), StudyConfig(seeds=5, epochs=3000, evaluations=60)

EXPERIMENT = Experiment(
    name="offline",
    summary=LISTINGS["offline"].summary,
    source="",
    config_type=Config,
    presets={
        "smoke": Config(
            StudyConfig(
                seeds=2, epochs=2, evaluations=1, episodes=2, error_horizon=20,
                ensemble=EnsembleConfig(
                    hidden=(32, 32), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2
                ),
                agent=SacConfig(critics=2, diversity=0.0, hidden=(32, 32)),
                rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=20),
            ),
            ModelFreeStudyConfig(quick_agents((32, 32)), updates=40, per_iteration=20),
            small_neubay(
                members=4, hidden=(32, 32), epochs=2, width=16, steps=20, per_iteration=10,
                rollouts=16, tape=256, capacity=20_000,
            ),
        ),
        "cpu": Config(_CPU.study, _CPU.model_free, _CPU.neubay),
        "paper": Config(_PAPER),
    },
    run=run,
)  # fmt: skip
