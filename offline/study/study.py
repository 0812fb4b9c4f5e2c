"""The library's top floor: a dataset and the name of a method, and out comes what was trained.

outcome = train("hopper-medium-v2", "ravl", context=run)
outcome.returns, outcome.true_value, outcome.estimated_value      # [seeds] each
action = outcome.policy(0)(observation)                           # numpy in and out
outcome.save("somewhere")                                         # and load_policy("somewhere")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..behaviours.made import load_dataset, undeclared
from ..data import Dataset
from ..methods.registry import NAMES as MODEL_BASED
from ..neubay.prepare import check_updates
from ..worlds.dynamics import Dynamics
from . import neubay
from .budget import Budget, small_budget
from .method_settings import tuned_to_own
from .model_based import fit_dataset, train_in, train_model_based
from .model_free import MODEL_FREE, Data, train_model_free
from .neubay import fit_posterior, train_neubay
from .outcome import Outcome
from .setting import facts_of, matched, naming_extremes
from .source import Setting


def train(
    dataset: Any,
    method: Any = "ravl",
    budget: Budget | None = None,
    *,
    environment: Any = None,
    seeds: int | None = None,
    steps: int | None = None,
    data: Data = "real",
    dynamics: Dynamics | None = None,
    worlds: PyTree = (),
    context: RunContext | None = None,
) -> Outcome:
    """Fit world models where the method wants some, train, play in the true environment, save.

    Args:
        dataset: a `Dataset`, or what `load_dataset` takes: a name, a path, a mapping of arrays.
        method: one of `METHODS`, or its settings: `Ravl(critics=5)`, `Cql(weight=10.0)`. What
            they leave out is the budget's, so that `Ravl()` is "ravl".
        budget: sizes and lengths; None takes `small_budget()`.
        environment: where to play: what `make` takes, or "none" to train without a simulator. None
            takes what the dataset says it is from, and nothing where it says nothing.
        seeds: side by side, instead of the budget's.
        steps: gradient steps of the agent, whatever the method, instead of the budget's; rounded to
            whole iterations (`Outcome.steps` says to what).
        data: `real` rows; or, for methods without a world model, those of a diffusion model:
            `synther`, or `pgd`, which is guided towards the policy that is learning.
        dynamics: for base, MOPO, MOBILE and RAVL: rolled in place of world models fitted here; of
            `fit_worlds(...).dynamics`, `true_dynamics`, or your own.
        worlds: parameters of `dynamics`, leading axis = seeds; `()` where it has none.
        context: a run whose folder keeps checkpoints and policies; a run that was cut goes on from
            there. None trains in memory and in silence.

    Returns:
        An `Outcome`; its `source` is a `FittedDataset`, a `Posterior` or, without a world model, a
        `Setting`.

    Raises:
        ConfigError: an unknown method or environment, a setting out of range, or dynamics for a
            method that rolls none.
        DataError: the dataset cannot be read, or does not fit its environment or the method.
        DivergenceError: training became non-finite.
        Interrupted: the context's stop flag was raised; the run can be resumed.
    """
    budget = budget or small_budget()
    if not isinstance(method, str):
        method, budget = budget.of(method)
    if steps is not None:
        budget = replace(budget, steps=steps)
    if seeds is not None:
        budget = replace(budget, study=replace(budget.study, seeds=seeds))
    check(budget)
    budget.check_method(method, data)
    budget = budget.spent(method)
    study = budget.study
    if not isinstance(dataset, Dataset):
        dataset = load_dataset(dataset, study.seed, **undeclared(dataset))
    dataset, env = matched(dataset, environment)
    budget.check_dataset(method, dataset)
    if dataset.rows_file is not None and (method not in MODEL_FREE or data != "real"):
        expected = f"rows in memory for {method} on {data} rows"
        hint = f"methods that read them while training: {', '.join(MODEL_FREE)}"
        raise ConfigError("stream", "rows on disk", expected, hint)
    if context and context.progress:
        for fact in facts_of(dataset, env, study, imagines=method not in MODEL_FREE):
            print(fact, flush=True)
    with naming_extremes(dataset):
        if dynamics is not None:
            if method not in MODEL_BASED:
                expected = f"one of {', '.join(MODEL_BASED)} with dynamics of your own"
                raise ConfigError("method", method, expected)
            study = tuned_to_own(method, dataset.name, study)
            return train_in(dynamics, worlds, method, Setting(dataset, env), study, context)
        if method in MODEL_FREE:
            setting, made = Setting(dataset, env), budget.synthetic
            return train_model_free(method, setting, study, budget.model_free, context, data, made)
        if method in MODEL_BASED:
            world = fit_dataset(dataset, study, context, env)
            return train_model_based(method, world, study, context)
        config = budget.neubay.agent
        check_updates(config, dataset.transitions, env.max_episode_steps, dataset.name)
        posterior = fit_posterior(dataset, study, budget.neubay, context, env=env)
        arm = neubay.markov(config) if method == "neubay_markov" else config
        return train_neubay(method, posterior, study, arm, context)
