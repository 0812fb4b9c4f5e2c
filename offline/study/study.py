"""The library's top floor: a dataset and the name of a method, and out comes what was trained.

outcome = train("hopper-medium-v2", "ravl", context=run)
outcome.returns, outcome.true_value, outcome.estimated_value      # [seeds] each
outcome.agent.greedy(jax.tree.map(lambda x: x[0], outcome.actors), key, observation, memory)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jaxrl_rollouts.configs import check, did_you_mean
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..agents.registry import quick_agents
from ..agents.sac import SacConfig
from ..behaviours.made import load_dataset
from ..data import Dataset
from ..methods.registry import NAMES as MODEL_BASED
from ..methods.scheme import ModelBasedConfig
from ..worlds.dynamics import Dynamics
from . import neubay
from .model_based import (
    Outcome,
    Setting,
    StudyConfig,
    environment_of,
    fit_dataset,
    train_in,
    train_model_based,
)
from .model_free import MODEL_FREE, ModelFreeStudyConfig, train_model_free
from .neubay import NeubayStudyConfig, fit_posterior, small_neubay, train_neubay

METHODS = (*MODEL_BASED, *neubay.NAMES, *MODEL_FREE)


@dataclass(frozen=True)
class Budget:
    """Sizes of networks and lengths of trainings of every method; a method reads its own part.

    Attributes:
        study: seeds and evaluation; world models and agent of base, MOPO, MOBILE and RAVL.
        model_free: the agents that need no world model.
        neubay: NEUBAY's world models and agent.
    """

    study: StudyConfig = field(default_factory=StudyConfig)
    model_free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)

    def check_method(self, method: str) -> None:
        """Raise `ConfigError` for a method that nobody knows, or that does not fit the budget."""
        if method not in METHODS:
            hint = did_you_mean(method, METHODS)
            raise ConfigError("method", method, f"one of {', '.join(METHODS)}", hint)
        if method in neubay.NAMES:
            self.neubay.check_looks(self.study.evaluations)


def small_budget(seeds: int = 2) -> Budget:
    """Minutes on two cores: small networks that learn three to ten times as fast.

    Args:
        seeds: trained side by side.
    """
    rates = {"actor_rate": 1e-3, "critic_rate": 1e-3, "temperature_rate": 1e-3}
    return Budget(
        study=StudyConfig(
            seeds=seeds,
            ensemble=EnsembleConfig(
                hidden=(64, 64, 64), weight_decay=(2.5e-5,), batch_size=256, max_epochs=15
            ),
            agent=SacConfig(hidden=(64, 64), **rates),
            rollouts=ModelBasedConfig(
                rollouts_per_epoch=2000, updates_per_epoch=500, real_share=0.25
            ),
            epochs=15,
            evaluations=5,
        ),
        model_free=ModelFreeStudyConfig(
            agents=quick_agents((64, 64)), updates=10_000, per_iteration=500
        ),
        neubay=small_neubay(),
    )


def train(
    dataset: Dataset | str,
    method: str = "ravl",
    budget: Budget | None = None,
    *,
    seeds: int | None = None,
    dynamics: Dynamics | None = None,
    worlds: PyTree = (),
    context: RunContext | None = None,
) -> Outcome:
    """Fit world models where the method wants some, train, play in the true environment, save.

    Args:
        dataset: a `Dataset`, a path, or a name that `load_dataset` knows.
        method: one of `METHODS`.
        budget: sizes and lengths; None takes `small_budget()`.
        seeds: side by side, instead of the budget's.
        dynamics: for base, MOPO, MOBILE and RAVL: rolled in place of world models fitted here; of
            `fit_worlds(...).dynamics`, `true_dynamics`, or your own.
        worlds: parameters of `dynamics`, leading axis = seeds; `()` where it has none.
        context: a run whose folder keeps checkpoints and policies; a run that was cut goes on from
            there. None trains in memory and in silence.

    Returns:
        An `Outcome`; its `source` is a `FittedDataset`, a `Posterior` or, without a world model, a
        `Setting`.

    Raises:
        ConfigError: an unknown method, a setting out of range, dynamics for a method that rolls
            none, or no environment to evaluate in.
        DataError: the dataset cannot be read, or does not fit its environment.
        DivergenceError: training became non-finite.
        Interrupted: the context's stop flag was raised; the run can be resumed.
    """
    budget = budget or small_budget()
    if seeds is not None:
        budget = replace(budget, study=replace(budget.study, seeds=seeds))
    check(budget)
    budget.check_method(method)
    study = budget.study
    if isinstance(dataset, str):
        dataset = load_dataset(dataset, study.seed)
    if dynamics is not None:
        if method not in MODEL_BASED:
            expected = f"one of {', '.join(MODEL_BASED)} with dynamics of your own"
            raise ConfigError("method", method, expected)
        setting = Setting(dataset, environment_of(dataset))
        return train_in(dynamics, worlds, method, setting, study, context)
    if method in MODEL_FREE:
        setting = Setting(dataset, environment_of(dataset))
        return train_model_free(method, setting, study, budget.model_free, context)
    if method in MODEL_BASED:
        return train_model_based(method, fit_dataset(dataset, study, context), study, context)
    posterior = fit_posterior(dataset, study, budget.neubay, context)
    config = budget.neubay.agent
    arm = neubay.markov(config) if method == "neubay_markov" else config
    return train_neubay(method, posterior, study, arm, context)
