"""World models for offline RL: an ensemble that predicts the change of observation and the reward.

Shared by base, MOPO, MOBILE and RAVL (PETS/MBPO architecture). The parameters that are rolled hold
the elites only, each at its best snapshot, and the scalers they were fitted with.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.devices import MEMBER
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.fit_data import FitData, split_holdout
from jaxrl_rollouts.fitting import FitState, Fitter, elite_members, make_fitter
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler, identity_scaler
from jaxrl_rollouts.trees import row

from ..data import Dataset, Transitions
from ..data.transitions import RAW, RewardScale
from ..environments.base import Environment
from ..task import Task, slug, termination_of
from .dynamics import Disagreement, Dynamics, WorldModelParams, learned_dynamics
from .elites import by_open_loop
from .endings import TerminationConfig, with_endings
from .fields import FieldEnsemble, Forcing, Mlp, on_fields
from .written import save_worlds

Targets = Literal["raw", "change", "observations"]

ENDING = 2**31 + 1  # a stream that no split reaches: `split(key, n)[i]` is `fold_in(key, i)`


@dataclass(frozen=True)
class WorldEnsemble(FieldEnsemble):
    """An ensemble in whose rollouts episodes end.

    Attributes:
        termination: the `known` rule of the environment, or a `learned` classifier, which
            also takes the rule's place where none is known.
        ending: settings of that classifier.
    """

    termination: Literal["known", "learned"] = "known"
    ending: TerminationConfig = TerminationConfig()

    @property
    def ensemble(self) -> EnsembleConfig:
        """The part that fitting reads, and that a folder of world models keeps."""
        kind = EnsembleConfig if isinstance(self.network, Mlp) else FieldEnsemble
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})


@dataclass(frozen=True)
class WorldModelConfig(WorldEnsemble):
    """An ensemble as a world model: its targets, and the termination of imagined episodes.

    Attributes:
        targets: units of the predicted changes and rewards: each standardised (`change`), not
            scaled (`raw`), or changes in standard deviations of the `observations` (NEUBAY).
        shared: fit one ensemble for all seeds; else one per seed.
        elites_by: elites have the lowest one-step error on the `holdout`, or `open_loop` error.
    """

    targets: Targets = "change"
    shared: bool = False
    elites_by: Literal["holdout", "open_loop"] = "holdout"

    def fit(
        self,
        task: Task,
        seeds: int,
        seed: int,
        context: RunContext | None,
        reward: RewardScale = RAW,
    ) -> FittedDataset:
        """Fit world models to a dataset, and a classifier of ends where no rule is known.

        Args:
            task: the dataset and its environment.
            seeds: number of seeds of the training; as many models unless `shared`.
            seed: random seed.
            context: context of the run, which keeps them in its folder.
            reward: transformation of the predicted rewards.
        """
        dataset, name = task.dataset, slug(task.dataset.name)
        rule = termination_of(dataset, task.env, self)
        fit_key, _ = jax.random.split(as_key(seed, "seed"))
        count, rows = 1 if self.shared else seeds, reward.of(dataset.with_successors)
        # The policy of a world that diverged does so at its first step, and costs no other seed.
        run: dict[str, Any] = {"seeds": count, "context": context, "on_divergence": "drop"}
        more: dict[str, Any] = {"targets": self.targets, "stage": f"{name}-world", **run}
        more["forcing"] = task.env.forcing
        fitted = fit_world_models(self.ensemble, rows, fit_key, **more)
        if self.elites_by == "open_loop":
            chosen = by_open_loop(fitted.model.fitter, fitted.worlds, rows)
            fitted = fitted._replace(worlds=chosen)
        ending = rule if isinstance(rule, TerminationConfig) else None
        if ending is not None:
            end_key, stage = jax.random.fold_in(fit_key, ENDING), f"{name}-termination"
            worlds = with_endings(fitted.worlds, ending, rows, end_key, stage=stage, **run)
            fitted = fitted._replace(worlds=worlds)
        found = FittedDataset(dataset, task.env, fitted, self, seed, ending, reward)
        if context:
            found.save_worlds(context.folder.stage(f"{name}-world") / "worlds")
        return found


class FittedDataset(NamedTuple):
    """A dataset with the world models fitted to it.

    Attributes:
        dataset: source of the rows.
        env: the true environment.
        fitted: world models; one per seed, or one for all.
        config: their settings.
        seed: random seed of the fit.
        ending: settings of a learned termination; None where a rule is known.
        reward: view of the rewards that is predicted.
    """

    dataset: Dataset
    env: Environment
    fitted: FittedWorlds
    config: WorldModelConfig
    seed: int = 0
    ending: TerminationConfig | None = None
    reward: RewardScale = RAW

    __repr__ = brief

    def save_worlds(self, folder: Path) -> Path:
        """Write the world models for `load_worlds`."""
        more = self.dataset, self.config.ensemble, self.config.targets
        return save_worlds(folder, self.fitted.worlds, *more, ending=self.ending)


class WorldModel(NamedTuple):
    """Functions of one world-model architecture; see `make_world_model`."""

    fitter: Fitter
    data: FitData
    inputs: Scaler
    targets: Scaler
    elites: int
    units: Targets  # what `targets` scales to

    __repr__ = brief

    def world(self, state: FitState) -> WorldModelParams:
        """Parameters of a finished fit (one seed); members of groups stay in the groups' order."""
        size = self.fitter.ensemble.size
        order = elite_members(state, size) if self.data.own is None else jnp.arange(size)
        elites = take_members(state.best, order[: self.elites])
        others = take_members(state.best, rest) if len(rest := order[self.elites :]) else None
        return WorldModelParams(elites, self.inputs, self.targets, others=others)


