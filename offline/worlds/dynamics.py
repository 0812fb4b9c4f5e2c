"""World models as a method rolls them: `WorldModelParams` and the `Dynamics` over them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.ensemble import apply_assigned, spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.rollouts import Members, Model, StepResult, Trajectory, rollout, step_result
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree, row

from ..data import to_device
from ..data.transitions import RewardScale, RewardView
from ..task import Source, Task, termination_of
from .endings import Ending, TerminationConfig, ended

if TYPE_CHECKING:
    from ..method import Job
    from .fit import WorldModelConfig

Termination = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Reward = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Disagreement = Callable[[jax.Array, jax.Array], jax.Array]

Consulted = Literal["elites", "members"]  # whose predictions an uncertainty is made of
Noise = Literal["own", "common", "none"]  # of the elites' samples of one row


class WorldModelParams(NamedTuple):
    """A fitted world model, ready to be rolled.

    Attributes:
        elites: parameters of the elite snapshots, leaves `[E, ...]`, best first.
        inputs: scaler of `[observation, action]`.
        targets: scaler of `[observation change, reward]` (identity by default).
        ending: learned termination; None where the rule is known.
        uncertainty_threshold: at which rollouts stop (`thresholds`); None for none.
        others: parameters of the snapshots that are no elites, leaves `[N - E, ...]`, for the
            uncertainty alone: they are never rolled. None where all are elites.
    """

    elites: PyTree
    inputs: Scaler
    targets: Scaler
    ending: Ending | None = None
    uncertainty_threshold: jax.Array | None = None
    others: PyTree | None = None

    __repr__ = brief


class EliteSamples(NamedTuple):
    """One sampled transition per elite: rewards and terminations `[E, B]`, next `[E, B, S]`."""

    rewards: jax.Array
    next_observations: jax.Array
    terminations: jax.Array


class Dynamics(NamedTuple):
    """What a model-based agent needs of a transition model; `params` are `WorldModelParams`, or
    what the functions agree on.

    Attributes:
        model: for `rollout`; its state is the observation, `[B, S]`.
        sample_elites: `(params, key, observations, actions) -> EliteSamples`, a sampled step of
            each elite.
        members: number of elites `E`; 1 for dynamics that are no ensemble.
        measured: whether `uncertainty` is computed; False where it was not
            requested and is zero throughout.
        predict: `(params, observations, actions) -> Gaussian`, every elite's normal over change and
            reward, `[E, B, S + 1]`; None of dynamics that have no density.
    """

    model: Model
    sample_elites: Callable[[PyTree, jax.Array, jax.Array, jax.Array], EliteSamples]
    members: int
    measured: bool = True
    predict: Callable[..., Gaussian] | None = None


def predict(
    fitter: Fitter,
    world: WorldModelParams,
    observations: jax.Array,
    actions: jax.Array,
    penalty_members: Consulted = "elites",
) -> Gaussian:
    """Normals over `[change, reward]`, data units: the elites' `[E, B, S + 1]`, or all members'."""
    params = world.elites
    if penalty_members == "members" and world.others is not None:
        params = jax.tree.map(lambda *x: jnp.concatenate(x), params, world.others)
    x = world.inputs.normalise(jnp.concatenate([observations, actions], -1))
    return _in_data_units(world, *fitter.ensemble.apply_all(params, x))


def _in_data_units(world: WorldModelParams, mean: jax.Array, log_var: jax.Array) -> Gaussian:
    return Gaussian(world.targets.denormalise(mean), jnp.exp(0.5 * log_var) * world.targets.std)


def _transition(
    termination: Termination | TerminationConfig,
    reward: Reward | None,
    world: WorldModelParams,
    sample: jax.Array,
    observations: jax.Array,
    actions: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rewards `[B]`, next observations `[B, S]` and ends `[B]` of sampled changes `[B, S + 1]`."""
    following = observations + sample[..., :-1]
    rewards = reward(observations, actions, following) if reward else sample[..., -1]
    step = (observations, actions, following)
    learned = isinstance(termination, TerminationConfig)
    over = ended(termination, world.ending, *step) if learned else termination(*step)
    return rewards, following, over


