"""Checks at the border: arrays from outside become float32 or bool, or a one-line `DataError`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import blocks
from jaxrl_rollouts.outside import to_array, to_numbers, warn_of_rounding

from .transitions import Transitions

RANKS = {
    "observations": 2,
    "actions": 2,
    "rewards": 1,
    "next_observations": 2,
    "terminations": 1,
    "truncations": 1,
}
# float32 rounding of a tanh or of a clipped float64 action, and no more.
ACTION_TOLERANCE = 1e-5


def as_column(source: str | Path, key: str, values: np.ndarray, rank: int) -> np.ndarray:
    """`values` with `rank` axes; `[N, 1]` is taken for `[N]` as D4RL itself does."""
    if rank == 1 and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != rank:
        expected = "[N]" if rank == 1 else "[N, columns]"
        hint = _scope(key, values) if rank == 2 else ""
        raise DataError(source, key, f"shape {values.shape}", f"shape {expected}", hint)
    return values


def _scope(key: str, values: np.ndarray) -> str:
    """What is not supported about values that are no `[N, columns]`, and what is."""
    if values.ndim == 3:
        rows = f"reshape(-1, {values.shape[2]})"
        return f"episodes are one after the other, {rows}; images have to be flattened or encoded"
    if values.ndim > 3:
        return "images are not supported, only vectors of real numbers: flatten or encode them"
    if values.ndim == 1 and values.dtype.kind in "iu":
        kind = "actions" if "action" in key else "observations"
        return f"discrete {kind} are not supported, only vectors of real numbers"
    return "one number a row is [N, 1]" if values.ndim == 1 else ""


def as_reals(source: str | Path, key: str, values: Any, rank: int) -> np.ndarray:
    """Any real or integer array with `rank` axes, of its own dtype; values are not checked here."""
    return as_column(source, key, to_numbers(source, key, values), rank)


def as_floats(source: str | Path, key: str, values: Any, rank: int) -> np.ndarray:
    """`as_reals` as float32.

    Warns:
        UserWarning: float32 loses the changes of a column (`warn_of_rounding`).
    """
    array = as_reals(source, key, values, rank)
    if "next" not in key:
        flat = array if rank == 2 else array[:, None]
        warn_of_rounding(source, key, flat, "subtract an offset from it")
    with np.errstate(over="ignore"):  # an overflow becomes inf, which `validate` reports
        return np.ascontiguousarray(array, dtype=np.float32)


def as_actions(source: str | Path, key: str, values: Any) -> np.ndarray:
    """`as_floats` of actions `[N, A]`, which are numbers of a discrete set where they are whole."""
    array = as_reals(source, key, values, 2)
    if array.dtype.kind in "iu":
        hint = "discrete actions are not supported; amounts that are whole: actions.astype(float)"
        raise DataError(source, key, f"dtype {array.dtype}", "real numbers", hint)
    return as_floats(source, key, array, 2)


def check_width(source: str | Path, key: str, values: np.ndarray, width: int) -> None:
    """`DataError` unless successors `[N, S]` have as many columns as observations."""
    if values.shape[1] != width:
        expected = f"{width} columns, as observations"
        raise DataError(source, key, f"{values.shape[1]} columns", expected)


def as_flags(source: str | Path, key: str, values: Any) -> np.ndarray:
    """A bool array, or numbers that are all 0 or 1, as bool `[N]`."""
    values = to_array(source, key, values)
    if values.dtype.kind not in "bfiu":
        raise DataError(source, key, f"dtype {values.dtype}", "bool, or numbers 0 and 1")
    values = as_column(source, key, values, 1)
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise DataError(source, key, f"{values[wrong[0]]} in row {wrong[0]}", "only 0 and 1")
    return values.astype(bool)


def check_limit(action_limit: float | None) -> None:
    """Raise `ConfigError` unless `action_limit` is None or a positive number."""
    if action_limit is not None and not action_limit > 0:
        raise ConfigError("action_limit", action_limit, "a positive number, or None for no check")


def validate(
    transitions: Transitions,
    source: str | Path = "transitions",
    *,
    action_limit: float | None = 1.0,
    action_tolerance: float = ACTION_TOLERANCE,
    keys: Mapping[str, str] | None = None,
) -> None:
    """Check that `transitions` keep the contract of `Transitions`.

    Args:
        transitions: rows to check; numpy or jax arrays.
        source: file or dataset the message names.
        action_limit: largest magnitude of an action entry, None for no limit.
        action_tolerance: tolerance of an entry beyond the limit, for rounding.
        keys: the file's name of a field, where it differs (`terminations`: `terminals`).

    Raises:
        DataError: a wrong rank, dtype or length, no rows, no columns, a NaN or infinity, or an
            action out of bounds. Names the array and the first row.
        ConfigError: `action_limit` is not positive.
    """
    check_limit(action_limit)
    named = {(keys or {}).get(key, key): key for key in transitions._fields}
    shape = transitions.observations.shape
    count, width = (shape[0] if shape else 0), shape[1:]
    if count == 0:
        raise DataError(source, _file_key(named, "observations"), "0 rows", "at least one row")
    for name, key in named.items():
        values = getattr(transitions, key)
        dtype = np.dtype(np.bool_ if key in ("terminations", "truncations") else np.float32)
        if values.dtype != dtype:
            raise DataError(source, name, f"dtype {values.dtype}", f"dtype {dtype}")
        if values.ndim != RANKS[key]:
            expected = "shape [N]" if RANKS[key] == 1 else "shape [N, columns]"
            raise DataError(source, name, f"shape {values.shape}", expected)
        if len(values) != count:
            raise DataError(source, name, f"{len(values)} rows", f"{count} rows, as observations")
        if 0 in values.shape:
            raise DataError(source, name, f"shape {values.shape}", "at least one column")
        if key == "next_observations":
            check_width(source, name, values, width[0])
        if dtype == np.float32:
            _check_finite(source, name, np.asarray(values).reshape(count, -1))
    if action_limit is not None:
        actions = np.asarray(transitions.actions)
        _check_bounds(source, _file_key(named, "actions"), actions, action_limit, action_tolerance)


def _file_key(named: Mapping[str, str], field: str) -> str:
    return next(name for name, key in named.items() if key == field)


def _check_finite(source: str | Path, key: str, values: np.ndarray) -> None:
    parts = [
        part.start + np.flatnonzero(~np.isfinite(values[part]).all(1))
        for part in blocks(len(values))
    ]
    bad = np.concatenate(parts)
    if len(bad):
        found = f"NaN or infinity in {len(bad)} of {len(values)} rows, first in row {bad[0]}"
        raise DataError(source, key, found, "finite numbers")


def _check_bounds(
    source: str | Path, key: str, actions: np.ndarray, limit: float, tolerance: float
) -> None:
    magnitude = np.concatenate([np.abs(actions[part]).max(1) for part in blocks(len(actions))])
    bad = np.flatnonzero(magnitude > limit + tolerance)
    if len(bad):
        found = f"magnitude {magnitude[bad[0]]:.6g} in row {bad[0]} ({len(bad)} such rows)"
        hint = "declare their bounds (action_low, --action-low), which rescales them; or clip them"
        raise DataError(source, key, found, f"actions in [-{limit:g}, {limit:g}]", hint)
