"""Whether a simulator and a dataset have the same columns and episode lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import blocks

from .data.bounds import is_unit, to_unit
from .data.catalogue import CATALOGUE
from .data.checks import ACTION_TOLERANCE
from .data.inspection import bounds_text
from .data.transitions import Dataset, episodes
from .environments.absent import NONE, no_simulator
from .environments.base import Environment, own_bounds, with_columns
from .environments.gymnasium_ import NoTimeLimitError, from_gymnasium
from .environments.offset import shifted
from .environments.registry import ROBOTICS, absent_task, is_known, make, make_named
from .environments.terminations import never
from .start_states import STARTS, compare_starts


def longest_episode(dataset: Dataset) -> int:
    """The time limit that the data declare, or D4RL, else the steps of their longest episode."""
    stored = dataset.attributes.get("max_episode_steps")
    if stored is None and dataset.name in CATALOGUE:
        return CATALOGUE[dataset.name].max_episode_steps
    return stored if isinstance(stored, int) else int(lengths_of(dataset).max())


def lengths_of(dataset: Dataset) -> np.ndarray:
    """Steps of every episode `[E]`, a last one without a known successor included."""
    parts = episodes(dataset.transitions)
    dropped = dataset.attributes.get("successors") == "shifted"
    return parts.lengths + (parts.truncated if dropped else 0)


def limited(make: Callable[[Any], Environment], environment: Any, steps: int) -> Environment:
    """An environment; where it has no time limit, one of `steps`, which its notes say."""
    try:
        return make(environment)
    except NoTimeLimitError:
        if isinstance(environment, str):
            joined = "&" if "?" in environment else "?"
            env = make(f"{environment}{joined}max_episode_steps={steps}")
        else:
            env = from_gymnasium(environment, max_episode_steps=steps)
        note = f"{env.name} has no time limit of its own: episodes end after {steps:,} steps, "
        return env._replace(notes=(*env.notes, note + "the longest of the data."))


def same_columns(dataset: Dataset, env: Environment) -> Environment:
    """The environment with its columns in the order of the data's and less their offset.

    By name where both name them; else start states are compared column by column.
    """
    source = dataset.source if dataset.source.exists() else dataset.name
    named = bool(dataset.columns and env.columns)
    if named:
        if set(dataset.columns) != set(env.columns):
            missing = sorted(set(dataset.columns) ^ set(env.columns))[:6]
            expected = f"the columns of {env.name}"
            found = f"columns that only one of the two has: {', '.join(missing)}"
            raise DataError(source, "observations", found, expected)
        env = with_columns(env, dataset.columns)
    if dataset.offset is not None:
        env = shifted(env, dataset.offset)
    if env.starts is not None and not named:
        compare_starts(dataset, env, *env.starts(STARTS))
    return env


def unlike(dataset: Dataset, env: Environment, played: np.ndarray | None = None) -> str:
    """Why returns of the data and of policies in `env` are not of the same kind; "" where they are.

    Compared are the time limits, the longest episode and whether episodes can terminate.

    Args:
        played: `[seeds]`, mean steps of the policy's episodes there.
    """
    rows = dataset.transitions
    lengths, parts = lengths_of(dataset), episodes(rows)
    stored, limit = dataset.attributes.get("max_episode_steps"), env.max_episode_steps
    theirs = stored if isinstance(stored, int) else _shared_length(lengths[parts.truncated])
    reasons = []
    if theirs is not None and theirs != limit:
        reasons.append(f"episodes of the data are cut after {theirs:,} steps")
    elif lengths.max() > limit:
        reasons.append(f"the longest episode of the data has {lengths.max():,} steps")
    elif not (parts.terminated | (lengths >= limit)).any():
        reasons.append(f"no episode of the data is whole, the longest has {lengths.max():,} steps")
    if reasons:
        reasons = [f"{reasons[0]}, those in {env.name} after {limit:,}"]
    if env.termination is never and parts.terminated.any():
        reasons.append(f"episodes of the data terminate, those in {env.name} do not")
    shorter = played is not None and bool((np.asarray(played) < limit).any())
    if not reasons and shorter and not parts.terminated.any() and (lengths[:-1] >= limit).all():
        least = float(np.nanmin(np.asarray(played)))
        found = f"episodes in {env.name} end before the limit (after {least:,.4g} steps, in the "
        reasons.append(f"{found}mean), all of the data last {limit:,}")
    return "; ".join(reasons)


def _shared_length(lengths: np.ndarray) -> int | None:
    """The length at which several episodes were cut and beyond which none was."""
    if not len(lengths) or (lengths == lengths.max()).sum() < 2:
        return None
    return int(lengths.max())


class HasSteps(Protocol):
    """A Gymnasium environment."""

    def step(self, action: Any, /) -> Any: ...


EnvironmentLike = str | Environment | HasSteps  # what `environments.make` takes


def is_simulator(env: Environment) -> bool:
    """Whether this is one that can be played in."""
    return env.name != NONE


def environment_of(dataset: Dataset, environment: EnvironmentLike | None = None) -> Environment:
    """The evaluation environment: the given one, else the one a dataset is from.

    Args:
        environment: argument of `make`, or "none" for no simulator. None takes what the dataset
            declares, or its name; where there is neither, no simulator.

    Returns:
        An environment that the dataset fits, with its columns in the data's order; without a
        simulator one that cannot be played in (`is_simulator`), with the dataset's sizes, bounds
        and longest episode.
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
    """Compare a dataset with the environment it is to be evaluated in, before compilation."""
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


def take_bounds(dataset: Dataset, low: Any, high: Any, of: str) -> Dataset:
    """Rescale actions that declare no bounds from those of an environment, if all lie inside.

    Args:
        low, high: `[A]` the bounds.

    Returns:
        The dataset with these bounds; as it was where it has some, or an action lies outside.
    """
    undeclared = dataset.action_low is None and "format" in dataset.attributes
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    if not undeclared or dataset.rows_file is not None:
        return dataset
    actions = np.asarray(dataset.transitions.actions)
    if actions.shape[1] != len(low):
        return dataset
    room = ACTION_TOLERANCE * (high - low)
    if not ((actions >= low - room) & (actions <= high + room)).all():
        return dataset
    unit = to_unit(dataset.name, "actions", actions, low, high)
    return replace(
        dataset,
        transitions=dataset.transitions._replace(actions=unit),
        action_low=low,
        action_high=high,
        attributes={**dataset.attributes, "bounds_from": of},
    )
