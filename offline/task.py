"""A dataset and its environment: whether the two fit, how episodes end, what was earned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError, DivergenceError
from jaxrl_rollouts.feeds import blocks
from jaxrl_rollouts.record.context import RunContext

from .behaviours.made import load_dataset
from .data import Dataset, episode_returns, episodes
from .data.bounds import is_unit, take_bounds
from .data.checks import ACTION_TOLERANCE
from .data.inspection import bounds_text
from .data.odd import extremes, odd_changes, rows_in_file
from .environments import Environment, make
from .environments.absent import NONE, no_simulator
from .environments.base import own_bounds
from .environments.registry import is_known, make_named
from .environments.robotics import ROBOTICS, absent_task
from .environments.terminations import (
    Termination,
    WrongLayoutError,
    check_rule,
    goal_of,
    termination_function,
)
from .matching import limited, longest_episode, same_columns
from .worlds.endings import TerminationConfig

FEW = 0.1  # share of the rows up to which odd changes are reported before a training
WITHOUT_REWARDS = ("bc",)  # methods that read none


class HasSteps(Protocol):
    """A Gymnasium environment."""

    def step(self, action: Any, /) -> Any: ...


EnvironmentLike = str | Environment | HasSteps  # what `environments.make` takes


class Source(Protocol):
    """What a method learns from: a dataset and its environment, perhaps with world models."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def env(self) -> Environment: ...


class Task(NamedTuple):
    """A dataset and the environment it is from.

    Attributes:
        dataset: the rows.
        env: of the policy's evaluation; without a simulator it has the sizes only.
        synthetic: the rows that replaced the dataset's own, in a sentence; "" for none.
    """

    dataset: Dataset
    env: Environment
    synthetic: str = ""


class Endings(Protocol):
    """How imagined episodes end; part of a `WorldModelConfig`."""

    @property
    def termination(self) -> str: ...

    @property
    def ending(self) -> TerminationConfig: ...


def is_simulator(env: Environment) -> bool:
    """Whether this is one that can be played in."""
    return env.name != NONE


def environment_of(dataset: Dataset, environment: EnvironmentLike | None = None) -> Environment:
    """Where the policy is played: the environment asked for, else the one a dataset is from.

    Args:
        dataset: the rows.
        environment: what `make` takes, or "none" for no simulator. None takes what the dataset
            says, or its name; where neither says anything there is no simulator.

    Returns:
        An environment that the dataset fits, with its columns in the data's order; without a
        simulator one that cannot be played in (`is_simulator`), with the dataset's sizes, bounds
        and longest episode.

    Raises:
        ConfigError: there is no such environment.
        DataError: see `check_fits` and `same_columns`.
        SimulatorError: the environment's first reset or step fails.
    """
    env = _named(dataset, environment)
    check_fits(dataset, env)
    return same_columns(dataset, env)


def matched(
    dataset: Dataset, environment: EnvironmentLike | None = None
) -> tuple[Dataset, Environment]:
    """A dataset and its `environment_of`, whose action bounds it takes where it declares none."""
    env = _named(dataset, environment)
    if is_simulator(env) and env.action_low is not None:
        dataset = take_bounds(dataset, env.action_low, env.action_high, env.name)
    check_fits(dataset, env)
    return dataset, same_columns(dataset, env)


def _named(dataset: Dataset, environment: EnvironmentLike | None) -> Environment:
    """`environment_of` before it is compared with the data."""
    if isinstance(environment, str) and environment == NONE:
        return _without(dataset)
    named = environment is not None and environment != ""
    if not named:
        if dataset.environment == NONE or not (dataset.environment or is_known(dataset.name)):
            return _without(dataset)
        environment = dataset.environment or dataset.name
        missing = absent_task(environment)
        if missing:
            return _without(dataset)._replace(notes=(missing,))
        environment = ROBOTICS.get(environment, environment)
    try:
        return limited(make if named else make_named, environment, longest_episode(dataset))
    except ConfigError as error:
        if named or dataset.environment is None:
            raise
        hint = "name another (package.module:factory is one way), or none to train without"
        raise ConfigError(
            f"environment of {dataset.name}", dataset.environment, error.expected, hint
        ) from error


def _without(dataset: Dataset) -> Environment:
    rows, limit = dataset.transitions, longest_episode(dataset)
    low, high = dataset.action_low, dataset.action_high
    bounds = {} if low is None or high is None else own_bounds(low, high)
    sizes = rows.observations.shape[1], rows.actions.shape[1], limit
    return no_simulator(*sizes, columns=dataset.columns, **bounds)


