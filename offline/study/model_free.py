"""A dataset and an agent that needs no world model: train, evaluate, save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext

from ..agents.agent import Learner
from ..agents.model_free import make_model_free, rows_feed
from ..agents.registry import (
    AGENTS,
    AgentConfig,
    AgentConfigs,
    agent_name,
    make_agent,
    rows_for,
)
from ..data import sample_batch, to_device
from ..training import train_learner
from .config import StudyConfig, keys_of
from .outcome import Outcome, finish, judge
from .setting import verify_checksum
from .source import Setting, slug

MODEL_FREE = tuple(AGENTS)


@dataclass(frozen=True)
class ModelFreeStudyConfig:
    """Agents and their budget; seeds, evaluations and episodes are the `StudyConfig`'s.

    Attributes:
        agents: settings of single agents.
        batch_size: transitions in a gradient step.
        updates: gradient steps in all, rounded to whole iterations.
        per_iteration: gradient steps of one iteration of the loop at most: the grain of
            evaluations, checkpoints and the log.
    """

    agents: AgentConfigs = field(default_factory=AgentConfigs)
    batch_size: int = positive(256)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)

    def of(self, name: str) -> AgentConfig:
        """The agent called `name`, one of `MODEL_FREE`."""
        return getattr(self.agents, name)


def cadence(updates: int, most: int, period: int, evaluations: int = 1) -> tuple[int, int]:
    """Iterations, and gradient steps of each, that come as near to `updates` as they can.

    Args:
        updates: gradient steps in all.
        most: of an iteration.
        period: of the agent: an iteration holds whole periods.
        evaluations: that there should be room for.
    """
    per = min(most, max(updates // evaluations, 1))
    per = max(per // period, 1) * period
    return max(round(updates / per), 1), per


def train_model_free(
    name: str,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    context: RunContext | None,
    stage: str = "",
) -> Outcome:
    """Train one agent on the dataset and play its policy.

    Args:
        name: of the agent.
        setting: dataset and environment.
        study: seeds and evaluation.
        config: agents and length.
        context: of the run.
        stage: folder in the run; the dataset's name and the agent's unless given.
    """
    verify_checksum(setting.dataset, context)
    chosen = config.of(name)
    stage = stage or f"{slug(setting.dataset.name)}-{name}"
    train_key, play_key = keys_of(study.seed)
    learner, rows, iterations = on_rows(chosen, setting, study, config)
    env = setting.env
    keep = judge(learner, setting, env, play_key, study.episodes, chosen.discount)
    trained = train_learner(
        learner,
        rows,
        train_key,
        seeds=study.seeds,
        iterations=iterations,
        evaluate=keep,
        evaluate_at=evenly(iterations, study.evaluations),
        stage=stage,
        context=context,
        about={
            "agent": chosen,
            "batch_size": config.batch_size,
        },
    )
    return finish(
        trained, learner, chosen, name, setting, env, stage=stage, context=context, best=keep
    )


def on_rows(
    chosen: AgentConfig,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    draw: Any = sample_batch,
) -> tuple[Learner, Any, int]:
    """A learner on the dataset's rows, the rows, and how many iterations it takes."""
    sizes = setting.env.observation_size, setting.env.action_size
    period = make_agent(chosen, *sizes).period
    iterations, per = cadence(config.updates, config.per_iteration, period, study.evaluations)
    steps = {"batch_size": config.batch_size, "updates_per_iteration": per}
    learner = make_model_free(chosen, *sizes, draw=draw, **steps)
    dataset = setting.dataset
    rows = rows_for(chosen, dataset.transitions)
    if dataset.rows_file is None:
        return learner, to_device(rows), iterations
    if rows is not dataset.transitions or draw is not sample_batch:
        name, expected = agent_name(chosen), "rows in memory for this method"
        hint = "read them (stream='never', --stream never), or take another method"
        raise ConfigError("stream", f"rows on disk for {name}", expected, hint)
    return learner, rows_feed(dataset, config.batch_size, per), iterations
