"""What `offline` does with the agents that need no world model: train, look, compare."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.registry import AgentConfig, rows_for
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.study.model_based import (
    Outcome,
    Setting,
    StudyConfig,
    behaviour,
    environment_of,
    finish,
    slug,
)
from jaxrl_rollouts.offline.training import evaluator, train_model_free
from jaxrl_rollouts.plugins import RunContext
from jaxrl_rollouts.reports.pictures import curve_with_band, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .kit.offline_pages import add_main_job

MODEL_FREE = ("td3_bc", "iql", "rebrac")


@dataclass(frozen=True)
class ModelFreeStudyConfig:
    """Agents and their budget; seeds, evaluations and episodes are the `StudyConfig`'s."""

    td3_bc: Td3BcConfig = field(default_factory=Td3BcConfig)
    iql: IqlConfig = field(default_factory=IqlConfig)
    rebrac: RebracConfig = field(default_factory=RebracConfig)
    batch_size: int = 256
    updates: int = 1_000_000
    per_iteration: int = 1000

    def validate(self) -> None:
        at_least_one(self, "batch_size", "updates", "per_iteration")
        if self.updates % self.per_iteration:
            expected = f"a divisor of updates ({self.updates})"
            raise ConfigError("per_iteration", self.per_iteration, expected)

    def of(self, name: str) -> AgentConfig:
        """The agent called `name`, one of `MODEL_FREE`."""
        return {"td3_bc": self.td3_bc, "iql": self.iql, "rebrac": self.rebrac}[name]


def small_agents(
    *, hidden: tuple[int, ...], updates: int, per_iteration: int
) -> ModelFreeStudyConfig:
    """Small networks that learn three times as fast, for presets that run on a CPU."""
    return ModelFreeStudyConfig(
        td3_bc=Td3BcConfig(hidden=hidden, actor_rate=1e-3, critic_rate=1e-3),
        iql=IqlConfig(hidden=hidden, actor_rate=1e-3, critic_rate=1e-3, value_rate=1e-3),
        rebrac=RebracConfig(hidden=hidden),
        updates=updates, per_iteration=per_iteration,
    )  # fmt: skip


def train_model_free_and_look(
    name: str, setting: Setting, study: StudyConfig, config: ModelFreeStudyConfig,
    context: RunContext | None,
) -> Outcome:  # fmt: skip
    """Train one agent on the dataset and play its policy in the true environment."""
    chosen, env = config.of(name), setting.env
    agent = make_model_free(
        chosen, env.observation_size, env.action_size, batch_size=config.batch_size,
        updates_per_iteration=config.per_iteration,
    )  # fmt: skip
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(study.seed), 1))
    iterations = config.updates // config.per_iteration
    stage = f"{slug(setting.dataset.name)}-{name}"
    trained = train_model_free(
        agent, rows_for(chosen, setting.dataset.transitions), train_key, seeds=study.seeds,
        iterations=iterations, updates_per_iteration=config.per_iteration,
        evaluate=evaluator(agent, env, play_key, study.episodes, discount=chosen.discount),
        evaluate_every=max(iterations // study.evaluations, 1), stage=stage, context=context,
    )  # fmt: skip
    return finish(trained, chosen, name, setting.dataset, env, stage=stage, context=context)


def run_model_free(
    name: str, dataset: Dataset, study: StudyConfig, config: ModelFreeStudyConfig,
    context: RunContext,
) -> Report:  # fmt: skip
    """Train, evaluate, report."""
    setting = Setting(dataset, environment_of(dataset))
    outcome = train_model_free_and_look(name, setting, study, config, context)
    report = Report.of(context, study.seeds)
    played = behaviour(setting)
    rows = [
        {"dataset": dataset.name, "method": "behaviour", "return": float(played.mean())},
        {"dataset": dataset.name, "method": name, "return": summarize(outcome.returns)},
    ]
    report.table("result", rows)
    _draw(report, name, outcome, float(played.mean()), config)
    add_main_job(report, setting, outcome)
    return report


def _draw(
    report: Report, name: str, outcome: Outcome, played: float, config: ModelFreeStudyConfig
) -> None:
    history = outcome.trained.history
    made, axes = figure(1, 2, titles=("return", "value of start states"))
    at, returns = history.curve("return")
    steps = np.asarray(at) * config.per_iteration
    curve_with_band(axes[0], steps, returns.T, name)
    axes[0].axhline(played, color="#777777", linestyle=":", label="behaviour")
    for metric, style in (("estimated_value", "-"), ("discounted_return", "--")):
        label = f"{name}, {'promised' if style == '-' else 'earned'}"
        values = history.curve(metric)[1]
        curve_with_band(axes[1], steps, values.T, label, linestyle=style)
    for ax in axes:
        ax.set_xlabel("gradient steps")
    legend(made, axes)
    report.picture("training", made, "Return while training, and what the critics promise of it")
