"""What a trained method is: what it earned, what acts, and both on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree

from ..agents.agent import Agent, Learner
from ..agents.registry import AgentConfig
from ..environments import Environment
from ..policy import Policy
from ..recurrent.sac import RecurrentSacConfig
from ..saved_policies import BEST, LAST, policy_of, save_policy
from ..training import Best, KeepBest

# Said in the best policy's file.
SELECTION = (
    "per seed, the evaluation with the highest mean return; chosen by returns in the true "
    "environment, so they are optimistic"
)


class Outcome(NamedTuple):
    """A trained method.

    Attributes:
        returns: `[seeds]`, undiscounted, in the true environment at the end of training.
        true_value: `[seeds]`, what was earned there, discounted.
        estimated_value: `[seeds]`, what the critics promise from the start states.
        trained: state and history.
        agent: functions of what acts.
        env: the true environment as the agent sees it.
        source: what it learned from: the dataset, with world models where it has any.
        method: its name.
        config: settings of what acts.
        best: of every seed, the policy of the best evaluation.
    """

    returns: np.ndarray
    true_value: np.ndarray
    estimated_value: np.ndarray
    trained: Trained
    agent: Agent
    env: Environment
    source: Any
    method: str
    config: Any
    best: Best | None

    @property
    def history(self) -> History:
        """Every evaluation and every metric over training."""
        return self.trained.history

    @property
    def actors(self) -> PyTree:
        """Parameters of the policy, leading axis = seeds, for `agent.greedy` and `agent.policy`."""
        return self.trained.state.agent.actor

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
        facts = {"dataset": self.source.dataset.name, "method": self.method, "env": self.env}
        if not best:
            return self.actors, {**facts, "returns": self.returns}
        if self.best is None:
            raise ConfigError("best", True, "an evaluation while training; there was none")
        chosen = {"returns": self.best.returns, "iterations": self.best.iterations}
        return self.best.actors, {**facts, **chosen, "selection": SELECTION}


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
    best: KeepBest | None = None,
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
    last = trained.history.last
    values = last("return"), last("discounted_return"), last("estimated_value")
    kept = best.best(trained.state) if best else None
    outcome = Outcome(*values, trained, learner.agent, env, source, name, config, kept)
    if context:
        outcome.save_policies(context.folder.stage(stage))
    return outcome
