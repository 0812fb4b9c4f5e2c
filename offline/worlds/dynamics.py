"""A fitted ensemble ready to be rolled: a `World` of parameters and the `Dynamics` over it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.ensemble import apply_assigned
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.rollouts import Model, outcome
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from .endings import Ending, TerminationConfig, ended

Termination = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


Reward = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


Disagreement = Callable[[jax.Array, jax.Array], jax.Array]

Consulted = Literal["elites", "members"]  # whose predictions an uncertainty is made of
Noise = Literal["own", "common", "none"]  # of the elites' samples of one row


class World(NamedTuple):
    """A fitted world model, ready to be rolled.

    Attributes:
        elites: parameters of the elite snapshots, leaves `[E, ...]`, best first.
        inputs: scaler of `[observation, action]`.
        targets: scaler of `[observation change, reward]` (identity unless asked for).
        ending: learned termination; None where the rule is known.
        limit: the uncertainty beyond which the model is lost (`trust.threshold`); None for none.
        others: parameters of the snapshots that are no elites, leaves `[N - E, ...]`. They are
            never rolled, only penalty_members about uncertainty; None where all are elites.
    """

    elites: PyTree
    inputs: Scaler
    targets: Scaler
    ending: Ending | None = None
    limit: jax.Array | None = None
    others: PyTree | None = None


class Imagined(NamedTuple):
    """One sampled transition per elite: rewards and terminations `[E, B]`, next `[E, B, S]`."""

    rewards: jax.Array
    next_observations: jax.Array
    terminations: jax.Array


class Dynamics(NamedTuple):
    """What a model-based agent needs of a transition model; `params` is a `World`, or what the
    functions agree on.

    Attributes:
        model: for `rollout`; its state is the observation, `[B, S]`.
        imagine: `(params, key, observations, actions) -> Imagined`, every elite's opinion.
        members: number of elites `E`; 1 for dynamics that are no ensemble.
        measured: `uncertainty` says how far the model can be trusted; False where it was not
            asked for and is zero throughout.
        predict: `(params, observations, actions) -> Gaussian`, every elite's normal over change and
            reward, `[E, B, S + 1]`; None of dynamics that have no density.
    """

    model: Model
    imagine: Callable[[PyTree, jax.Array, jax.Array, jax.Array], Imagined]
    members: int
    measured: bool = True
    predict: Callable[..., Gaussian] | None = None


def predict(
    fitter: Fitter,
    world: World,
    observations: jax.Array,
    actions: jax.Array,
    penalty_members: Consulted = "elites",
) -> Gaussian:
    """Every elite's normal over `[change, reward]` in data units, `[E, B, S + 1]`; or every
    member's, `[N, B, S + 1]`, elites first."""
    params = world.elites
    if penalty_members == "members" and world.others is not None:
        params = jax.tree.map(lambda *x: jnp.concatenate(x), params, world.others)
    x = world.inputs.normalise(jnp.concatenate([observations, actions], -1))
    return _in_data_units(world, *fitter.ensemble.apply_all(params, x))


def _in_data_units(world: World, mean: jax.Array, log_var: jax.Array) -> Gaussian:
    return Gaussian(world.targets.denormalise(mean), jnp.exp(0.5 * log_var) * world.targets.std)


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
        fitter: of the `WorldModel`.
        elites: number of elites in the worlds it will be given.
        termination: known function `(obs, action, next_obs) -> [B] bool`, or the configuration
            of the classifier in `World.ending`.
        reward: known function of the same arguments; None uses the ensemble's reward head.
        disagreement: reported as the step's uncertainty, from every elite's prediction. None
            reports zero and evaluates one elite per row only, which is `E` times less work.
        penalty_members: whose predictions `disagreement` is given: the elites', or all members'
            (MOPO).
        normalised: give `disagreement` predictions in the units of the targets (NEUBAY) and not
            in data units.
        noise: in `imagine`, does every elite draw its `own`, or is one draw `common` to them, so
            that they differ by their predictions only? `none` draws none, there and in the model:
            predictions are means.

    Raises:
        ConfigError: no termination.
    """
    if termination is None:
        raise ConfigError(
            "termination",
            None,
            "a known function or a TerminationConfig",
            "where episodes never end by themselves, terminations.never",
        )

    def split(
        world: World, sample: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> tuple:
        following = observations + sample[..., :-1]
        rewards = reward(observations, actions, following) if reward else sample[..., -1]
        if not isinstance(termination, TerminationConfig):
            return rewards, following, termination(observations, actions, following)
        if world.ending is None:
            raise ConfigError("world.ending", None, "a classifier fitted by fit_endings")
        done = ended(termination, world.ending, observations, actions, following)
        return rewards, following, done

    def step(
        world: World, key: jax.Array, observations: jax.Array, actions: jax.Array, member: jax.Array
    ) -> tuple:
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
        rewards, following, done = split(world, drawn, observations, actions)
        return following, outcome(batch, reward=rewards, terminated=done, uncertainty=uncertainty)

    def imagine(
        world: World, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> Imagined:
        every = predict(fitter, world, observations, actions)
        if noise == "none":
            sample = every.mean
        elif noise == "common":
            sample = jax.vmap(lambda one: one.sample(key))(every)
        else:
            sample = every.sample(key)
        of_member = jax.vmap(split, in_axes=(None, 0, None, None))
        return Imagined(*of_member(world, sample, observations, actions))

    density = functools.partial(predict, fitter)
    return Dynamics(Model(step), imagine, elites, disagreement is not None, density)
