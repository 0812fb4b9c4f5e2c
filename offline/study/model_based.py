"""A dataset and a model-based method: fit world models, judge them, train, evaluate, save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree

from ..agents.agent import Agent, Learner
from ..agents.registry import AgentConfig
from ..agents.sac import SacConfig
from ..data import (
    Dataset,
    episode_returns,
    episodes,
    to_device,
)
from ..environments import Environment, make
from ..environments.terminations import termination_function
from ..methods.registry import MethodConfig, make_method
from ..methods.scheme import OWN_WORLDS, ModelBasedConfig, imagination, make_model_based
from ..recurrent.sac import RecurrentSacConfig
from ..saved_policies import save_policy
from ..training import evaluator, train_learner
from ..worlds.dynamics import learned_dynamics
from ..worlds.endings import TerminationConfig, fit_endings
from ..worlds.fit import FittedWorlds, Targets, fit_worlds
from ..worlds.judge import calibration, open_loop, windows

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class StudyConfig:
    """World model, agent and evaluation; the same for every method of a comparison.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        ensemble: the world model and how it is fitted.
        targets: what it predicts: the `change` of the observation, the next one `raw`, or
            `observations` standardised.
        shared_world: fit one world model and give it to every seed; else each seed has its own.
        termination: where an episode ends in the model: by the `known` rule of the environment, or
            by a `learned` classifier, fitted to the dataset's own terminals.
        ending: the classifier of a learned termination.
        agent: the actor-critic that learns in the model.
        rollouts: lengths and numbers of model rollouts, and updates between them.
        methods: settings of single methods.
        epochs: rounds of model rollouts followed by updates.
        evaluations: looks at the policy in the true environment, spread evenly over the training.
        episodes: played at each look, per seed.
        error_horizon: steps over which the world model's open-loop error is reported.
    """

    seeds: int = positive(3)
    seed: int = 0
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    targets: Targets = "change"
    shared_world: bool = False
    termination: Literal["known", "learned"] = "known"
    ending: TerminationConfig = field(default_factory=TerminationConfig)
    agent: SacConfig = field(default_factory=SacConfig)
    rollouts: ModelBasedConfig = field(default_factory=ModelBasedConfig)
    methods: MethodConfig = field(default_factory=MethodConfig)
    epochs: int = positive(100)
    evaluations: int = positive(5)
    episodes: int = positive(10)
    error_horizon: int = positive(50)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")


# What MuJoCo studies take to show that they run.
SMOKE_MUJOCO = StudyConfig(
    seeds=2,
    ensemble=EnsembleConfig(hidden=(32, 32), weight_decay=(2.5e-5,), batch_size=1024, max_epochs=1),
    shared_world=True,
    agent=SacConfig(hidden=(32, 32)),
    rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=10),
    epochs=2,
    evaluations=1,
    episodes=1,
    error_horizon=20,
)


class FittedDataset(NamedTuple):
    """A dataset with the world models fitted to it.

    Attributes:
        dataset: where the rows come from.
        env: the true environment.
        fitted: world models; one per seed, or one for all.
        errors: `[T, B]` open-loop error in dataset standard deviations, first world.
        inside: `[levels]` share of outcomes inside the central intervals of `LEVELS`.
    """

    dataset: Dataset
    env: Environment
    fitted: FittedWorlds
    errors: np.ndarray
    inside: np.ndarray


class Source(Protocol):
    """What a method learns from: a dataset and its environment, perhaps with world models."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def env(self) -> Environment: ...


