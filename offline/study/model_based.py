"""A dataset and a model-based method: fit world models, judge them, train, evaluate, save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.trees import PyTree

from ..agents.sac import SacConfig
from ..data import (
    Dataset,
    to_device,
)
from ..environments import Environment
from ..methods.published import published
from ..methods.registry import make_method
from ..methods.scheme import OWN_WORLDS, Method, imagination, make_model_based
from ..training import train_learner
from ..worlds.dynamics import Dynamics, World, learned_dynamics
from ..worlds.endings import TerminationConfig, fit_endings
from ..worlds.fit import FittedWorlds, Targets, fit_worlds
from ..worlds.judge import calibration, open_loop, unchanged, windows
from ..worlds.saved import save_worlds
from ..worlds.trust import uncertainties
from .config import StudyConfig, keys_of
from .outcome import Outcome, finish, judge
from .setting import environment_of, hold_data, termination_of
from .source import Source, slug

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


class FittedDataset(NamedTuple):
    """A dataset with the world models fitted to it.

    Attributes:
        dataset: where the rows come from.
        env: the true environment.
        fitted: world models; one per seed, or one for all.
        errors: `[T, B]` open-loop error in dataset standard deviations, first world.
        inside: `[levels]` share of outcomes inside the central intervals of `LEVELS`.
        ensemble, targets: what the world models are; `ending` a learned termination's settings.
        unchanged: as `errors`, of a model that says that nothing ever changes.
    """

    dataset: Dataset
    env: Environment
    fitted: FittedWorlds
    errors: np.ndarray
    inside: np.ndarray
    ensemble: EnsembleConfig
    targets: Targets = "change"
    ending: TerminationConfig | None = None
    unchanged: np.ndarray | None = None

    def save_worlds(self, folder: Path) -> Path:
        """Write the world models for `load_worlds`."""
        worlds, ending = self.fitted.worlds, self.ending
        return save_worlds(folder, worlds, self.dataset, self.ensemble, self.targets, ending=ending)


def fit_dataset(
    dataset: Dataset,
    config: StudyConfig,
    context: RunContext | None,
    env: Environment | None = None,
) -> FittedDataset:
    """Fit world models and measure how far they can be trusted; `env` is the dataset's own."""
    env = env or environment_of(dataset)
    rule = termination_of(dataset, env, config)
    hold_data(dataset, context)
    fit_key, look_key = jax.random.split(jax.random.key(config.seed))
    seeds = 1 if config.shared_world else config.seeds
    try:  # before the training that it is to judge
        rows = dataset.with_successors
        logged = windows(rows, config.error_horizon, 200)
    except ConfigError as error:
        raise error.named("study.error_horizon") from None
    fitted = fit_worlds(
        config.ensemble,
        rows,
        fit_key,
        seeds=seeds,
        targets=config.targets,
        stage=f"{slug(dataset.name)}-world",
        context=context,
    )
    if isinstance(rule, TerminationConfig):
        endings, _ = fit_endings(
            rule,
            rows,
            jax.random.fold_in(fit_key, 1),
            seeds=seeds,
            stage=f"{slug(dataset.name)}-termination",
            context=context,
        )
        fitted = fitted._replace(worlds=fitted.worlds._replace(ending=endings))
    poll(context, f"before measuring {slug(dataset.name)}-world")
    first = jax.tree.map(lambda x: x[0], fitted.worlds)
    dynamics = learned_dynamics(fitted.model.fitter, config.ensemble.elites, termination=rule)
    errors = open_loop(dynamics, first, logged, look_key).error
    some = jax.tree.map(lambda x: x[:20_000:4], to_device(rows))
    inside = calibration(fitted.model.fitter, first, some, LEVELS)
    result = FittedDataset(
        dataset,
        env,
        fitted,
        np.asarray(errors),
        np.asarray(inside),
        config.ensemble,
        config.targets,
        rule if isinstance(rule, TerminationConfig) else None,
        unchanged(logged, first.inputs.std[: rows.observations.shape[1]]),
    )
    if context:
        result.save_worlds(context.folder.stage(f"{slug(dataset.name)}-world") / "worlds")
    return result


def check_settings(name: str, config: StudyConfig, dataset: Dataset | None = None) -> None:
    """Hold a method to what it heeds of the settings, needs of the world models and finds in data.

    Raises:
        ConfigError: the agent's number of critics or their diversity, which the method sets itself,
            a penalty on what the configured world models do not predict, or a least target that
            nothing in the dataset is worth.
    """
    if dataset is not None:
        config = tuned(name, dataset.name, config)
    method = make_method(name, config.agent, config.methods)
    for setting in ("critics", "diversity"):
        asked, has = getattr(config.agent, setting), getattr(method.agent, setting)
        if asked not in (has, getattr(SacConfig(), setting)):
            own = hasattr(getattr(config.methods, name, None), setting)
            where = f"; it is study.methods.{name}.{setting}" if own else ""
            expected = f"nothing here: {name} has {has} by itself{where}"
            raise ConfigError(f"study.agent.{setting}", asked, expected)
    if config.ensemble.variance != "row" and method.disagreement is max_aleatoric:
        raise ConfigError(
            "study.ensemble.variance",
            config.ensemble.variance,
            f"row: {name} penalises the deviation that is predicted, here the same for every row",
        )
    least = method.agent.least_target
    if dataset is not None and least is not None:
        most = float(dataset.transitions.rewards.max()) / (1 - method.agent.discount)
        if most <= least:
            own = hasattr(getattr(config.methods, name, None), "least_target")
            raise ConfigError(
                f"study.methods.{name}.least_target" if own else "study.agent.least_target",
                least,
                f"less than {most:,.4g}, what the largest reward of {dataset.name} is worth for "
                "ever: every target would be cut there",
                "None leaves targets as they are",
            )


