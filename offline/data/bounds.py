"""Actions in the bounds they were recorded in, and in [-1, 1], where everything here has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError

from .checks import ACTION_TOLERANCE


def read_bounds(low: Any, high: Any, columns: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Declared bounds as two arrays `[A]` float32; None where neither is declared."""
    if low is None and high is None:
        return None
    for setting, value in (("action_low", low), ("action_high", high)):
        other = "action_high" if setting == "action_low" else "action_low"
        if value is None:
            raise ConfigError(setting, None, f"a bound, as {other} has one")
        try:
            values = np.asarray(value, np.float32)
        except (TypeError, ValueError):
            raise ConfigError(setting, value, "a number, or one for each action entry") from None
        if values.size not in (1, columns) or not np.isfinite(values).all():
            expected = f"one finite number, or {columns}, one for each action entry"
            raise ConfigError(setting, value, expected)
    assert low is not None and high is not None
    bounds = np.broadcast_arrays(np.ravel(low), np.ravel(high), np.zeros(columns))[:2]
    low, high = (np.asarray(bound, np.float32) for bound in bounds)
    if not (low < high).all():
        raise ConfigError("action_low", low.tolist(), f"below action_high {high.tolist()}")
    return low, high


def bounded(
    source: str | Path,
    key: str,
    actions: np.ndarray,
    low: Any,
    high: Any,
    *,
    limit: float | None,
    clip: bool,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Actions `[N, A]` as `Transitions` holds them, and their bounds as `Dataset` does.

    Args:
        low, high: declared bounds, which they are rescaled from; None for none, and then nothing
            is changed.
    """
    bounds = read_bounds(low, high, actions.shape[1])
    if bounds is None:
        if clip and limit is not None:
            actions = np.clip(actions, -limit, limit).astype(np.float32)
        return actions, None, None
    actions = np.clip(actions, *bounds) if clip else actions
    return to_unit(source, key, actions, *bounds), *bounds


def is_unit(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether bounds are [-1, 1]."""
    return bool((np.asarray(low) == -1).all() and (np.asarray(high) == 1).all())


def to_unit(
    source: str | Path, key: str, actions: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """`[N, A]` actions in `[low, high]`, in [-1, 1]: `(2 a - high - low) / (high - low)`.

    Raises:
        DataError: an action outside the bounds by more than rounding. NaN passes; `validate`
            reports it.
    """
    # centre and half width: exact where the bounds are symmetric powers of two
    unit = (actions - 0.5 * (high + low)) / (0.5 * (high - low))
    bad = np.flatnonzero((np.abs(unit) > 1 + ACTION_TOLERANCE).any(1))
    if len(bad):
        row, column = bad[0], int(np.nanargmax(np.abs(unit[bad[0]])))
        found = f"{actions[row, column]:.6g} in row {row}, column {column} ({len(bad)} such rows)"
        expected = f"actions in the declared [{low[column]:g}, {high[column]:g}]"
        raise DataError(source, key, found, expected, "give the environment's own bounds")
    return np.clip(unit, -1, 1).astype(np.float32)


def from_unit(actions: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Actions in [-1, 1] (`[..., A]`, clipped to it) in `[low, high]`; the inverse of `to_unit`.

    `low` and `high` are None for actions that stay as they are.
    """
    if low is None or high is None:
        return np.clip(actions, -1, 1)
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    return 0.5 * (high + low) + 0.5 * (high - low) * np.clip(actions, -1, 1)
