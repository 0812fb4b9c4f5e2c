"""Arrays under D4RL's names, out of a file or out of memory, to a checked `Dataset`.

`observations` [N, S], `actions` [N, A], `rewards` [N], `terminals` [N], and where there are any
`timeouts` [N] and `next_observations` [N, S].
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.outside import find_offset, subtract

from .bounds import bounded
from .checks import as_actions, as_flags, as_floats, as_reals, check_limit, check_width, validate
from .keys import OPTIONAL, REQUIRED, check_present, naming, rename
from .odd import CUT, LISTED, WRONG
from .successors import Dropped, cut_by_length, is_frozen, mismatches, shift
from .transitions import Dataset, Transitions, file_sha256, take_rows

FILE_KEYS = {"terminations": "terminals", "truncations": "timeouts"}
PARTS = "observations of several parts are not supported here: concatenate them to one [N, S]"


class Assembled(NamedTuple):
    """Rows that keep the contract of `Transitions`.

    Attributes:
        rows: the transitions.
        kept: `[M]`, which rows of the arrays they are.
        action_low, action_high: as a `Dataset` has them.
        facts: `successors` and what was dropped, as `Dataset.attributes` has them.
        offset: offset of the observations, as a `Dataset` has it.
    """

    rows: Transitions
    kept: np.ndarray
    action_low: np.ndarray | None
    action_high: np.ndarray | None
    facts: dict[str, Any]
    offset: np.ndarray | None


def from_arrays(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminals: Any,
    timeouts: Any = None,
    next_observations: Any = None,
    *,
    action_low: Any = -1.0,
    action_high: Any = 1.0,
    environment: str | None = None,
    max_episode_steps: int | None = None,
    name: str = "arrays",
    clip: bool = False,
    cut_mismatches: bool = False,
) -> Dataset:
    """A dataset from numpy arrays: the same checks and rules as for files.

    Args:
        observations: `[N, S]`, of whole episodes one after the other, in order.
        actions: `[N, A]`, in the environment's own units.
        rewards: `[N]`.
        terminals: `[N]`, 0 or 1: the episode is over after this row; no value follows.
        timeouts: `[N]`, 0 or 1: the episode was cut after this row (a time limit).
        next_observations: `[N, S]`. Left out, the following row of the episode is taken; a row
            that was cut is dropped, and one that is an end is for values alone
            (`Dataset.with_successors`).
        action_low, action_high: bounds of the actions, a number or one for each entry; actions are
            rescaled from there to [-1, 1], and the dataset keeps the bounds.
        environment: name of their environment in `make`; None where there is none.
        max_episode_steps: time limit that cuts episodes, where there are no `timeouts`.
        name: label for reports.
        clip: clip actions to the bounds instead of refusing them.
        cut_mismatches: end episodes where a row's `next_observations` are not the row that follows.

    Raises:
        DataError: see `validate`; unknown episode ends; actions beyond their bounds.
        ConfigError: an argument out of range.
    """
    columns = (observations, actions, rewards, terminals, timeouts, next_observations)
    given = dict(zip((*REQUIRED, *OPTIONAL), columns, strict=True))
    return from_mapping(
        {key: value for key, value in given.items() if value is not None},
        Path("(arrays)"),
        name=name,
        environment=environment,
        max_episode_steps=max_episode_steps,
        action_low=action_low,
        action_high=action_high,
        clip=clip,
        cut_mismatches=cut_mismatches,
    )


def from_mapping(
    arrays: Mapping[str, Any],
    source: Path,
    *,
    name: str,
    environment: str | None = None,
    max_episode_steps: int | None = None,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    cut_mismatches: bool = False,
) -> Dataset:
    """`from_arrays` for a mapping, whose action bounds need not be declared; see `load`."""
    place = source if source.exists() else name
    limit = steps_limit(place, max_episode_steps, None)
    renamed, names = rename(place, arrays, limit)
    parts = {key: " (a dict)" * isinstance(value, Mapping) for key, value in arrays.items()}
    check_present(place, renamed, (key + of for key, of in parts.items()))
    with naming(names):
        done = assemble(
            place,
            renamed,
            limit=limit,
            action_low=action_low,
            action_high=action_high,
            action_limit=action_limit,
            clip=clip,
            cut_mismatches=cut_mismatches,
        )
    facts = {"format": "arrays", **done.facts, **names.facts}
    facts |= {} if limit is None else {"max_episode_steps": limit}
    return dataset_of(name, done, environment, source, facts)


def dataset_of(
    name: str, done: Assembled, environment: str | None, source: Path, facts: Mapping[str, Any]
) -> Dataset:
    """A `Dataset` of rows from `source`, or from memory."""
    return Dataset(
        name,
        done.rows,
        environment,
        source,
        identity(source, done.rows, done.offset),
        facts,
        action_low=done.action_low,
        action_high=done.action_high,
        offset=done.offset,
    )


def assemble(
    source: str | Path,
    arrays: Mapping[str, Any],
    *,
    limit: int | None = None,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    cut_mismatches: bool = False,
) -> Assembled:
    """Check arrays, cut them into episodes and give every row its successor.

    Args:
        action_low, action_high, action_limit, clip, cut_mismatches: see `load`.
    """
    check_limit(action_limit)
    check_present(source, arrays)
    for key in (*REQUIRED, *OPTIONAL):
        if isinstance(arrays.get(key), Mapping):
            raise DataError(source, key, "a dict", "one array", PARTS)
    given = as_reals(source, "observations", arrays["observations"], 2)
    offset = find_offset(source, "observations", given)
    observations = subtract(given, offset)
    actions = as_actions(source, "actions", arrays["actions"])
    rewards = as_floats(source, "rewards", arrays["rewards"], 1)
    terminations = as_flags(source, "terminals", arrays["terminals"])
    truncations = truncations_of(source, arrays, terminations, limit, cut=cut_mismatches)
    stored = "next_observations" in arrays
    following = observations
    if stored:
        after = as_reals(source, "next_observations", arrays["next_observations"], 2)
        check_width(source, "next_observations", after, given.shape[1])
        following = subtract(after, offset)
    actions, low, high = bounded(
        source, "actions", actions, action_low, action_high, limit=action_limit, clip=clip
    )
    rows = Transitions(observations, actions, rewards, following, terminations, truncations)
    validate(rows, source, action_limit=action_limit, keys=FILE_KEYS)
    if stored and cut_mismatches:
        rows, facts = _cut_mismatches(source, rows)
        return Assembled(rows, np.arange(len(rewards)), low, high, facts, offset)
    if stored:
        facts = stored_facts(source, rows)
        return Assembled(rows, np.arange(len(rewards)), low, high, facts, offset)
    shifted = shift(observations, terminations, truncations)
    check_kept(source, len(shifted.rows))
    rows = take_rows(rows, shifted.rows)._replace(
        next_observations=shifted.next_observations, truncations=shifted.truncations
    )
    facts = shifted_facts(terminations, shifted.dropped)
    return Assembled(rows, shifted.rows, low, high, facts, offset)


def shifted_facts(terminations: np.ndarray, dropped: Dropped) -> dict[str, Any]:
    """Facts on rows whose successors are the rows that follow."""
    facts = {f"dropped_{key}": n for key, n in dropped._asdict().items()}
    return {"successors": "shifted", "ends_alone": int(terminations.sum()), **facts}


def check_kept(source: str | Path, count: int) -> None:
    """`DataError` where no row has a successor."""
    if not count:
        expected = "a row whose successor is known"
        raise DataError(source, "next_observations", "no such key", expected)


def stored_facts(source: str | Path, rows: Transitions) -> dict[str, Any]:
    """Facts on checked rows whose successors were stored; `DataError` where they cannot be."""
    _check_moving(source, rows)
    return {"successors": "stored", "successor_mismatches": _count_mismatches(source, rows)}


def _cut_mismatches(source: str | Path, rows: Transitions) -> tuple[Transitions, dict[str, Any]]:
    """The rows with a cut at each row whose successor is not the row that follows; and facts."""
    _check_moving(source, rows)
    ending = np.asarray(rows.terminations | rows.truncations)
    wrong = mismatches(rows.observations, rows.next_observations, ending)
    truncations = rows.truncations.copy()
    truncations[wrong] = True
    facts = {"successors": "stored", "successor_mismatches": 0, "cut_mismatches": len(wrong)}
    return rows._replace(truncations=truncations), facts


def steps_limit(source: str | Path, argument: int | None, stored: Any) -> int | None:
    """The time limit an argument gives, else what the file has stored."""
    if argument is not None:
        if argument < 1:
            raise ConfigError("max_episode_steps", argument, "at least 1")
        return argument
    if stored is None:
        return None
    if isinstance(stored, bool) or not isinstance(stored, int) or stored < 1:
        raise DataError(source, "attribute max_episode_steps", repr(stored), "an integer from 1")
    return stored


def identity(source: Path, rows: Transitions, offset: np.ndarray | None = None) -> str:
    """Hex SHA-256 of a file or folder, or of the rows where they are from memory."""
    if source.exists():
        return file_sha256(source)
    whole = hashlib.sha256()
    for column in (*rows, *([] if offset is None else [offset])):
        whole.update(f"{column.dtype}{column.shape}".encode())
        whole.update(np.ascontiguousarray(column).data)
    return whole.hexdigest()


def truncations_of(
    source: str | Path,
    arrays: Mapping[str, Any],
    terminations: np.ndarray,
    limit: int | None,
    *,
    cut: bool = False,
) -> np.ndarray:
    if "timeouts" in arrays:
        return as_flags(source, "timeouts", arrays["timeouts"])
    if limit is not None:
        return cut_by_length(terminations, limit)
    if (terminations.any() or cut) and "next_observations" in arrays:
        return np.zeros_like(terminations)
    # Shifting across an unmarked time limit would invent transitions, so terminals do not suffice.
    hint = "add an array timeouts, or the time limit (--max-episode-steps, max_episode_steps)"
    if "next_observations" in arrays:
        hint += "; cut_mismatches=True (--cut-mismatches) cuts where next_observations say so"
    elif terminations.any():
        hint += ", or an array next_observations"
    raise DataError(source, "timeouts", "no such key", "flags of where episodes were cut", hint)


def _check_moving(source: str | Path, rows: Transitions) -> None:
    if is_frozen(rows):  # compares columns, so they must be checked by now
        expected = "observations that move as next_observations do"
        hint = "the collector must store copies of its environment's observations, not views"
        raise DataError(source, "observations", "one and the same all episode", expected, hint)


def _count_mismatches(source: str | Path, rows: Transitions) -> int:
    ending = np.asarray(rows.terminations | rows.truncations)
    here, there = np.asarray(rows.next_observations), np.asarray(rows.observations)
    wrong = mismatches(there, here, ending)
    if len(wrong):
        listed = ", ".join(map(str, wrong[:LISTED].tolist())) + ", ..." * (len(wrong) > LISTED)
        inner = int((~ending[:-1]).sum())
        meaning = CUT if 2 * len(wrong) <= inner else WRONG
        warnings.warn(
            f"{source}: next_observations: found {len(wrong):,} of {inner:,} rows inside episodes "
            f"(row {listed}) that differ from the row that follows; {meaning}",
            stacklevel=5,
        )
    return len(wrong)
