"""A trained method: returns, policy, and both on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree, row

from .data.references import reference_scores, score_label
from .data.transitions import RAW, RewardScale
from .environments import Environment
from .matching import is_simulator
from .method import Agent, AgentConfig, Method, Prepared
from .policy import Policy
from .saved_policies import BEST, LAST, SavedPolicy, policy_of, save_policy
from .task import Source, is_own, score_in
from .training import Best, KeepBest

# Written in the best policy's file.
SELECTION = (
    "per seed, the evaluation with the highest mean return; chosen by returns in the true "
    "environment, so they are optimistic"
)
SHOWN = 4  # differences from the paper in a result's text


class TrainResult(NamedTuple):
    """A trained method.

    Attributes:
        returns: `[seeds]`, undiscounted, in the true environment at the end of training; None
            without a simulator.
        true_value: `[seeds]`, the discounted return there; or None.
        estimated_value: `[seeds]`, the critics' value of the start states, without a simulator of
            those of the dataset, in the dataset's own rewards; None of an agent without critics.
        trained: state and history.
        agent: functions of the agent.
        env: the true environment as the agent sees it; None without a simulator.
        source: its training data: the dataset, with world models if it has any.
        about: metadata of a policy's file: the method, the dataset, the environment.
        config: settings of the agent that acts.
        best: per seed, the policy of the best evaluation; None without a simulator.
        per_iteration: gradient steps of an iteration of the loop.
        method: all settings of the training.
        preset: their name.
        differs: differences from the paper, a line each.
        reward: the reward transformation used in training.
    """

    returns: np.ndarray | None
    true_value: np.ndarray | None
    estimated_value: np.ndarray | None
    trained: Trained
    agent: Agent
    env: Environment | None
    source: Source
    about: Mapping[str, Any]
    config: AgentConfig
    best: Best | None
    per_iteration: int
    method: Method
    preset: str = ""
    differs: tuple[str, ...] = ()
    reward: RewardScale = RAW

    def __repr__(self) -> str:
        """Method, preset, steps, results and differences from the paper; no parameters."""
        values = {name: getattr(self, name) for name in self._fields[:3]} | {"score": self.score}
        shown = ", ".join(f"{name} {_text(x)}" for name, x in values.items() if x is not None)
        head = f"{self.method.name} on {self.about['dataset']}, preset {self.preset or 'none'}"
        lines = [f"{head}, {self.steps:,} gradient steps: {shown}"]
        if self.differs:
            more = len(self.differs) - SHOWN
            rest = f"; {more} more in `differs`" if more > 0 else ""
            lines.append(f"differs from the paper: {'; '.join(self.differs[:SHOWN])}{rest}")
        return f"TrainResult({'. '.join(lines)})"

    @property
    def score(self) -> np.ndarray | None:
        """`[seeds]`, the normalised return: 0 is a random policy, 100 an expert.

        By the references that the dataset brings (Minari's), else by D4RL's. None without a
        simulator or references, and in another environment than the dataset's.
        """
        if self.returns is None or self.env is None:
            return None
        return score_in(self.source.dataset, self.env, self.returns)

    @property
    def steps(self) -> int:
        """Gradient steps that every seed took."""
        return self.history.records[-1].iteration * self.per_iteration

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
        return row(self.actors, seed)

    def policy(self, seed: int = 0, *, best: bool = False, **options: Any) -> Policy:
        """What acts, of one training seed; as `load_policy` gives it from a run's folder.

            action = result.policy(0)(observation)

        Args:
            seed: index of the training seed.
            best: the policy of the best evaluation instead of the last.
            options: `deterministic` and `key`, as for `load_policy`.

        Raises:
            CheckpointError: there is no such seed.
            ConfigError: `best`, and nothing was evaluated.
        """
        return Policy(self.saved(best=best), seed, **options)

    def saved(self, *, best: bool = False) -> SavedPolicy:
        """The policies of all seeds, as `read_policy` gives them from a run's folder.

        Raises:
            ConfigError: `best`, and nothing was evaluated.
        """
        actors, facts = self._kept(best)
        return policy_of(self.config, actors, **facts)

    def save(self, folder: str | Path) -> Path:
        """Write the policy, the best one, and the world models where there are any.

        `load_policy(folder)` and `load_worlds(folder, dataset)` read them.
        """
        folder = self.save_policies(folder)
        save_worlds = getattr(self.source, "save_worlds", None)
        if save_worlds is not None:
            save_worlds(folder / "worlds")
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
        about = {**self.about, "reward": self.reward._asdict()}
        if not best:
            return self.actors, {**about, "returns": self.returns}
        if self.best is None:
            raise ConfigError("best", True, "an evaluation while training; there was none")
        chosen = {"returns": self.best.returns, "iterations": self.best.iterations}
        return self.best.actors, {**about, **chosen, "selection": SELECTION}


def _text(values: np.ndarray) -> str:
    """Mean and range of `[seeds]` numbers."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{values.mean():.4g} ({values.min():.4g} to {values.max():.4g})"


def finish(
    trained: Trained,
    made: Prepared,
    method: Method,
    best: KeepBest,
    *,
    stage: str,
    context: RunContext | None,
    preset: str = "",
    differs: tuple[str, ...] = (),
) -> TrainResult:
    """Save the policies, where there is a run, and take the last evaluation."""
    last, played = trained.history.last, is_simulator(made.env)
    data = made.source.dataset
    about: dict[str, Any] = {"dataset": data.name, "method": method.name, "env": made.env}
    if data.sha256:
        about["data_sha256"] = data.sha256
    if is_own(data, made.env) and (references := reference_scores(data)):
        about["score"] = {"label": score_label(data), "references": list(references)}
    earned = (last("return"), last("discounted_return")) if played else (None, None)
    result = TrainResult(
        *earned,
        last("estimated_value") if made.learner.agent.q is not None else None,
        trained,
        made.learner.agent,
        made.env if played else None,
        made.source,
        about,
        made.acts,
        best.best if played else None,
        made.learner.per_iteration,
        method,
        preset,
        differs,
        made.reward,
    )
    if context:
        result.save_policies(context.folder.stage(stage))
    return result
