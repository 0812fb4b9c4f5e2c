"""A dataset and an agent that needs no world model: train, evaluate, save."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext

from ..agents.model_free import make_model_free
from ..agents.registry import AGENTS, AgentConfig, AgentConfigs, rows_for
from ..data import to_device
from ..training import evaluator, train_learner
from .model_based import (
    Outcome,
    Setting,
    StudyConfig,
    finish,
    slug,
)

MODEL_FREE = tuple(AGENTS)


@dataclass(frozen=True)
class ModelFreeStudyConfig:
    """Agents and their budget; seeds, evaluations and episodes are the `StudyConfig`'s.

    Attributes:
        agents: settings of single agents.
        batch_size: transitions in a gradient step.
        updates: gradient steps in all.
        per_iteration: gradient steps between two records in the log.
    """

    agents: AgentConfigs = field(default_factory=AgentConfigs)
    batch_size: int = positive(256)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)

    def validate(self) -> None:
        if self.updates % self.per_iteration:
            expected = f"a divisor of updates ({self.updates})"
            raise ConfigError("per_iteration", self.per_iteration, expected)

    def of(self, name: str) -> AgentConfig:
        """The agent called `name`, one of `MODEL_FREE`."""
        return getattr(self.agents, name)


def train_model_free(
    name: str,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    context: RunContext | None,
) -> Outcome:
    """Train one agent on the dataset and play its policy in the true environment."""
    chosen, env = config.of(name), setting.env
    learner = make_model_free(
        chosen,
        env.observation_size,
        env.action_size,
        batch_size=config.batch_size,
        updates_per_iteration=config.per_iteration,
    )
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(study.seed), 1))
    iterations = config.updates // config.per_iteration
    stage = f"{slug(setting.dataset.name)}-{name}"
    rows = to_device(rows_for(chosen, setting.dataset.transitions))
    trained = train_learner(
        learner,
        rows,
        train_key,
        seeds=study.seeds,
        iterations=iterations,
        evaluate=evaluator(learner, env, play_key, study.episodes, discount=chosen.discount),
        evaluate_every=max(iterations // study.evaluations, 1),
        stage=stage,
        context=context,
    )
    return finish(trained, learner, chosen, name, setting, env, stage=stage, context=context)
