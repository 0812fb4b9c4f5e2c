"""Policies played in world models: values from every start in every member."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.rollouts import Members, Model, rollout
from jaxrl_rollouts.trees import PyTree

from ..evaluation import EARLY_EXIT, Policy
from ..recurrent.histories import Remembered, remember
from ..worlds.dynamics import Dynamics, WorldModelParams, uncertainties
from .models import Models
from .policies import Entry

REST = 0.01  # of a reward in the first step, that one in the last still counts
LOOKED_AT = 2000  # steps of a policy whose uncertainty is measured


class Played(NamedTuple):
    """One policy in the models.

    Attributes:
        values: `[M, S]` discounted, of every member from every start.
        beyond: `[T]` share of its steps beyond the models' limit, over time; NaN where no row was
            looked at.
    """

    values: np.ndarray
    beyond: np.ndarray


def possible(rewards: Any, discount: float, horizon: int) -> tuple[float, float]:
    """Least and greatest discounted sum of rewards a range beyond those of the data."""
    rewards = np.asarray(rewards, np.float64)
    low, high = rewards.min(), rewards.max()
    room = high - low or max(abs(high), 1.0)
    total = float((discount ** np.arange(horizon)).sum())
    return (min(low, 0.0) - room) * total, (max(high, 0.0) + room) * total


def steps_of(discount: float, limit: int) -> int:
    """Steps until a reward counts for a hundredth, at most a time limit's."""
    if discount <= 0:
        return 1
    far = math.ceil(math.log(REST) / math.log(discount)) if discount < 1 else limit
    return min(far, limit)


def play_all(
    models: Models,
    entry: Entry,
    starts: list[np.ndarray],
    key: jax.Array,
    discount: float,
    *,
    half: np.ndarray | None = None,
) -> list[Played]:
    """Play every policy of a training.

    Args:
        starts: `[S, D]` of each policy.
        half: `[K]`, the half whose members a policy is played in; None: all members.
    """
    found = []
    for number, start in enumerate(starts):
        small = half is not None
        world = models.half(int(half[number])) if half is not None else models.world
        dynamics = models.dynamics[small]
        actor = jax.tree.map(lambda x, k=number: x[k], entry.actors)
        play_key = jax.random.fold_in(key, number)
        found.append(play(models, dynamics, world, entry, actor, start, play_key, discount))
    return found


def play(
    models: Models,
    dynamics: Dynamics,
    world: WorldModelParams,
    entry: Entry,
    actor: PyTree,
    start: np.ndarray,
    key: jax.Array,
    discount: float,
) -> Played:
    """Play one policy from `[S, D]` starts in every member of a world."""
    members, horizon = dynamics.members, steps_of(discount, models.horizon)
    rows = jnp.asarray(np.repeat(start, members, 0))
    values, seen, acted, valid = values_in(
        dynamics.model,
        world,
        entry.agent.policy,
        actor,
        entry.agent.memory(len(rows)),
        rows,
        key,
        members=members,
        discount=discount,
        horizon=horizon,
        shows=acts_of(models, rows) if entry.remembers else 0,
    )
    size, alive = start.shape[1], np.asarray(valid)
    times, columns = np.nonzero(alive)
    chosen = np.random.default_rng(0).permutation(len(times))[:LOOKED_AT]
    at = times[chosen], columns[chosen]
    looked = jnp.asarray(np.asarray(seen)[..., :size][at]), jnp.asarray(np.asarray(acted)[at])
    uncertain = np.asarray(uncertainties(models.fitter, models.world, *looked))
    far = ~(uncertain <= models.limit)  # of what is not finite as well
    totals = np.bincount(at[0], minlength=horizon).astype(np.float64)
    with np.errstate(invalid="ignore"):
        beyond = np.bincount(at[0], far, minlength=horizon) / np.where(totals, totals, np.nan)
    shaped = np.asarray(values, np.float64).reshape(len(start), members).T
    return Played(shaped, beyond)


def acts_of(models: Models, rows: jax.Array) -> int:
    """Entries of an action."""
    return models.world.inputs.mean.shape[0] - rows.shape[1]


@functools.lru_cache(maxsize=16)
def _remembering(model: Model) -> Model:
    return remember(model)


@functools.partial(
    jax.jit, static_argnames=("model", "policy", "members", "discount", "horizon", "shows")
)
def values_in(
    model: Model,
    world: Any,
    policy: Policy,
    actor: PyTree,
    memory: PyTree,
    start: jax.Array,
    key: jax.Array,
    *,
    members: int,
    discount: float,
    horizon: int,
    shows: int = 0,
) -> tuple[jax.Array, ...]:
    """`sum_t discount^t r_t` over `horizon` steps; row `i` is played in member `i % members`.

    Args:
        shows: entries of an action, of a policy that observes its last action and reward; else 0.

    Returns:
        Values `[B]`; of every step observations `[T, B, D]`, actions `[T, B, A]` and whether it
        was played, `[T, B]`.
    """
    begin: Any = start
    if shows:
        nothing = jnp.zeros((len(start), shows)), jnp.zeros((len(start),))
        model = _remembering(model)
        begin = Remembered(start, *nothing, jnp.zeros((len(start),), jnp.int32))
    played = rollout(
        model,
        world,
        begin,
        key,
        horizon=horizon,
        policy=policy,
        policy_params=actor,
        memory=memory,
        members=Members(jnp.arange(members), per="trajectory", shuffle=False),
        early_exit=EARLY_EXIT,
        record=lambda step: (step.rewards, step.observations, step.actions),
    )
    rewards, seen, acted = played.steps
    weights = discount ** jnp.arange(horizon, dtype=jnp.float32)
    return weights @ rewards, seen, acted, played.valid