class Setting(NamedTuple):
    """A dataset and the environment it is from, where no model is fitted."""

    dataset: Dataset
    env: Environment


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
    """

    returns: np.ndarray
    true_value: np.ndarray
    estimated_value: np.ndarray
    trained: Trained
    agent: Agent
    env: Environment
    source: Any

    @property
    def history(self) -> History:
        """Every evaluation and every metric over training."""
        return self.trained.history

    @property
    def actors(self) -> PyTree:
        """Parameters of the policy, leading axis = seeds, for `agent.greedy` and `agent.policy`."""
        return self.trained.state.agent.actor


def environment_of(dataset: Dataset) -> Environment:
    """The environment a dataset was collected in.

    Raises:
        ConfigError: neither the file nor its name says which.
    """
    return make(dataset.environment or dataset.name)


def fit_dataset(dataset: Dataset, config: StudyConfig, context: RunContext | None) -> FittedDataset:
    """Fit world models and measure how far they can be trusted."""
    env = environment_of(dataset)
    fit_key, look_key = jax.random.split(jax.random.key(config.seed))
    seeds = 1 if config.shared_world else config.seeds
    fitted = fit_worlds(
        config.ensemble,
        dataset.transitions,
        fit_key,
        seeds=seeds,
        targets=config.targets,
        stage=f"{slug(dataset.name)}-world",
        context=context,
    )
    if config.termination == "learned":
        endings, _ = fit_endings(
            config.ending,
            dataset.transitions,
            jax.random.fold_in(fit_key, 1),
            seeds=seeds,
            stage=f"{slug(dataset.name)}-termination",
            context=context,
        )
        fitted = fitted._replace(worlds=fitted.worlds._replace(ending=endings))
    first = jax.tree.map(lambda x: x[0], fitted.worlds)
    dynamics = learned_dynamics(
        fitted.model.fitter,
        config.ensemble.elites,
        termination=termination_of(dataset, env, config),
    )
    logged = windows(dataset.transitions, config.error_horizon, 200)
    errors = open_loop(dynamics, first, logged, look_key).error
    rows = jax.tree.map(lambda x: x[:20_000:4], to_device(dataset.transitions))
    inside = calibration(fitted.model.fitter, first, rows, LEVELS)
    return FittedDataset(dataset, env, fitted, np.asarray(errors), np.asarray(inside))


def termination_of(dataset: Dataset, env: Environment, config: StudyConfig) -> Any:
    """A learned rule's configuration, or the known one: the environment's, or its family's."""
    if config.termination == "learned":
        return config.ending
    return env.termination or termination_function(dataset.environment or dataset.name)


def train_model_based(
    name: str, world: FittedDataset, config: StudyConfig, context: RunContext | None
) -> Outcome:
    """Train one method in the world models and play its policy in the true environment."""
    method = make_method(name, config.agent, config.methods)
    dynamics = learned_dynamics(
        world.fitted.model.fitter,
        config.ensemble.elites,
        termination=termination_of(world.dataset, world.env, config),
        disagreement=method.disagreement,
    )
    sizes = world.env.observation_size, world.env.action_size
    learner = make_model_based(config.rollouts, method, dynamics, *sizes)
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    worlds, per_seed = world.fitted.worlds, OWN_WORLDS
    if config.shared_world:
        worlds, per_seed = jax.tree.map(lambda x: x[0], worlds), False
    stage = f"{slug(world.dataset.name)}-{name}"
    data = imagination(method, world.dataset.transitions, worlds)
    trained = train_learner(
        learner,
        data,
        train_key,
        seeds=config.seeds,
        per_seed=per_seed,
        iterations=config.epochs,
        evaluate=evaluator(
            learner, world.env, play_key, config.episodes, discount=config.agent.discount
        ),
        evaluate_every=config.epochs // config.evaluations,
        stage=stage,
        context=context,
    )
    return finish(
        trained, learner, method.agent, name, world, world.env, stage=stage, context=context
    )


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
) -> Outcome:
    """Save the policy, where there is a run, and take the last evaluation.

    Args:
        trained: its state has an `agent.actor`.
        learner: what was trained.
        config: of its agent.
        name: of the method.
        source: with the dataset it learned from.
        env: the environment as the agent sees it.
        stage: of the training; the policy goes into its folder.
        context: None saves nothing.
    """
    last = trained.history.last
    values = last("return"), last("discounted_return"), last("estimated_value")
    outcome = Outcome(*values, trained, learner.agent, env, source)
    if context:
        save_policy(
            context.folder.stage(stage) / "policy",
            config,
            outcome.actors,
            env,
            dataset=source.dataset.name,
            method=name,
            returns=outcome.returns,
        )
    return outcome


def behaviour(world: Source) -> np.ndarray:
    """Returns of a dataset's whole episodes, `[episodes]`, without those that were cut short."""
    rows = world.dataset.transitions
    parts = episodes(rows)
    whole = parts.terminated | (parts.lengths >= world.env.max_episode_steps)
    # A set without one whole episode (a short prefix) has only cut ones to compare with.
    return episode_returns(rows)[whole if whole.any() else slice(None)]


def slug(name: str) -> str:
    """A dataset name as part of a folder or picture name."""
    return "".join(c if c.isalnum() or c == "-" else "-" for c in name.split("/")[-1])
