"""World models as a method rolls them: `WorldModelParams` and the `Dynamics` over them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.ensemble import apply_assigned, spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.rollouts import Model, StepResult, step_result
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..environments.base import Environment, true_model
from .endings import Ending, TerminationConfig, ended

if TYPE_CHECKING:
    pass

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


@functools.lru_cache(maxsize=32)
def true_dynamics(env: Environment, *, clipped: bool = False) -> Dynamics:
    """The simulator in the place of a learned model: one member, no uncertainty, `params` unused.

    Args:
        env: the simulator.
        clipped: see `true_model`.

    Raises:
        ConfigError: the observation of `env` does not determine its state.
    """
    model = true_model(env, clipped=clipped)

    def sample_elites(
        params: PyTree, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        following, out = model.step(params, key, observations, actions, None)
        return EliteSamples(out.reward[None], following[None], out.terminated[None])

    return Dynamics(model, sample_elites, 1)
