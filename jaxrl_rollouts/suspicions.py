"""Numbers that are finite and no measurement, found by their changes and their frequency.

The same rules hold for the rows of an agent's dataset and for frames of fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

JUMP = 20.0  # of the median change, and `ALONE` times the changes around it
ALONE = 10.0
REPEAT = 1e-3  # of the median change
GAP = 1.8  # of the changes before and after, at one step
MOST = 0.75  # of the sequences
AROUND = 3  # changes on either side that are called around
FAR = 10.0  # ranges of the other values that a sentinel is away
OFTEN = 3  # times that a sentinel occurs at least


class Odd(NamedTuple):
    """Changes that are unlike the others.

    Attributes:
        kind: `jump`, `repeat`, `zeros` (all zero after something) or `left out` (frames are
            missing at one step of most sequences).
        places: `[K, 2]` int64, sequence and step: the change from that step to the next.
    """

    kind: str
    places: np.ndarray


def find_odd_changes(sizes: np.ndarray, zero: np.ndarray | None = None) -> list[Odd]:
    """Find changes from one step to the next that are no measurement.

    Args:
        sizes: `[N, T]`, how much each sequence changes from step `t` to `t + 1`, 0 or above; NaN
            where nothing is known. One sequence may hold several, with NaN between.
        zero: `[N, T]` bool, whether step `t + 1` is zero throughout.

    Returns:
        One `Odd` for each kind that there is.
    """
    known = np.isfinite(sizes)
    moving = sizes[known & (sizes > 0)]
    if not len(moving):
        return []
    median, around = float(np.median(moving)), _around(sizes)
    empty = np.zeros(sizes.shape, bool) if zero is None else zero & known & _follows(zero)
    jumps = known & (sizes > JUMP * median) & (sizes > ALONE * around) & ~empty
    repeats = known & (sizes < REPEAT * median) & (sizes < REPEAT * ALONE * around) & ~empty
    found = {"zeros": empty, "jump": jumps, "repeat": repeats, "left out": _left_out(sizes)}
    return [Odd(kind, np.argwhere(where)) for kind, where in found.items() if where.any()]


def _follows(zero: np.ndarray) -> np.ndarray:
    """Whether a step that is zero begins or goes on with such steps: two in a row or more."""
    after = np.append(zero[:, 1:], zero[:, -1:], 1)
    before = np.append(np.zeros((len(zero), 1), bool), zero[:, :-1], 1)
    return after | before


def _around(sizes: np.ndarray) -> np.ndarray:
    """Median of the changes around each, without itself; 0 where there is none."""
    padded = np.pad(sizes, ((0, 0), (AROUND, AROUND)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1, 1)
    others = np.delete(windows, AROUND, -1)
    some = np.isfinite(others).any(-1)
    median = np.zeros(sizes.shape)
    if some.any():
        median[some] = np.nanmedian(others[some], -1)
    return median


def _left_out(sizes: np.ndarray) -> np.ndarray:
    """Steps at which most sequences change more than before and after: frames are missing."""
    found = np.zeros(sizes.shape, bool)
    if sizes.shape[0] < 3 or sizes.shape[1] < 3:
        return found
    beside = np.maximum(sizes[:, :-2], sizes[:, 2:])
    larger = sizes[:, 1:-1] > GAP * beside
    at = 1 + np.flatnonzero(larger.mean(0) >= MOST)
    found[:, at] = sizes[:, at] > 0
    return found


class Sentinel(NamedTuple):
    """A value that stands for a missing one: -9999, 9.97e36.

    Attributes:
        column, value: which value where.
        count: how often.
        first: row of the first.
    """

    column: int
    value: float
    count: int
    first: int


def find_sentinels(values: np.ndarray) -> list[Sentinel]:
    """Values of columns `[N, F]` that are the extreme, occur often and lie far from all others."""
    found = []
    for index, column in enumerate(values.T):
        for extreme, sign in ((np.nanmax, -1.0), (np.nanmin, 1.0)):
            finite = column[np.isfinite(column)]
            if not len(finite):
                continue
            value = extreme(finite)
            others = finite[finite != value].astype(np.float64)
            count = len(finite) - len(others)
            if count < OFTEN or len(others) < OFTEN:
                continue
            low, high = float(others.min()), float(others.max())
            away = float(value) - high if sign < 0 else low - float(value)
            if high > low and away > FAR * (high - low):
                first = int(np.flatnonzero(column == value)[0])
                found.append(Sentinel(index, float(value), count, first))
    return found
