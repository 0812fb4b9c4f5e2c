"""Methods without a world model: an agent straight on the rows of the dataset."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self

import jax
import numpy as np

from jaxrl_rollouts.configs import positive

from ..data import Dataset, Transitions, episode_returns, sample_batch, to_device
from ..method import Job, Method, Prepared, cadence
from ..study.source import Setting
from .agent import Agent, Learner, first_state, learn

Reward = Literal["raw", "return_range", "minus_one"]


@dataclass(frozen=True, kw_only=True)
class ModelFree(Method):
    """An agent on rows; a method is `class Iql(ModelFree, IqlConfig)`.

    Attributes:
        reward: what the agent is shown: `raw`; `return_range`, over the difference of the highest
            and the lowest return of the data, times 1000 (IQL on locomotion); `minus_one`, less 1
            (IQL and CQL on AntMaze).
        per_iteration: gradient steps of one iteration of the loop at most.
    """

    reward: Reward = "raw"
    per_iteration: int = positive(1000)

    def make(self, observation_size: int, action_size: int) -> Agent:
        """The agent; every one's settings have it."""
        raise NotImplementedError

    def rows(self, transitions: Transitions) -> Any:
        """What it learns from, on the host."""
        return transitions

    def for_synthetic_rows(self) -> Self:
        """The same for rows whose successors are unknown."""
        return self

    @property
    def acts(self) -> Any:
        """The agent's part of the settings."""
        return settings_of_agent(self)

    def prepare(self, setting: Setting, job: Job) -> Prepared:
        acts = self.acts
        sizes = setting.env.observation_size, setting.env.action_size
        period = acts.make(*sizes).period
        iterations, per = cadence(self.steps, self.per_iteration, period, job.evaluations)
        rows = self.rows(shown_rewards(setting.dataset, self.reward))
        learner = bind(acts, *sizes, self.batch_size, per)
        return Prepared(learner, to_device(rows), iterations, acts, setting.env, setting)


def settings_of_agent(method: ModelFree) -> Any:
    """The agent's part of a method's settings."""
    (kind,) = (base for base in type(method).__bases__ if not issubclass(base, Method))
    return kind(**{f.name: getattr(method, f.name) for f in fields(kind)})


def shown_rewards(dataset: Dataset, reward: Reward) -> Transitions:
    """The rows with rewards as an agent is shown them."""
    rows = dataset.transitions
    if reward == "minus_one":
        return rows._replace(rewards=np.asarray(rows.rewards) - np.float32(1))
    if reward == "return_range":
        returns = episode_returns(rows)
        factor = np.float32(1000 / max(returns.max() - returns.min(), 1e-8))
        return rows._replace(rewards=np.asarray(rows.rewards) * factor)
    return rows


class OnRows(NamedTuple):
    """State of one seed."""

    agent: Any
    key: jax.Array


@functools.lru_cache(maxsize=32)
def bind(acts: Any, observation_size: int, action_size: int, batch: int, updates: int) -> Learner:
    """A learner whose data are rows; equal arguments give the same functions."""
    agent = acts.make(observation_size, action_size)

    def init(key: jax.Array, rows: Any) -> OnRows:
        agent_key, key = jax.random.split(key)
        return OnRows(first_state(agent, agent_key, rows.observations), key)

    def update(state: OnRows, rows: Any) -> tuple[OnRows, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)
        draw = functools.partial(sample_batch, rows)
        learned, metrics = learn(agent, state.agent, learn_key, lambda k: draw(k, batch), updates)
        return OnRows(learned, key), metrics

    return Learner(agent, init, update, updates)
