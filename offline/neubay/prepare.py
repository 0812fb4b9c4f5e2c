"""From a dataset and a posterior to what NEUBAY is trained with."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.fitting import Fitter

from ..agent import Learner
from ..data import Transitions, episodes
from ..environments import Environment
from ..environments.terminations import Termination
from ..recurrent.histories import log_histories
from ..worlds.dynamics import Dynamics, World, learned_dynamics
from ..worlds.endings import TerminationConfig
from ..worlds.trust import Trust, threshold
from .config import NeubayConfig, Sizes, ring_bytes
from .neubay import NeubayData, make_neubay


class Prepared(NamedTuple):
    """What `train_learner` is given for NEUBAY.

    Attributes:
        learner: its functions.
        data: what seeds learn from.
        per_seed: which parts of the data are each seed's own.
        sizes: of dataset and environment.
    """

    learner: Learner
    data: NeubayData
    per_seed: NeubayData
    sizes: Sizes


def check_sizes(transitions: Transitions, worlds: World, env: Environment, source: str) -> None:
    """Dataset, worlds and environment agree on states and actions.

    Raises:
        DataError: they do not; rollouts would start from states of another space.
    """
    state, action = transitions.observations.shape[1], transitions.actions.shape[1]
    for key, found, expected in (
        ("observations", state, env.observation_size),
        ("actions", action, env.action_size),
    ):
        if found != expected:
            where = f"{expected} numbers a row, as {env.name} has them"
            raise DataError(source, key, found, where)
    inputs, outputs = worlds.inputs.mean.shape[-1], worlds.targets.mean.shape[-1]
    if (inputs, outputs) != (state + action, state + 1):
        raise DataError(
            source,
            "observations, actions",
            (state, action),
            f"those the worlds were fitted to ({outputs - 1} and {inputs - outputs + 1} numbers)",
            "start states of another space mean nothing to a model",
        )


def check_updates(
    config: NeubayConfig, transitions: Transitions, limit: int, source: str = "dataset"
) -> None:
    """A collection brings an iteration's gradient steps; asked before worlds are fitted.

    Args:
        config: agent and rollouts.
        transitions: the dataset.
        limit: steps that longer episodes are cut at.
        source: the dataset's name, for messages.

    Raises:
        ConfigError: an iteration takes more of them.
    """
    lengths = np.minimum(episodes(transitions).lengths, limit)
    # The moments 0 to n of an episode of n steps are equally likely to be gone on from.
    prefix = (lengths * (lengths + 1) / 2).sum() / (lengths + 1).sum()
    # A collection brings at least its real prefixes, one imagined step and the last look.
    sure = max(config.rollouts * (prefix + 1.0) * config.utd_ratio, 1.0)
    if config.updates_per_iteration > sure:
        raise ConfigError(
            "updates_per_iteration",
            config.updates_per_iteration,
            f"at most {int(sure)}, the gradient steps that {config.rollouts} episodes "
            f"of {source} ask for on average whatever is imagined",
            "raise rollouts or utd_ratio",
        )


def prepare(
    config: NeubayConfig,
    transitions: Transitions,
    fitter: Fitter,
    worlds: World,
    trust: Trust,
    env: Environment,
    termination: Termination | TerminationConfig,
    *,
    seeds: int,
    groups: np.ndarray | None = None,
    source: str = "dataset",
) -> Prepared:
    """Build the learner and put its data on the device.

    Args:
        config: agent and rollouts.
        transitions: the dataset, on the host.
        fitter: of the `WorldModel`.
        worlds: leaves `[W, ...]`; seed `k` is trained in world `k % W`.
        trust: of each world, leaves `[W, ...]`; `load_worlds` returns it with its worlds and
            refuses those of another dataset.
        env: for its time limit and sizes.
        termination: the known rule (`terminations.termination_function` refuses unknown ones), or
            the configuration of the classifier in `World.ending`.
        seeds: how many will be trained. A single world is shared by all of them.
        groups: `[n]`, which machine each row is of, as `fit_worlds` was given them: an episode is
            then continued in a member that was fitted to its machine.
        source: the dataset's name, for messages.

    Raises:
        ConfigError: a setting is out of range, the level was not measured, the ring is too small,
            or an iteration takes more gradient steps than a collection brings.
        DataError: dataset, worlds and environment do not fit together.
    """
    check_sizes(transitions, worlds, env, source)
    count, members = jax.tree.leaves(worlds.elites)[0].shape[:2]
    if trust.mean.shape != (count,):
        raise ConfigError("trust", trust.mean.shape, f"one for each of the {count} worlds")
    if members < 2:
        expected = "at least 2: rollouts end where members disagree"
        raise ConfigError("ensemble.elites", members, expected)
    logged = log_histories(transitions, env.max_episode_steps, groups=groups, source=source)
    if logged.groups is not None and members % (machines := logged.groups.counts.shape[0]):
        expected = f"a multiple of the {machines} machines, as fit_worlds(groups=...) makes them"
        raise ConfigError("ensemble.elites", members, expected)
    sizes = Sizes(env.observation_size, env.action_size, env.max_episode_steps, logged.longest)
    check_updates(config, transitions, env.max_episode_steps, source)
    dynamics = trusted_dynamics(fitter, members, termination)
    limited = worlds._replace(limit=threshold(trust, config.level), others=None)
    single = count == 1
    own = jnp.int32(0) if single else world_number(jnp.arange(seeds, dtype=jnp.int32), count)
    world, penalty = jax.tree.map(lambda x: x[own], (limited, config.penalty / trust.mean))
    return Prepared(
        make_neubay(config, dynamics, sizes),
        NeubayData(logged, world, penalty),
        NeubayData._make((False, not single, not single)),
        sizes,
    )


def world_number(seed: Any, count: int) -> Any:
    """Which of `count` worlds a seed, or an array of them, is trained in: each in turn."""
    return seed % count


def trusted_dynamics(
    fitter: Fitter, members: int, termination: Termination | TerminationConfig
) -> Dynamics:
    """Dynamics that report the spread of the members' means; equal arguments give the same."""
    return learned_dynamics(
        fitter, members, termination=termination, disagreement=spread_of_means, normalised=True
    )


def ring_text(config: NeubayConfig, sizes: Sizes, seeds: int) -> str:
    """What the token rings of all seeds take, for people, before it is taken."""
    room = seeds * ring_bytes(config, sizes)
    return (
        f"Token rings: {config.capacity:,} tokens per seed, {room / 1e6:,.0f} MB for {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}."
    )


def save_every(config: NeubayConfig, sizes: Sizes, seeds: int) -> float:
    """Seconds between checkpoints: they hold the rings, and the larger those are, the rarer."""
    return max(60.0, seeds * ring_bytes(config, sizes) / 1e7)