def check_fits(dataset: Dataset, env: Environment) -> None:
    """Compare a dataset with the environment it is to be evaluated in, before anything is compiled.

    Raises:
        DataError: other numbers of observation or action entries, other declared bounds, none
            declared where the environment's are not [-1, 1], or actions outside [-1, 1].
    """
    rows = dataset.transitions
    source = dataset.source if dataset.source.exists() else dataset.name
    for key, values, expected in (
        ("observations", rows.observations, env.observation_size),
        ("actions", rows.actions, env.action_size),
    ):
        if values.shape[1] != expected:
            where = f"{expected}, as {env.name} has them"
            hint = "name the environment they are from, or none"
            raise DataError(source, key, f"{values.shape[1]} columns", where, hint)
    largest = max(float(np.abs(rows.actions[part]).max()) for part in blocks(len(rows.actions)))
    if largest > 1 + ACTION_TOLERANCE:
        hint = "declare their bounds (action_low, --action-low), which rescales them; or clip them"
        raise DataError(source, "actions", f"magnitude {largest:.6g}", "within [-1, 1]", hint)
    _check_bounds(dataset, env, str(source))


def _check_bounds(dataset: Dataset, env: Environment, source: str) -> None:
    count = env.action_size
    low, high = env.action_low or (-1.0,) * count, env.action_high or (1.0,) * count
    shown = ", ".join(dict.fromkeys(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True)))
    found_low, found_high = dataset.action_low, dataset.action_high
    if found_low is None or found_high is None:
        # Rows that no reader touched keep the contract of `Transitions`; a file might not.
        if env.action_low is not None and "format" in dataset.attributes:
            expected = f"action_low and action_high, since {env.name} has {shown}"
            hint = "declare those (action_low, --action-low), or -1 and 1 for rescaled actions"
            raise DataError(source, "actions", "no declared bounds", expected, hint)
    elif not is_unit(found_low, found_high):
        same = np.allclose([found_low, found_high], [low, high], rtol=1e-4)
        if not same:
            expected = f"{shown}, as {env.name} has them"
            raise DataError(source, "action bounds", bounds_text(dataset), expected)


def check_rewards(dataset: Dataset, method: str) -> None:
    """`DataError` where a method needs rewards and the dataset has none (OGBench's plain sets)."""
    if dataset.attributes.get("rewards") == "none" and method not in WITHOUT_REWARDS:
        expected = f"rewards for {method} to learn from"
        hint = "take a single-task dataset, or give arrays with rewards to from_arrays"
        raise DataError(dataset.name, "rewards", "none in the file", expected, hint)


def verify_checksum(dataset: Dataset, context: RunContext | None) -> None:
    """`DataError` where a run that goes on would learn from other data than it began with.

    What is made on the spot has no file that could change.
    """
    if context and dataset.sha256:
        context.folder.hold(dataset.name, sha256=dataset.sha256)


def termination_of(
    dataset: Dataset, env: Environment, config: Endings
) -> Termination | TerminationConfig:
    """How model rollouts end: the known rule, or where there is none that of a learned one.

    Raises:
        ConfigError: the family's rule is known, and not for the dataset's number of columns.
        DataError: the rule ends rows that go on in the data (`check_rule`).
    """
    if config.termination == "learned":
        return config.ending
    rule, where, rows = env.termination, env.name, dataset.transitions
    if rule is None and not is_simulator(env) and dataset.environment is not None:
        where = dataset.environment
        if (rule := goal_of(where, rows)) is not None:
            return rule
        try:
            rule = termination_function(where, rows.observations.shape[1])
        except WrongLayoutError:
            raise
        except ConfigError:
            return config.ending
    if rule is None:
        return config.ending
    check_rule(rule, where, dataset.name, dataset.with_successors)
    return rule


def line_of(dataset: Dataset, env: Environment | None) -> str:
    """What a dataset is, and where it is played, for people."""
    where = f", played in {env.name}" if env is not None and is_simulator(env) else ""
    return f"{dataset.name}: {len(dataset.transitions.rewards):,} transitions{where}"