def make_world_model(
    config: EnsembleConfig,
    transitions: Transitions,
    *,
    targets: Targets = "change",
    groups: np.ndarray | None = None,
    forcing: Forcing | None = None,
) -> WorldModel:
    """Prepare data, scalers and functions for `fit_world_models`.

    Args:
        targets: units in which members learn changes and rewards: as they are (`raw`, MBPO), each
            standardised (`change`), or changes in standard deviations of the *observations* and
            rewards standardised (`observations`, NEUBAY).
        groups: `[n]`, which machine each row is of, 0 to G - 1; see `fit_world_models`.
        forcing: force of networks on fields, see `fit_world_models`.
    """
    observations, actions = np.asarray(transitions.observations), np.asarray(transitions.actions)
    change = np.asarray(transitions.next_observations) - observations
    x = np.concatenate([observations, actions], -1)
    y = np.concatenate([change, np.asarray(transitions.rewards)[:, None]], -1)
    return regression(config, x, y, targets, groups, forcing)


def make_inverse_model(config: EnsembleConfig, transitions: Transitions) -> WorldModel:
    """The same machinery the other way round: the action behind a change.

    Of what `fit_model` returns, `predict(fitter, world, observations, next_observations)` is every
    elite's normal over actions, `[E, B, A]`.
    """
    t = transitions
    observations, following, actions = (
        np.asarray(x) for x in (t.observations, t.next_observations, t.actions)
    )
    return regression(config, np.concatenate([observations, following], -1), actions, "change")


def regression(
    config: EnsembleConfig,
    x: np.ndarray,
    y: np.ndarray,
    targets: Targets,
    groups: np.ndarray | None = None,
    forcing: Forcing | None = None,
) -> WorldModel:
    """The same of any inputs `x [n, I]` and outputs `y [n, O]`, arguments as above."""
    placed: Any = jax.device_put((x, y))
    inputs, member = fit_scaler(placed[0]), None
    units = _target_units(targets, inputs, placed[1])
    if isinstance(config, FieldEnsemble):
        inputs, units, member = on_fields(config, inputs, units, forcing)
    data = split_holdout(config, *map(np.asarray, _scaled(*placed, inputs, units)), groups=groups)
    fitter = make_fitter(config, x.shape[1], y.shape[1], member)
    return WorldModel(fitter, data, inputs, units, config.elites, targets)


@jax.jit
def _scaled(x: jax.Array, y: jax.Array, inputs: Scaler, units: Scaler) -> tuple[jax.Array, ...]:
    return inputs.normalise(x), units.normalise(y)


