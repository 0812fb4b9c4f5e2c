"""TODO."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.registry import AgentConfig, rows_for
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.study.model_based import (
    Outcome,
    Setting,
    StudyConfig,
    finish,
    slug,
)
from jaxrl_rollouts.offline.training import evaluator, train_model_free
from jaxrl_rollouts.record.context import RunContext

MODEL_FREE = ("td3_bc", "iql", "rebrac")


@dataclass(frozen=True)
class ModelFreeStudyConfig:
    """Agents and their budget; seeds, evaluations and episodes are the `StudyConfig`'s."""

    td3_bc: Td3BcConfig = field(default_factory=Td3BcConfig)
    iql: IqlConfig = field(default_factory=IqlConfig)
    rebrac: RebracConfig = field(default_factory=RebracConfig)
    batch_size: int = positive(256)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)

    def validate(self) -> None:
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
