"""NEUBAY's posterior: an ensemble of world models, and the uncertainty at which rollouts stop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import poll

from ..data import Dataset, Transitions, episodes, to_device
from ..environments import Environment
from ..environments.terminations import Termination
from ..method import Job
from ..recurrent.histories import log_histories
from ..task import Source, Task, slug, termination_of
from ..worlds.dynamics import (
    Dynamics,
    Uncertainty,
    WorldModelParams,
    learned_dynamics,
    own_models,
)
from ..worlds.endings import TerminationConfig, with_endings
from ..worlds.fit import WorldEnsemble, WorldModel, fit_world_models
from ..worlds.saved import load_worlds
from ..worlds.thresholds import LEVELS, UncertaintyStats, threshold_at, uncertainty_stats_of_seeds
from ..worlds.written import save_worlds
from .learner import OWN_WORLDS, NeubayData, Sizes, check_room

if TYPE_CHECKING:
    from ..methods.neubay import Neubay


@dataclass(frozen=True)
class PosteriorConfig(WorldEnsemble):
    """An ensemble as samples of a posterior; defaults are the public code's for D4RL locomotion.

    But for biases, which start at zero, and the decay, which is of kernels alone.

    Attributes:
        ensembles: number of ensembles to fit; seed `k` is trained in number `k % ensembles`.
        folder: folder of world models that a run saved (`.../worlds`), used instead of fitting.
    """

    members: int = positive(128)
    elites: int = positive(100)
    activation: str = "leaky_relu"
    layer_norm: bool = True
    initialiser: str = "uniform"
    learned_bounds: bool = False
    bootstrap: bool = False
    weight_decay: tuple[float, ...] = number((5e-5,), least=0)
    decay: Literal["coupled", "decoupled"] = "decoupled"
    max_epochs: int = positive(1200)
    ensembles: int = positive(1)
    folder: str = ""

    def fit(self, task: Task, job: Job, quantiles: tuple[float, ...] = ()) -> Posterior:
        """Fit the ensembles (or read them) and measure their uncertainty on the dataset.

        Args:
            task: dataset and environment.
            job: for the seed, and for the run that keeps the world models.
            quantiles: quantiles of the uncertainty, measured besides `LEVELS`; negative ones are
                none.
        """
        dataset, context = task.dataset, job.context
        stage = f"{slug(dataset.name)}-posterior"
        known = dataset.with_successors
        if self.folder:
            saved = load_worlds(self.folder, dataset)
            worlds = saved.worlds._replace(ending=None)  # fitted again below where one is set
            model, trained, ensemble = saved.model, None, saved.config
        else:
            key, ensemble = jax.random.fold_in(jax.random.key(job.seed), 2), self.ensemble
            run: dict[str, Any] = {"stage": stage, "context": context, "targets": "observations"}
            # The policies of a world that diverged do so at their first step; others continue.
            run |= {"forcing": task.env.forcing, "on_divergence": "drop"}
            model, worlds, trained = fit_world_models(
                ensemble, known, key, seeds=self.ensembles, **run
            )
        poll(context, f"before measuring {stage}")
        asked = {*LEVELS, *(level for level in quantiles if level >= 0)}
        stats = uncertainty_stats_of_seeds(
            model.fitter, worlds, to_device(known), tuple(sorted(asked))
        )
        rule = termination_of(dataset, task.env, self)
        ending = rule if isinstance(rule, TerminationConfig) else None
        if ending is not None:
            key, count = jax.random.fold_in(jax.random.key(job.seed), 3), stats.mean.shape[0]
            run = {"stage": f"{stage}-termination", "context": context, "on_divergence": "drop"}
            worlds = with_endings(worlds, ending, known, key, seeds=count, **run)
        posterior = Posterior(
            dataset, task.env, model, worlds, stats, trained, ensemble, rule, ending
        )
        if context and not self.folder:
            posterior.save_worlds(context.folder.stage(stage) / "worlds")
        return posterior


class Posterior(NamedTuple):
    """A dataset with the ensembles fitted to it and the uncertainty they have there.

    Attributes:
        dataset, env: where the rows come from.
        model: architecture and scalers.
        worlds, stats: leaves `[W, ...]`.
        trained: history of the fit; None where the worlds were read from a folder.
        ensemble: settings of the world models.
        rule: termination of imagined episodes: the known rule, or settings of a learned one.
        ending: settings of a learned termination, or None.
    """

    dataset: Dataset
    env: Environment
    model: WorldModel
    worlds: WorldModelParams
    stats: UncertaintyStats
    trained: Trained | None
    ensemble: EnsembleConfig
    rule: Termination | TerminationConfig
    ending: TerminationConfig | None = None

    def save_worlds(self, folder: Path) -> Path:
        """Write the world models and their uncertainty on the dataset, for `load_worlds`."""
        more: Any = {"stats": self.stats, "ending": self.ending}
        return save_worlds(folder, self.worlds, self.dataset, self.ensemble, "observations", **more)

    @property
    def dynamics(self) -> Dynamics:
        """Functions of the world models."""
        members = jax.tree.leaves(self.worlds.elites)[0].shape[1]
        more: Any = {"disagreement": spread_of_means, "normalised": True}
        return learned_dynamics(self.model.fitter, members, termination=self.rule, **more)


def posterior_of(
    method: Neubay, task: Task, job: Job
) -> tuple[Dynamics, WorldModelParams, UncertaintyStats, Source]:
    """What is rolled, and its uncertainty on the dataset: an ensemble fitted here, or the job's own
    dynamics, whose threshold stands for the quantile and whose mean spread is not known.

    Raises:
        ConfigError: own dynamics without a measure or threshold, or a setting that needs the
            dataset's spread.
    """
    size = method.rollouts
    if job.dynamics is None:
        found = method.world.fit(task, job, (size.uncertainty_quantile,))
        # Only elites are rolled.
        return found.dynamics, found.worlds._replace(others=None), found.stats, found
    hint = "with dynamics of your own: set world_models' uncertainty_threshold"
    for name, value, expected in (
        ("rollouts.uncertainty_quantile", size.uncertainty_quantile, 1.0),
        ("penalty", method.penalty, 0.0),
    ):
        if value != expected:
            raise ConfigError(name, value, f"{expected:g}", hint)
    asked = Uncertainty(spread_of_means, normalised=True, stops=True)
    dynamics, worlds, _, source = own_models(job, asked, task, method.name, "raw")
    limits = jnp.asarray(worlds.uncertainty_threshold)
    one = jnp.ones_like(limits)
    return dynamics, worlds, UncertaintyStats(one[:, None], limits[:, None], one), source


def check_updates(
    method: Neubay, transitions: Transitions, env: Environment, source: str = "dataset"
) -> None:
    """Check before worlds are fitted that episodes fit into buffer and tape, and that a collection
    brings an iteration's gradient steps."""
    limit = env.max_episode_steps
    lengths = np.minimum(episodes(transitions).lengths, limit)
    check_room(method, Sizes(env.observation_size, env.action_size, limit, int(lengths.max())))
    # The moments 0 to n of an episode of n steps are equally likely to be continued.
    prefix = (lengths * (lengths + 1) / 2).sum() / (lengths + 1).sum()
    # A collection brings at least its real prefixes, one imagined step and the final observation.
    count, updates = method.rollouts.batch_size, method.schedule[1]
    sure = max(count * (prefix + 1.0) * method.utd_ratio, 1.0)
    if updates > sure:
        raise ConfigError(
            "per_iteration",
            updates,
            f"at most {int(sure)}, the gradient steps that {count} episodes of {source} bring on "
            "average whatever is imagined",
            "raise rollouts.batch_size or utd_ratio",
        )


