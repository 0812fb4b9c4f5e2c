"""Policies in world models of the data: an ensemble, half of it fitted to each half of the log.

Clones of a part of the log are played in the members that never saw that part; what was trained
elsewhere is played in all. No member is shared with a training.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollouts import Members, Model, rollout
from jaxrl_rollouts.trees import PyTree

from ..data import Dataset, Transitions, episodes, take_rows, to_device
from ..environments import Environment
from ..evaluation import EARLY_EXIT, Policy
from ..recurrent.histories import Remembered, remember
from ..task import slug, termination_of
from ..worlds.dynamics import Dynamics, World, learned_dynamics, uncertainties
from ..worlds.endings import TerminationConfig, fit_endings
from ..worlds.fit import WorldModelConfig, fit_worlds
from ..worlds.open_loop import open_loop, unchanged, windows
from ..worlds.saved import load_worlds
from ..worlds.written import FILE, save_worlds
from .policies import Entry

REST = 0.01  # of a reward in the first step, that one in the last still counts
LOOKED_AT = 2000  # steps of a policy whose uncertainty is measured
WINDOW = 50  # steps over which models are compared with the data


class Models(NamedTuple):
    """World models that policies are valued in.

    Attributes:
        world: one `World`; member `i` has seen the half `i % 2` of the episodes alone.
        dynamics: of all members, and of half of them.
        fitter: of their networks.
        limit: the largest disagreement of the members on the data.
        error, unchanged: root mean square error along logged actions of episodes that a half has
            not seen, in deviations, median over windows; and that of "nothing changes".
        horizon: steps of the longest episode.
    """

    world: World
    dynamics: tuple[Dynamics, Dynamics]
    fitter: Any
    limit: float
    error: float
    unchanged: float
    horizon: int

    def half(self, number: int) -> World:
        """The members that have seen one half."""
        return self.world._replace(elites=jax.tree.map(lambda x: x[number::2], self.world.elites))

    @property
    def wrong(self) -> str:
        """Why nothing that they say counts; "" where they are better than nothing."""
        if self.error < self.unchanged:
            return ""
        shown = f"{self.error:.3g} deviations against {self.unchanged:.3g}"
        return f"models err more than 'nothing changes' on episodes they have not seen ({shown})"


class Played(NamedTuple):
    """One policy in the models.

    Attributes:
        values: `[M, S]` discounted, of every member from every start.
        lost: `[T]` share of its steps beyond the models' limit, over time; NaN where no row was
            looked at.
    """

    values: np.ndarray
    lost: np.ndarray


def halves(count: int, parts: int) -> np.ndarray:
    """Which part each of `count` episodes is of, `[E]`; part `g` belongs to the half `g % 2`."""
    return np.arange(count) * parts // count


def rows_of(dataset: Dataset, of_episode: np.ndarray) -> np.ndarray:
    """What is given of episodes `[E]`, of the rows of `dataset.with_successors`."""
    rows = dataset.transitions
    every = np.repeat(of_episode, episodes(rows).lengths)
    if dataset.attributes.get("ends_alone"):
        return every[~np.asarray(rows.terminations, bool)]
    return every


def fit_models(
    dataset: Dataset,
    env: Environment,
    config: WorldModelConfig,
    half: np.ndarray,
    *,
    seed: int = 0,
    folder: Path | None = None,
    context: RunContext | None = None,
) -> Models:
    """Fit them, or read them from a folder where they were written before.

    Args:
        half: `[N]`, 0 or 1, of the rows of `dataset.with_successors`.
        folder: written where it holds none.

    Raises:
        ConfigError: a learner whose members are not all elites, or an odd number.
        DataError: a folder with models of other data.
    """
    if config.members % 2 or config.elites != config.members:
        found = f"{config.members} members, {config.elites} elites"
        raise ConfigError("models", found, "an even number, all of them elites: each sees a half")
    rule, rows = termination_of(dataset, env, config), dataset.with_successors
    ending = rule if isinstance(rule, TerminationConfig) else None
    if folder is not None and (folder / FILE).is_file():
        saved = load_worlds(folder, dataset)
        if saved.config != config.ensemble:
            expected = "models of these settings"
            raise ConfigError("models", str(folder), expected, "name another folder")
        fitter, worlds = saved.model.fitter, saved.worlds
    else:
        key, end_key = jax.random.split(jax.random.key(seed))
        name = slug(dataset.name)
        more: dict[str, Any] = {"seeds": 1, "context": context}
        stage = f"{name}-choose-models"
        asked: Any = {"targets": config.targets, "groups": half, "stage": stage}
        fitted = fit_worlds(config.ensemble, rows, key, **asked, **more)
        fitter, worlds = fitted.model.fitter, fitted.worlds
        if ending is not None:
            more["stage"] = f"{name}-choose-endings"
            worlds = worlds._replace(ending=fit_endings(ending, rows, end_key, **more)[0])
        if folder is not None:
            save_worlds(folder, worlds, dataset, config.ensemble, config.targets, ending=ending)
    count = config.members
    both = (learned_dynamics(fitter, n, termination=rule) for n in (count, count // 2))
    world = jax.tree.map(lambda x: x[0], worlds)
    on_device = to_device(rows)
    seen = uncertainties(fitter, world, on_device.observations, on_device.actions)
    longest = int(episodes(dataset.transitions).lengths.max())
    found = Models(world, tuple(both), fitter, float(seen.max()), 0.0, 0.0, longest)  # type: ignore[arg-type]
    error, still = _errors(found, rows, half)
    return found._replace(error=error, unchanged=still)


def _errors(models: Models, rows: Transitions, half: np.ndarray) -> tuple[float, float]:
    """`Models.error` and `Models.unchanged`, the mean over both halves."""
    found = []
    for number in (0, 1):
        unseen = take_rows(rows, np.flatnonzero(half != number))
        length = min(WINDOW, int(episodes(unseen).lengths.max()))
        logged, world = windows(unseen, length, 200), models.half(number)
        error = open_loop(models.dynamics[1], world, logged, jax.random.key(number)).error
        still = unchanged(logged, world.inputs.std[: rows.observations.shape[1]])
        both = np.asarray(error), still
        found.append([np.median(np.sqrt(np.square(x).mean(0))) for x in both])
    error, still = np.mean(found, 0)
    return float(error), float(still)


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
    world: World,
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
    beyond = ~(uncertain <= models.limit)  # of what is not finite as well
    totals = np.bincount(at[0], minlength=horizon).astype(np.float64)
    with np.errstate(invalid="ignore"):
        lost = np.bincount(at[0], beyond, minlength=horizon) / np.where(totals, totals, np.nan)
    shaped = np.asarray(values, np.float64).reshape(len(start), members).T
    return Played(shaped, lost)


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
