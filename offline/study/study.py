"""The library's top floor: a dataset and the name of a method, and out comes what was trained.

outcome = train("hopper-medium-v2", "ravl", context=run)
outcome.returns, outcome.true_value, outcome.estimated_value      # [seeds] each
action = outcome.policy(0)(observation)                           # numpy in and out
outcome.save("somewhere")                                         # and load_policy("somewhere")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxrl_rollouts.configs import check, did_you_mean
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..agents.given import onto
from ..agents.registry import AGENTS, quick_agents
from ..agents.sac import SacConfig
from ..behaviours.made import load_dataset
from ..data import Dataset
from ..methods.registry import METHODS as model_based
from ..methods.registry import NAMES as MODEL_BASED
from ..methods.scheme import ModelBasedConfig
from ..neubay.config import NeubayConfig
from ..neubay.prepare import check_updates
from ..synthetic.synthesis import SyntheticConfig, small_synthetic
from ..worlds.dynamics import Dynamics
from . import neubay
from .config import StudyConfig
from .longer import longer
from .model_based import check_settings, fit_dataset, train_in, train_model_based
from .model_free import DATA, MODEL_FREE, Data, ModelFreeStudyConfig, cadence, train_model_free
from .neubay import NeubayStudyConfig, fit_posterior, small_neubay, train_neubay
from .outcome import Outcome
from .setting import check_rewards, environment_of, facts_of, naming_extremes
from .source import Setting

METHODS = (*MODEL_BASED, *neubay.NAMES, *MODEL_FREE)
# Which method an object of settings is of.
SETTINGS: Mapping[type, str] = {
    **{kind: name for name, kind in model_based.items()},
    **{spec.config: name for name, spec in AGENTS.items()},
    NeubayConfig: "neubay",
}


@dataclass(frozen=True)
class Budget:
    """Sizes of networks and lengths of trainings of every method; a method reads its own part.

    Attributes:
        study: seeds and evaluation; world models and agent of base, MOPO, MOBILE and RAVL.
        model_free: the agents that need no world model.
        neubay: NEUBAY's world models and agent.
        synthetic: diffusion models that make up rows for agents that need no world model.
        steps: gradient steps of the agent, whatever the method, rounded to whole iterations; None
            takes the method's own length (`study.epochs`, `model_free.updates`,
            `neubay.agent.agent.steps`).
    """

    study: StudyConfig = field(default_factory=StudyConfig)
    model_free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    steps: int | None = None

    def check_method(self, method: str, data: str = "real") -> None:
        """Check what is chosen with a budget.

        Raises:
            ConfigError: an unknown method, rows it cannot learn from, world models that do not
                predict what it penalises, or a number of steps below 1.
        """
        if method not in METHODS:
            hint = did_you_mean(method, METHODS)
            raise ConfigError("method", method, f"one of {', '.join(METHODS)}", hint)
        if data not in DATA:
            hint = did_you_mean(data, DATA)
            raise ConfigError("data", data, f"one of {', '.join(DATA)}", hint)
        if data != "real" and method not in MODEL_FREE:
            free = f"synther and pgd go before {', '.join(MODEL_FREE)}"
            raise ConfigError("data", data, f"real for {method}, which has a world model", free)
        if method in MODEL_BASED:
            check_settings(method, self.study)
        if self.steps is not None and self.steps < 1:
            raise ConfigError("steps", self.steps, "at least 1")

    def of(self, settings: Any) -> tuple[str, Budget]:
        """The method that settings are of, and this budget with everything they say.

        What they leave out stays as it is here.

        Raises:
            ConfigError: settings of no method.
        """
        settings = settings() if isinstance(settings, type) else settings
        name = SETTINGS.get(type(settings))
        if name is None:
            found = type(settings).__name__
            raise ConfigError("method", found, f"a name or settings of {', '.join(METHODS)}")
        if name in MODEL_FREE:
            agents = _within(self.model_free.agents, name, settings)
            return name, replace(self, model_free=replace(self.model_free, agents=agents))
        if name in MODEL_BASED:
            methods = _within(self.study.methods, name, settings)
            return name, replace(self, study=replace(self.study, methods=methods))
        return name, replace(self, neubay=_within(self.neubay, "agent", settings))

    def spent(self, method: str) -> Budget:
        """The same with `steps` as the length of the part that a method reads.

        An epoch of imagination, or NEUBAY's collection, keeps its gradient steps as long as there
        is one whole.
        """
        if self.steps is None:
            return self
        if method in MODEL_FREE:
            return replace(self, model_free=replace(self.model_free, updates=self.steps))
        if method in MODEL_BASED:
            rollouts = self.study.rollouts
            epochs, per = cadence(self.steps, rollouts.updates_per_epoch, 1)
            rollouts = replace(rollouts, updates_per_epoch=per)
            return replace(self, study=replace(self.study, epochs=epochs, rollouts=rollouts))
        config = self.neubay.agent
        iterations, per = cadence(self.steps, config.updates_per_iteration, 1)
        agent = replace(config.agent, steps=iterations * per)
        config = replace(config, agent=agent, updates_per_iteration=per)
        return replace(self, neubay=replace(self.neubay, agent=config))

    def longer(self, method: str, times: int) -> Budget:
        """The same with a method's agents trained `times` as long, looked at as often.

        In the run of the shorter training `train` goes on from where that ended, as if it had been
        begun so long: bit for bit on CPU.

        Raises:
            ConfigError: NEUBAY, whose rates fall to zero over its steps.
        """
        if method in neubay.NAMES:
            expected = f"none for {method}, whose rates fall to zero over its steps"
            raise ConfigError("times", times, expected, "run it anew with more steps")
        return longer(replace(self.spent(method), steps=None), times)


def _within(configs: Any, name: str, settings: Any) -> Any:
    return replace(configs, **{name: onto(getattr(configs, name), settings)})


def small_budget(seeds: int = 2) -> Budget:
    """Minutes on two cores: small networks that learn three to ten times as fast.

    Args:
        seeds: trained side by side.
    """
    rates: dict[str, Any] = {"actor_rate": 1e-3, "critic_rate": 1e-3, "temperature_rate": 1e-3}
    return Budget(
        study=StudyConfig(
            seeds=seeds,
            ensemble=EnsembleConfig(
                hidden=(64, 64, 64), weight_decay=(2.5e-5,), batch_size=256, max_epochs=15
            ),
            # Targets ten times as fast as the papers': 3.75 time constants of the critics.
            agent=SacConfig(hidden=(64, 64), polyak=0.05, **rates),
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
        synthetic=small_synthetic(),
    )


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
        dataset = load_dataset(dataset, study.seed)
    env = environment_of(dataset, environment)
    check_rewards(dataset, method)
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
