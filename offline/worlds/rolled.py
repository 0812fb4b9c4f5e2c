"""World models that a method rolls: the uncertainty it reads, and models fitted or of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Members, Trajectory, rollout
from jaxrl_rollouts.trees import PyTree, row

from ..data import to_device
from ..data.transitions import RewardScale, RewardView
from ..task import Source, Task, termination_of
from .dynamics import (
    Consulted,
    Disagreement,
    Dynamics,
    EliteSamples,
    Noise,
    WorldModelParams,
    learned_dynamics,
    uncertainties,
)

if TYPE_CHECKING:
    from ..method import Job
    from .fit import WorldModelConfig

Models = tuple[Dynamics, PyTree, jax.Array, Source]


class Uncertainty(NamedTuple):
    """Which uncertainty a step of the model reports.

    Attributes:
        of: function of members' means and deviations `[N, B, O]`, `[B]`.
        members: the members of these predictions.
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

    def sample_elites(self, key: jax.Array, seen: jax.Array, actions: jax.Array) -> EliteSamples:
        """One sampled step of every elite, from observations `seen` `[B, S]`."""
        return self.dynamics.sample_elites(self.world, key, seen, actions)

    def rollout(self, starts: PyTree, key: jax.Array, per: Any = "step", **more: Any) -> Trajectory:
        """`rollout` from `starts` `[B, ...]`; members are as likely, a new one `per` step."""
        members = Members(jnp.arange(self.dynamics.members, dtype=jnp.int32), per=per)
        given = self.dynamics.model, self.world, starts, key
        return rollout(*given, members=members, **more)


def models_of(
    config: WorldModelConfig,
    asked: Uncertainty | None,
    noise: Noise,
    task: Task,
    job: Job,
    reward: RewardScale,
) -> Models:
    """World models that are fitted to the dataset; steps report the uncertainty `asked`, if any.

    Returns:
        Their functions, their parameters `[seeds, ...]`, the mean uncertainty on the dataset
        (`[seeds]`, or a scalar of shared ones), and what was fitted.
    """
    fitted = config.fit(task, job.seeds, job.seed, job.context, reward)
    worlds, fitter = fitted.fitted.worlds, fitted.fitted.model.fitter
    typical, more = jax.device_put(np.float32(1.0)), {}
    if asked is not None:
        more = {"disagreement": asked.of, "penalty_members": asked.members}
        more["normalised"] = asked.normalised
    if asked is not None and (asked.stops or asked.measured):
        rows = to_device(task.dataset.transitions)

        def on_data(world: WorldModelParams) -> tuple[jax.Array, jax.Array]:
            found = uncertainties(fitter, world, rows.observations, rows.actions, **more)
            return found.mean(), found.max()

        typical, largest = jax.vmap(on_data)(worlds)
        if asked.stops:
            worlds = worlds._replace(uncertainty_threshold=asked.limit_scale * largest)
    if config.shared:
        worlds, typical = row(worlds, 0), typical[0] if typical.ndim else typical
    rule: Any = termination_of(task.dataset, task.env, config)
    dynamics = learned_dynamics(fitter, config.elites, termination=rule, noise=noise, **more)
    return dynamics, worlds, typical, fitted


def own_models(
    job: Job, asked: Uncertainty | None, task: Task, name: str, reward: RewardView
) -> Models:
    """The job's own dynamics."""
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
    known = getattr(job.world_models, "uncertainty_threshold", None)
    if asked is not None and asked.stops and known is None:
        hint = "world_models._replace(uncertainty_threshold=uncertainty_threshold(...))"
        name = "world_models.uncertainty_threshold"
        raise ConfigError(name, None, "a threshold for adaptive rollouts", hint)
    return dynamics, job.world_models, jnp.ones(()), task