@functools.lru_cache(maxsize=64)
def learned_dynamics(
    fitter: Fitter,
    elites: int,
    *,
    termination: Termination | TerminationConfig | None,
    reward: Reward | None = None,
    disagreement: Disagreement | None = None,
    penalty_members: Consulted = "elites",
    normalised: bool = False,
    noise: Noise = "own",
) -> Dynamics:
    """Dynamics of a fitted ensemble. Equal arguments give the same functions.

    Args:
        fitter: fitter of the `WorldModel`.
        elites: number of elites in the worlds it will be given.
        termination: known function `(obs, action, next_obs) -> [B] bool`, or the configuration
            of the classifier in `WorldModelParams.ending`.
        reward: known function of the same arguments; None uses the ensemble's reward head.
        disagreement: reported as the step's uncertainty, from every elite's prediction. None
            reports zero and evaluates one elite per row only, which is `E` times less work.
        penalty_members: the members passed to `disagreement`: the elites, or all members
            (MOPO).
        normalised: give `disagreement` predictions in the units of the targets (NEUBAY) and not
            in data units.
        noise: in `sample_elites`, every elite has its `own` sample, or one sample is `common` to
            them, so that they differ by their predictions only? `none`: predictions are means.

    Raises:
        ConfigError: no termination.
    """
    if termination is None:
        hint = "where episodes never end by themselves, terminations.never"
        raise ConfigError("termination", None, "a known function or a TerminationConfig", hint)
    split = functools.partial(_transition, termination, reward)

    def step(
        world: PyTree, key: jax.Array, observations: jax.Array, actions: jax.Array, member: Any
    ) -> tuple[jax.Array, StepResult]:
        batch = observations.shape[0]
        if disagreement is None:
            x = world.inputs.normalise(jnp.concatenate([observations, actions], -1))
            raw = apply_assigned(
                fitter.ensemble.apply_each, world.elites, x, member, -(-batch // elites)
            )
            prediction, uncertainty = _in_data_units(world, *raw), jnp.zeros((batch,))
        else:
            every = predict(fitter, world, observations, actions, penalty_members)
            units = world.targets.std if normalised else 1.0
            uncertainty = disagreement(every.mean / units, every.std / units)
            rows = jnp.arange(batch)
            prediction = Gaussian(every.mean[member, rows], every.std[member, rows])
        drawn = prediction.mean if noise == "none" else prediction.sample(key)
        r, following, done = split(world, drawn, observations, actions)
        return following, step_result(batch, reward=r, terminated=done, uncertainty=uncertainty)

    def sample_elites(
        world: WorldModelParams, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        every = predict(fitter, world, observations, actions)
        if noise == "none":
            sample = every.mean
        elif noise == "common":
            sample = jax.vmap(lambda one: one.sample(key))(every)
        else:
            sample = every.sample(key)
        of_member = jax.vmap(split, in_axes=(None, 0, None, None))
        return EliteSamples(*of_member(world, sample, observations, actions))

    density = functools.partial(predict, fitter)
    return Dynamics(Model(step), sample_elites, elites, disagreement is not None, density)


@functools.partial(
    jax.jit, static_argnames=("fitter", "disagreement", "chunk", "penalty_members", "normalised")
)
def uncertainties(
    fitter: Fitter,
    world: WorldModelParams,
    observations: jax.Array,
    actions: jax.Array,
    disagreement: Disagreement = spread_of_means,
    chunk: int = 1024,
    *,
    penalty_members: Consulted = "elites",
    normalised: bool = True,
) -> jax.Array:
    """The members' disagreement on `[n, S]`, `[n, A]` rows: `[n]`.

    In the units of the targets, or (not `normalised`) in those of the data; of the elites, or of
    all members. `chunk` rows at a time, so that memory does not grow with the dataset.
    """
    rows = len(observations)
    chunk = min(chunk, rows)
    count = -(-rows // chunk)
    index = jnp.minimum(jnp.arange(count * chunk), rows - 1).reshape(count, chunk)

    def of_rows(chosen: jax.Array) -> jax.Array:
        rows = observations[chosen], actions[chosen]
        prediction = predict(fitter, world, *rows, penalty_members)
        units = world.targets.std if normalised else 1.0
        return disagreement(prediction.mean / units, prediction.std / units)

    return jax.lax.map(of_rows, index).reshape(-1)[:rows]


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
