"""What a trained method is: what it earned, what acts, and both on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree

from ..agents.agent import Agent, Learner
from ..agents.registry import AgentConfig
from ..environments import Environment
from ..environments.absent import is_simulator
from ..policy import Policy
from ..recurrent.sac import RecurrentSacConfig
from ..saved_policies import BEST, LAST, policy_of, save_policy
from ..training import Best, KeepBest, evaluator, promises
from .source import starts_of

# Said in the best policy's file.
SELECTION = (
    "per seed, the evaluation with the highest mean return; chosen by returns in the true "
    "environment, so they are optimistic"
)


class Outcome(NamedTuple):
    """A trained method.

    Attributes:
        returns: `[seeds]`, undiscounted, in the true environment at the end of training; None
            without a simulator.
        true_value: `[seeds]`, what was earned there, discounted; or None.
        estimated_value: `[seeds]`, what the critics promise from the start states, without a
            simulator from those of the dataset; None of an agent that has none.
        trained: state and history.
        agent: functions of what acts.
        env: the true environment as the agent sees it; None without a simulator.
        source: what it learned from: the dataset, with world models where it has any.
        about: what a policy's file says: the method, the dataset, the environment.
        config: settings of what acts.
        best: of every seed, the policy of the best evaluation; None without a simulator.
        updates: gradient steps of an iteration of the loop.
    """

    returns: np.ndarray | None
    true_value: np.ndarray | None
    estimated_value: np.ndarray | None
    trained: Trained
    agent: Agent
    env: Environment | None
    source: Any
    about: Mapping[str, Any]
    config: Any
    best: Best | None
    updates: int = 1

    def __repr__(self) -> str:
        """What it says of itself in a notebook: no parameters."""
        method, dataset = self.about.get("method"), self.about.get("dataset")
        values = {name: getattr(self, name) for name in self._fields[:3]}
        shown = ", ".join(f"{k}={v}" for k, v in values.items() if v is not None)
        how = f", {self.about['preset']}" if self.about.get("preset") else ""
        return f"Outcome({method} on {dataset}{how}, {self.steps:,} steps: {shown})"

    @property
    def steps(self) -> int:
        """Gradient steps that every seed took."""
        return self.history.records[-1].iteration * self.updates

    @property
    def history(self) -> History:
        """Every evaluation and every metric over training."""
        return self.trained.history

    @property
    def actors(self) -> PyTree:
        """Parameters of the policy, leading axis = seeds, for `agent.greedy` and `agent.policy`."""
        return self.trained.state.agent.actor

    def actor(self, seed: int = 0) -> PyTree:
        """Parameters of one seed's policy, for `agent.greedy` and `synthesise(..., policy=)`."""
        return jax.tree.map(lambda leaf: leaf[seed], self.actors)

    def policy(self, seed: int = 0, *, best: bool = False, **options: Any) -> Policy:
        """What acts, of one training seed; as `load_policy` gives it from a run's folder.

            action = outcome.policy(0)(observation)

        Args:
            seed: which of the training seeds.
            best: of the best evaluation, and not the last.
            options: `deterministic` and `key`, as for `load_policy`.

        Raises:
            CheckpointError: there is no such seed.
            ConfigError: `best`, and nothing was evaluated.
        """
        actors, facts = self._kept(best)
        return Policy(policy_of(self.config, actors, **facts), seed, **options)

    def save(self, folder: str | Path) -> Path:
        """Write the policy, the best one, and the world models where there are any.

        `load_policy(folder)` and `load_worlds(folder, dataset)` read them.
        """
        folder = self.save_policies(folder)
        if hasattr(self.source, "save_worlds"):
            self.source.save_worlds(folder / "worlds")
        return folder

    def save_policies(self, folder: str | Path) -> Path:
        """`save` without the world models, which a run keeps where they were fitted."""
        folder = Path(folder)
        for best in (False, True)[: 1 if self.best is None else 2]:
            actors, facts = self._kept(best)
            save_policy(folder / (BEST if best else LAST), self.config, actors, **facts)
        return folder

    def _kept(self, best: bool) -> tuple[PyTree, dict[str, Any]]:
        """The last or the best actors, and what is to be known of them."""
        if not best:
            return self.actors, {**self.about, "returns": self.returns}
        if self.best is None:
            raise ConfigError("best", True, "an evaluation while training; there was none")
        chosen = {"returns": self.best.returns, "iterations": self.best.iterations}
        return self.best.actors, {**self.about, **chosen, "selection": SELECTION}


def judge(
    learner: Learner,
    source: Any,
    env: Environment,
    key: jax.Array,
    episodes: int,
    discount: float,
) -> KeepBest:
    """The `evaluator` in `env`, the environment as the agent sees it, that keeps the best policies;
    without a simulator `promises` from where the dataset's episodes start."""
    if is_simulator(env):
        play = evaluator(learner, env, key, episodes, discount=discount)
    else:
        starts = starts_of(source.dataset)
        # A memory is shown no action and no reward before the first step.
        unseen = env.observation_size - starts.shape[1]
        play = promises(learner, np.pad(starts, ((0, 0), (0, unseen))))
    return KeepBest(play)


def finish(
    trained: Trained,
    learner: Learner,
    config: AgentConfig | RecurrentSacConfig,
    name: str,
    source: Any,
    env: Environment,
    *,
    stage: str,
    context: RunContext | None,
    best: KeepBest,
) -> Outcome:
    """Save the policies, where there is a run, and take the last evaluation.

    Args:
        trained: its state has an `agent.actor`.
        learner: what was trained.
        config: of its agent.
        name: of the method.
        source: with the dataset it learned from.
        env: the environment as the agent sees it.
        stage: of the training; the policy goes into its folder.
        context: None saves nothing.
        best: what evaluated it.
    """
    last, played = trained.history.last, is_simulator(env)
    earned = (last("return"), last("discounted_return")) if played else (None, None)
    outcome = Outcome(
        *earned,
        last("estimated_value") if learner.agent.q is not None else None,
        trained,
        learner.agent,
        env if played else None,
        source,
        {"dataset": source.dataset.name, "method": name, "env": env},
        config,
        best.best if played else None,
        learner.updates,
    )
    if context:
        outcome.save_policies(context.folder.stage(stage))
    return outcome
