"""World models as a method rolls them: fitted here, or dynamics of one's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..data import to_device
from ..data.transitions import RewardScale, RewardView
from ..method import Job
from ..task import Source, Task, termination_of
from ..worlds.dynamics import (
    Consulted,
    Disagreement,
    Dynamics,
    Imagined,
    Noise,
    World,
    learned_dynamics,
)
from ..worlds.fit import WorldModelConfig
from ..worlds.trust import uncertainties

Models = tuple[Dynamics, PyTree, jax.Array, Source]


class Uncertainty(NamedTuple):
    """Which uncertainty a step of the model reports.

    Attributes:
        of: what members' means and deviations `[N, B, O]` come to, `[B]`.
        members: whose predictions those are.
        normalised: in the units of the targets, not of the data.
        stops: end a rollout beyond `limit_scale` times the largest on the dataset.
        measured: also measure the mean on the dataset, `Imagination.typical`.
    """

    of: Disagreement
    members: Consulted = "elites"
    normalised: bool = False
    stops: bool = False
    measured: bool = False
    limit_scale: float = 1.0


class Rolled(NamedTuple):
    """World models as `rows` and `learn` see them: their functions and the parameters of a seed."""

    dynamics: Dynamics
    world: Any
    typical: jax.Array

    def imagine(self, key: jax.Array, observations: jax.Array, actions: jax.Array) -> Imagined:
        """Every elite's opinion of what follows."""
        return self.dynamics.imagine(self.world, key, observations, actions)


def models_of(
    config: WorldModelConfig,
    asked: Uncertainty | None,
    noise: Noise,
    task: Task,
    job: Job,
    reward: RewardScale,
) -> Models:
    """World models that are fitted to the dataset.

    Args:
        config: of the world models.
        asked: the uncertainty that a step reports; None for none.
        noise: of the elites' samples in `Rolled.imagine`.
        task: the dataset and its environment.
        job: seeds, and the run.
        reward: view of the rewards that is predicted.

    Returns:
        Their functions, their parameters `[seeds, ...]`, the mean uncertainty on the dataset
        (`[seeds]`, or a scalar of shared ones), and what was fitted.
    """
    fitted = config.fit(task, job.seeds, job.seed, job.context, reward)
    worlds, fitter = fitted.fitted.worlds, fitted.fitted.model.fitter
    typical, more = jnp.ones(()), {}
    if asked is not None:
        more = {"disagreement": asked.of, "penalty_members": asked.members}
        more["normalised"] = asked.normalised
    if asked is not None and (asked.stops or asked.measured):
        rows = to_device(task.dataset.transitions)

        def on_data(world: World) -> tuple[jax.Array, jax.Array]:
            found = uncertainties(fitter, world, rows.observations, rows.actions, **more)
            return found.mean(), found.max()

        typical, largest = jax.vmap(on_data)(worlds)
        worlds = worlds._replace(limit=asked.limit_scale * largest) if asked.stops else worlds
    if config.shared:
        worlds = jax.tree.map(lambda x: x[0], worlds)
        typical = typical[0] if typical.ndim else typical
    rule: Any = termination_of(task.dataset, task.env, config)
    dynamics = learned_dynamics(fitter, config.elites, termination=rule, noise=noise, **more)
    return dynamics, worlds, typical, fitted


def own_models(
    job: Job, asked: Uncertainty | None, task: Task, name: str, reward: RewardView
) -> Models:
    """The job's own dynamics.

    Raises:
        ConfigError: they lack what the method reads of them.
    """
    dynamics = job.dynamics
    assert dynamics is not None
    if reward != "raw":
        raise ConfigError("reward", reward, "raw: dynamics of your own have own rewards")
    if asked is not None and not dynamics.measured:
        expected = f"a measure of uncertainty, which {name} reads"
        hint = "build them with learned_dynamics(..., disagreement=...)"
        raise ConfigError("dynamics", "none of the step's uncertainty", expected, hint)
    if asked is not None and asked.measured:
        hint = "penalty_scale='raw' is in units of what they report"
        raise ConfigError("penalty_scale", "mean", "raw with dynamics of your own", hint)
    if asked is not None and asked.stops and getattr(job.world_models, "limit", None) is None:
        hint = "world_models._replace(limit=uncertainty_threshold(...))"
        raise ConfigError("world_models.limit", None, "a threshold for adaptive rollouts", hint)
    return dynamics, job.world_models, jnp.ones(()), task
