"""How large and how long: a budget for every method, and the two that serve on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxrl_rollouts.configs import positive, unknown
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError

from ..agents.given import onto
from ..agents.registry import AGENTS, quick_agents
from ..agents.sac import SacConfig
from ..data import Dataset
from ..methods.registry import METHODS as model_based
from ..methods.registry import NAMES as MODEL_BASED
from ..methods.scheme import ModelBasedConfig
from .config import CPU_MUJOCO, StudyConfig
from .longer import longer
from .method_settings import check_settings
from .model_free import MODEL_FREE, ModelFreeStudyConfig, cadence
from .setting import check_rewards

METHODS = (*MODEL_BASED, *MODEL_FREE)
# Which method an object of settings is of.
SETTINGS: Mapping[type, str] = {
    **{kind: name for name, kind in model_based.items()},
    **{spec.config: name for name, spec in AGENTS.items()},
}


@dataclass(frozen=True)
class Budget:
    """Sizes of networks and lengths of trainings of every method; a method reads its own part.

    Attributes:
        study: seeds and evaluation; world models and agent of base, MOPO, MOBILE and RAVL.
        model_free: the agents that need no world model.
        steps: gradient steps of the agent, whatever the method, rounded to whole iterations; None
            takes the method's own length (`study.epochs`, `model_free.updates`).
    """

    study: StudyConfig = field(default_factory=StudyConfig)
    model_free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)
    steps: int | None = positive(None)

    def check_method(self, method: str) -> None:
        """Check what is chosen with a budget.

        Raises:
            ConfigError: an unknown method, world models that do not
                predict what it penalises, or a number of steps below 1.
        """
        if method not in METHODS:
            raise unknown("method", method, METHODS)
        if method in MODEL_BASED:
            check_settings(method, self.study)

    def check_dataset(self, method: str, dataset: Dataset) -> None:
        """Check what a method, of `check_method`, needs of the rows it is to learn from.

        Raises:
            DataError: rewards that the dataset does not have.
            ConfigError: as `check_settings`.
        """
        check_rewards(dataset, method)
        if method in MODEL_BASED and dataset.rows_file is None:
            check_settings(method, self.study, dataset)

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
        methods = _within(self.study.methods, name, settings)
        return name, replace(self, study=replace(self.study, methods=methods))

    def spent(self, method: str) -> Budget:
        """The same with `steps` as the length of the part that a method reads.

        An epoch of imagination keeps its gradient steps as long as there
        is one whole.
        """
        if self.steps is None:
            return self
        if method in MODEL_FREE:
            return replace(self, model_free=replace(self.model_free, updates=self.steps))
        rollouts = self.study.rollouts
        epochs, per = cadence(self.steps, rollouts.updates_per_epoch, 1)
        rollouts = replace(rollouts, updates_per_epoch=per)
        return replace(self, study=replace(self.study, epochs=epochs, rollouts=rollouts))

    def longer(self, method: str, times: int) -> Budget:
        """The same with a method's agents trained `times` as long, looked at as often.

        In the run of the shorter training `train` goes on from where that ended, as if it had been
        begun so long: bit for bit on CPU.

        Raises:
            ConfigError: an agent with `cosine_steps`, whose rates fall to zero over
                their steps.
        """
        return longer(replace(self.spent(method), steps=None), times)


def _within(configs: Any, name: str, settings: Any) -> Any:
    return replace(configs, **{name: onto(getattr(configs, name), settings)})


def small_budget(seeds: int = 2) -> Budget:
    """Minutes on two cores: small networks that learn three to ten times as fast.

    Args:
        seeds: trained side by side.
    """
    rates: dict[str, Any] = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
    return Budget(
        study=StudyConfig(
            seeds=seeds,
            ensemble=EnsembleConfig(
                hidden=(64, 64, 64), weight_decay=(2.5e-5,), batch_size=256, max_epochs=15
            ),
            # Targets ten times as fast as the papers': 3.75 time constants of the critics.
            agent=SacConfig(hidden=(64, 64), tau=0.05, **rates),
            rollouts=ModelBasedConfig(
                rollouts_per_epoch=2000, updates_per_epoch=500, real_ratio=0.25
            ),
            epochs=15,
            evaluations=5,
        ),
        model_free=ModelFreeStudyConfig(
            agents=quick_agents((64, 64)), updates=10_000, per_iteration=500
        ),
    )


def long_budget(seeds: int = 4) -> Budget:
    """Hours on two cores: what earned most on MuJoCo's data in our reports, or close to it.

    Forty time constants of the critics for what rolls a world model, with 95 % of a batch real and
    models that are nearly as true as by least squares and know their deviations (`ravl_mujoco`);
    penalties served on most sets there. Agents without a model have the papers' networks,
    EDAC's ten critics RAVL's.

    Args:
        seeds: trained side by side.
    """
    base = CPU_MUJOCO
    study = replace(
        base,
        seeds=seeds,
        ensemble=replace(base.ensemble, beta=0.5),
        # What explodes would take the temperature with it (OfflineRL-Kit's bound).
        agent=replace(base.agent, max_alpha=1.0),
        rollouts=replace(base.rollouts, real_ratio=0.95),
        methods=replace(
            base.methods,
            mopo=replace(base.methods.mopo, penalty=20.0),
            # Its floor of 0 is for tasks whose returns are positive, which rows of one's own need
            # not be.
            mobile=replace(base.methods.mobile, penalty=5.0, min_target=None),
        ),
    )
    agent = study.agent
    agents = quick_agents((256, 256), rate=agent.critic_lr)
    edac = replace(agents.edac, hidden=agent.hidden, tau=agent.tau, initial_alpha=0.1)
    return Budget(
        study=study,
        model_free=ModelFreeStudyConfig(replace(agents, edac=edac), updates=200_000),
    )
