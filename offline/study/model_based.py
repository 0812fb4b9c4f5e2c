"""A dataset and a model-based method: fit world models, judge them, train, evaluate, save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fit_data import part_rows
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.trees import PyTree

from ..data import Dataset, to_device
from ..environments import Environment
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
from .method_settings import check_settings, tuned
from .outcome import Outcome, finish, judge
from .setting import environment_of, termination_of, verify_checksum
from .source import Source, slug

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
# Streams that no split reaches: `split(key, n)[i]` is `fold_in(key, i)`.
LOOK, ENDING = 2**31, 2**31 + 1


class FittedDataset(NamedTuple):
    """A dataset with the world models fitted to it.

    Attributes:
        dataset: where the rows come from.
        env: the true environment.
        fitted: world models; one per seed, or one for all.
        errors: `[T, B]` open-loop error in dataset standard deviations, first world.
        inside: `[levels]` share of outcomes inside the central intervals of `LEVELS`, of rows that
            were held out.
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
    verify_checksum(dataset, context)
    key = jax.random.key(config.seed)
    fit_key, look_key = jax.random.split(key)[0], jax.random.fold_in(key, LOOK)
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
            jax.random.fold_in(fit_key, ENDING),
            seeds=seeds,
            stage=f"{slug(dataset.name)}-termination",
            context=context,
        )
        fitted = fitted._replace(worlds=fitted.worlds._replace(ending=endings))
    poll(context, f"before measuring {slug(dataset.name)}-world")
    first = jax.tree.map(lambda x: x[0], fitted.worlds)
    dynamics = learned_dynamics(fitted.model.fitter, config.ensemble.elites, termination=rule)
    errors = open_loop(dynamics, first, logged, look_key).error
    unseen = part_rows(config.ensemble, len(rows.rewards))[1]
    held_out = to_device(jax.tree.map(lambda x: x[unseen], rows))
    inside = calibration(fitted.model.fitter, first, held_out, LEVELS)
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
    worlds, per_seed = world.fitted.worlds, OWN_WORLDS._replace(coefficient=True)
    unit = on_data(jnp.mean, method, world) if method.unit == "mean" else jnp.ones(())
    unit = jnp.broadcast_to(unit, (config.seeds,))
    disagreement, normalised = method.disagreement, False
    if config.rollouts.adaptive:
        # A method without a measure of its own stops by NEUBAY's.
        disagreement, normalised = disagreement or spread_of_means, disagreement is None
        asked = method._replace(disagreement=disagreement)
        worlds = worlds._replace(limit=on_data(jnp.max, asked, world, normalised))
    dynamics = learned_dynamics(
        world.fitted.model.fitter,
        config.ensemble.elites,
        termination=termination_of(world.dataset, world.env, config),
        disagreement=disagreement,
        penalty_members=method.penalty_members,
        normalised=normalised,
        noise=method.noise,
    )
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
        rolled={
            "ensemble": config.ensemble,
            "targets": config.targets,
            "termination": config.termination,
            "ending": config.ending,
        },
    )


def on_data(
    statistic: Callable[[jax.Array], jax.Array],
    method: Method,
    world: FittedDataset,
    normalised: bool = False,
) -> jax.Array:
    """A statistic over the dataset's rows of the disagreement a method asks for, `[worlds]`.

    Its mean is the unit of MOPO's penalty, its maximum where adaptive rollouts stop.
    """
    rows = to_device(world.dataset.transitions)

    def of(one: World) -> jax.Array:
        return statistic(
            uncertainties(
                world.fitted.model.fitter,
                one,
                rows.observations,
                rows.actions,
                method.disagreement,
                penalty_members=method.penalty_members,
                normalised=normalised,
            )
        )

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
    rolled: Mapping[str, Any] | None = None,
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
        rolled: settings of what is rolled, by name, kept with the checkpoints.
        stage: of the run; None is called after dataset and method.
    """
    verify_checksum(world.dataset, context)
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
            **(rolled or {}),
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