def train_model_based(
    name: str,
    world: FittedDataset,
    config: StudyConfig,
    context: RunContext | None,
    penalties: Sequence[float] = (),
) -> Outcome:
    """Train one method in the world models and play its policy in the true environment.

    Args:
        name: of the method.
        world: dataset and world models.
        config: seeds, agent and lengths.
        context: of the run.
        penalties: a sweep of the method's coefficient, side by side in one program: the outcome
            has `len(penalties) * seeds` seeds, of which seeds vary fastest (`Cell.parts`).

    Raises:
        ConfigError: the method penalises what the world models do not predict.
    """
    check_settings(name, config)
    config = tuned(name, world.dataset.name, config)
    method = make_method(name, config.agent, config.methods)
    dynamics = learned_dynamics(
        world.fitted.model.fitter,
        config.ensemble.elites,
        termination=termination_of(world.dataset, world.env, config),
        disagreement=method.disagreement,
        consulted=method.consulted,
        noise=method.noise,
    )
    worlds, per_seed = world.fitted.worlds, OWN_WORLDS._replace(coefficient=True)
    unit = mean_uncertainty(method, world) if method.unit == "mean" else jnp.ones(())
    unit = jnp.broadcast_to(unit, (config.seeds,))
    coefficients = jnp.asarray(penalties or (method.coefficient,), jnp.float32)
    coefficients = (coefficients[:, None] / unit).reshape(-1)
    arms = len(penalties) or 1
    if config.shared_world:
        worlds, per_seed = jax.tree.map(lambda x: x[0], worlds), per_seed._replace(world=False)
    elif arms > 1:
        worlds = jax.tree.map(lambda x: jnp.tile(x, (arms,) + (1,) * (x.ndim - 1)), worlds)
    config = replace(config, seeds=arms * config.seeds)
    return train_in(
        dynamics,
        worlds,
        name,
        world,
        config,
        context,
        per_seed=per_seed,
        coefficients=coefficients,
    )


def tuned(name: str, dataset: str, config: StudyConfig) -> StudyConfig:
    """`config` with what is chosen for a method on a dataset."""
    if config.tuning == "shared":
        return config
    methods, horizon = published(name, dataset, config.methods, config.rollouts.horizon)
    return replace(config, methods=methods, rollouts=replace(config.rollouts, horizon=horizon))


def mean_uncertainty(method: Method, world: FittedDataset) -> jax.Array:
    """Mean over the dataset of what `method` penalises, in every world, `[worlds]`."""
    rows = to_device(world.dataset.transitions)

    def of(one: World) -> jax.Array:
        return uncertainties(
            world.fitted.model.fitter,
            one,
            rows.observations,
            rows.actions,
            method.disagreement,
            consulted=method.consulted,
            normalised=False,
        ).mean()

    return jax.vmap(of)(world.fitted.worlds)


def train_in(
    dynamics: Dynamics,
    worlds: PyTree,
    name: str,
    world: Source,
    config: StudyConfig,
    context: RunContext | None,
    *,
    per_seed: PyTree = OWN_WORLDS,
    coefficients: jax.Array | None = None,
    stage: str | None = None,
) -> Outcome:
    """Train one method in dynamics of your own and play its policy in the true environment.

    Args:
        dynamics: what is rolled.
        worlds: its parameters, leading axis = seeds; `()` where it has none.
        name: of the method.
        world: dataset and environment.
        config: seeds, agent and lengths.
        context: of the run.
        per_seed: as for `train_learner`.
        coefficients: of its penalty, `[seeds]`; None takes the method's.
        stage: of the run; None is called after dataset and method.
    """
    hold_data(world.dataset, context)
    method = make_method(name, config.agent, config.methods)
    sizes = world.env.observation_size, world.env.action_size
    learner = make_model_based(config.rollouts, method, dynamics, *sizes)
    train_key, play_key = keys_of(config.seed)
    stage = stage or f"{slug(world.dataset.name)}-{name}"
    data = imagination(method, world.dataset.transitions, worlds)
    if coefficients is not None:
        data = data._replace(coefficient=coefficients)
    discount = config.agent.discount
    keep = judge(learner, world, world.env, play_key, config.episodes, discount)
    trained = train_learner(
        learner,
        data,
        train_key,
        seeds=config.seeds,
        per_seed=per_seed,
        iterations=config.epochs,
        evaluate=keep,
        evaluate_at=evenly(config.epochs, config.evaluations),
        stage=stage,
        context=context,
        about={
            "method": name,
            "rollouts": config.rollouts,
            "agent": method.agent,
            f"methods.{name}": getattr(config.methods, name, None),
        },
    )
    return finish(
        trained,
        learner,
        method.agent,
        name,
        world,
        world.env,
        stage=stage,
        context=context,
        best=keep,
    )