def neubay_data(
    method: Neubay,
    transitions: Transitions,
    worlds: WorldModelParams,
    stats: UncertaintyStats,
    env: Environment,
    *,
    seeds: int,
    source: str = "dataset",
) -> tuple[NeubayData, NeubayData, Sizes]:
    """Put what seeds learn from on the device.

    Args:
        worlds: leaves `[W, ...]`; seed `k` is trained in world `k % W`.
        stats: stats of each world, leaves `[W, ...]`.

    Returns:
        The data, which parts of them are each seed's own, and the sizes.
    """
    count, limit = jax.tree.leaves(worlds)[0].shape[0], env.max_episode_steps
    logged = log_histories(transitions, limit, source=source)
    quantile = method.rollouts.uncertainty_quantile
    limited = worlds._replace(uncertainty_threshold=threshold_at(stats, quantile))
    single = count == 1
    # Each world in turn.
    own = jnp.int32(0) if single else jnp.arange(seeds, dtype=jnp.int32) % count
    world, penalty = jax.tree.map(lambda x: x[own], (limited, method.penalty / stats.mean))
    per_seed = NeubayData._make((False, False, False)) if single else OWN_WORLDS
    sizes = Sizes(env.observation_size, env.action_size, limit, logged.longest)
    return NeubayData(logged, world, penalty), per_seed, sizes