def _target_units(targets: Targets, inputs: Scaler, y: jax.Array) -> Scaler:
    if targets == "raw":
        return identity_scaler(y.shape[1])
    standard = fit_scaler(y)
    if targets == "change":
        return standard
    # Only a shift and a scale of the next observation: the change keeps its zero.
    size = y.shape[1] - 1
    mean = standard.mean.at[:size].set(0.0)
    return Scaler(mean, standard.std.at[:size].set(inputs.std[:size]))


class FittedWorlds(NamedTuple):
    """World models of several seeds.

    Attributes:
        model: architecture, data and scalers.
        worlds: a `WorldModelParams` with a leading seed axis.
        trained: history and times of the fit.
    """

    model: WorldModel
    worlds: WorldModelParams
    trained: Trained

    __repr__ = brief

    def world(self, seed: int = 0) -> WorldModelParams:
        """The world of one seed, for `rollout`."""
        return row(self.worlds, seed)

    def dynamics(
        self,
        env: Environment,
        disagreement: Disagreement | None = None,
        *,
        normalised: bool = False,
    ) -> Dynamics:
        """Learned dynamics with the environment's own reward and termination."""
        return learned_dynamics(
            self.model.fitter,
            self.model.elites,
            termination=env.termination,
            reward=env.reward,
            disagreement=disagreement,
            normalised=normalised,
        )


def fit_world_models(
    config: EnsembleConfig,
    data: Dataset | Transitions,
    key: jax.Array | int = 0,
    *,
    seeds: int = 1,
    targets: Targets = "change",
    groups: np.ndarray | None = None,
    forcing: Forcing | None = None,
    stage: str = "world_model",
    context: RunContext | None = None,
    on_divergence: OnDivergence = "raise",
) -> FittedWorlds:
    """Fit `seeds` independent ensembles to one dataset, side by side.

    Logs of several machines with unobserved differences have several dynamics: fitted
    to all of them, members agree on an average of the machines. With `groups` each member is
    the model of one machine, and the ensemble covers the machines (hidden-parameter MDPs,
    Doshi-Velez & Konidaris 2016, with the logs' machines as the prior).

    Args:
        config: architecture and optimisation; one epoch is one iteration of the loop.
        data: the dataset, or its rows on the host.
        key: consumed, or the number to make one of; seed `i` uses `split(key, seeds)[i]`.
        seeds: number of ensembles.
        targets: units the members learn in, as for `make_world_model`.
        groups: `[n]` int, 0 to G - 1, which machine each row is of: member `i` is fitted to those
            of machine `i % G`. All members are elites then, and a multiple of `G`.
        forcing: for networks on fields: `Environment.forcing`, the force of actions on the grid;
            None learns it.
        stage, context, on_divergence: as for `train_loop`.

    Raises:
        ConfigError: too few rows, or groups that fit neither rows nor members.
    """
    transitions = data.with_successors if isinstance(data, Dataset) else data
    key = as_key(key)
    units: Any = {"targets": targets, "groups": groups}
    model = make_world_model(config, transitions, forcing=forcing, **units)
    more: dict[str, Any] = {"stage": stage, "context": context, "on_divergence": on_divergence}
    return fit_model(model, config, key, seeds=seeds, **more)


def fit_model(
    model: WorldModel,
    config: EnsembleConfig,
    key: jax.Array,
    *,
    seeds: int = 1,
    stage: str = "world_model",
    context: RunContext | None = None,
    on_divergence: OnDivergence = "raise",
) -> FittedWorlds:
    """Fit what was prepared for the same `config`; arguments as for `fit_world_models`."""
    fitter = model.fitter
    trained = train_loop(
        fitter.update,
        fitter.init,
        jax.random.split(key, seeds),
        model.data,
        iterations=config.max_epochs,
        stage=stage,
        unit="epochs",
        finished=fitter.finished,
        batch_axis=(MEMBER, config.members),
        context=context,
        about={"": config, "targets": model.units},
        on_divergence=on_divergence,
    )
    return FittedWorlds(model, jax.jit(jax.vmap(model.world))(trained.state), trained)