def warnings_of(
    dataset: Dataset, env: Environment, config: Endings | None, *, imagines: bool
) -> list[str]:
    """What a user should know of a training before its numbers, a sentence each.

    Args:
        dataset, env: of the training.
        config: of its world models; None where it has none.
        imagines: whether it rolls a learned model, whose episodes have to end.
    """
    facts = [f"{one} Look at it before you believe numbers." for one in extreme_facts(dataset)]
    facts += odd_facts(dataset)
    if read_as := dataset.attributes.get("read_as"):
        facts.append(str(read_as))
    if ends := dataset.attributes.get("ends_alone"):
        facts.append(
            f"{dataset.name}: what followed the {int(ends)} rows in which an episode ended is not "
            "in the data: values learn these ends, models of what comes next do not see them, and "
            "no rule of ends can be learned. Give next_observations."
        )
    if (file := dataset.rows_file) is not None:
        size = f"{file.stat().st_size / 1e9:,.3g} GB"
        facts.append(f"Rows stay on the disk and are read while training ({size}: {file}).")
    if text := bounds_text(dataset):
        low, high = np.asarray(dataset.action_low), np.asarray(dataset.action_high)
        if not is_unit(low, high):
            of = dataset.attributes.get("bounds_from")
            why = "the declared " if of is None else f"the bounds of {of}, as none are declared: "
            facts.append(f"Actions were rescaled to [-1, 1] from {why}{text}.")
    if (
        imagines
        and config is not None
        and isinstance(termination_of(dataset, env, config), TerminationConfig)
    ):
        why = "" if config.termination == "learned" else " (no rule is known)"
        facts.append(f"When imagined episodes end is learned from the dataset's own ends{why}.")
    facts += env.notes
    if not is_simulator(env):
        facts.append(
            "Not evaluated: trained without a simulator. environment= (--environment) names one to "
            "play in."
        )
    return facts


def extreme_facts(dataset: Dataset) -> list[str]:
    """A sentence for each column of a dataset with numbers that are no measurement."""
    return [
        f"{dataset.name}: {one.array} has {one.count:,} "
        f"{'numbers that stand for missing ones' if one.hint else 'extreme number(s)'}, first in "
        f"row {one.rows[0]}{' (' + one.hint + ')' if one.hint else ''}."
        for one in extremes(dataset.transitions)
    ]


def odd_facts(dataset: Dataset) -> list[str]:
    """A sentence for each kind of change that is unlike the others, where these rows are few."""
    if dataset.rows_file is not None:  # they would be read whole
        return []
    return [
        f"{dataset.name}: {one.array}: {one.kind}: {one.count:,} row(s), first "
        f"{rows_in_file(dataset, one.rows)[0]}"
        f"{'; ' + one.hint if one.hint else ''}."
        for one in odd_changes(dataset)
        if one.count <= FEW * len(dataset)
    ]


@contextmanager
def naming_extremes(dataset: Dataset) -> Iterator[None]:
    """Say with a divergence which columns of the data are extreme: they may be why."""
    try:
        yield
    except DivergenceError as error:
        extreme = " ".join(extreme_facts(dataset))
        if not extreme:
            raise
        raise DivergenceError(f"{error}; {extreme}") from error


def task_of(name: str, seed: int = 0, context: RunContext | None = None) -> Task:
    """A dataset by name with its environment.

    Raises:
        ConfigError, DataError: see `load_dataset`, `environment_of` and `verify_checksum`.
    """
    dataset = load_dataset(name, seed)
    verify_checksum(dataset, context)
    return Task(dataset, environment_of(dataset))


def behaviour(source: Source, discount: float = 1.0) -> np.ndarray:
    """Returns of a dataset's whole episodes, `[episodes]`, without those that were cut short.

    They are counted over as many steps as an episode of the environment has.
    """
    rows = source.dataset.transitions
    parts = episodes(rows)
    whole = parts.terminated | (parts.lengths >= source.env.max_episode_steps)
    # A set without one whole episode (a short prefix) has only cut ones to compare with.
    returns = episode_returns(rows, discount, source.env.max_episode_steps)
    return returns[whole if whole.any() else slice(None)]


def starts_of(dataset: Dataset, most: int = 256) -> np.ndarray:
    """First observations of a dataset's first episodes, `[B, S]`."""
    rows = dataset.transitions
    return np.asarray(rows.observations[episodes(rows).starts][:most])


def slug(name: str) -> str:
    """A dataset name as part of a folder or picture name."""
    return "".join(c if c.isalnum() or c == "-" else "-" for c in name.split("/")[-1])


def keys_of(seed: int) -> tuple[jax.Array, jax.Array]:
    """Keys of the training and of the evaluations; the same for every method."""
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    return train_key, play_key
