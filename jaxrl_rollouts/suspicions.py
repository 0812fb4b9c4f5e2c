"""Finite numbers that are no measurements, found by their changes and their frequency.

The same rules hold for the rows of an agent's dataset and for frames of fields.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

JUMP = 20.0  # of the median change, and `ALONE` times the changes around it
ALONE = 10.0
REPEAT = 1e-3  # of the median change
GAP = 1.8  # of the changes before and after, at one step
MOST = 0.75  # of the sequences
AROUND = 3  # changes on either side that are called around
FAR = 10.0  # ranges of the other values that a sentinel is away
OFTEN = 3  # times that a sentinel occurs at least
KINDS_OF = 3  # sentinels at either end of a column
DISTINCT = 10  # other values there are at least beside several sentinels
STILL = 5  # changes in a row that are none, from which on a column stands still
RARE = 0.1  # share of such changes up to which they are not its nature
INTO = 5.0  # median changes that a step into a column's extreme is at least


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
    empty = np.zeros(sizes.shape, bool)
    if zero is not None:  # one step alone may pass through zero, but not by more than others change
        empty = zero & known & (_follows(zero) | (sizes > GAP * around))
    jumps = known & (sizes > JUMP * median) & (sizes > ALONE * around) & ~empty
    repeats = known & (sizes < REPEAT * median) & (sizes < REPEAT * ALONE * around) & ~empty
    found = {"zeros": empty, "jump": jumps, "repeat": repeats, "left out": _left_out(sizes)}
    return [Odd(kind, np.argwhere(where)) for kind, where in found.items() if where.any()]


def _follows(zero: np.ndarray) -> np.ndarray:
    """Whether a zero step is one of two or more in a row."""
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
        count: number of occurrences.
        first: row of the first.
    """

    column: int
    value: float
    count: int
    first: int


def find_sentinels(values: np.ndarray) -> list[Sentinel]:
    """Values of columns `[N, F]` that are the extreme, occur often and lie far from all others.

    A column may have several of them at either end.
    """
    found = []
    for index, column in enumerate(values.T):
        finite = column[np.isfinite(column)]
        while chosen := _far_away(finite, _frequent(finite, np.max), _frequent(finite, np.min)):
            for value, count in chosen:
                first = int(np.flatnonzero(column == value)[0])
                found.append(Sentinel(index, float(value), count, first))
            finite = finite[~np.isin(finite, [value for value, _ in chosen])]
    return found


def _frequent(finite: np.ndarray, extreme: Any) -> list[tuple[np.generic, int]]:
    """The outermost values at one end as far as each occurs often, and how often."""
    found: list[tuple[np.generic, int]] = []
    while len(finite) and len(found) < KINDS_OF:
        value = extreme(finite)
        others = finite[finite != value]
        if len(finite) - len(others) < OFTEN:
            break
        found.append((value, len(finite) - len(others)))
        finite = others
    return found


def _far_away(
    finite: np.ndarray,
    highest: list[tuple[np.generic, int]],
    lowest: list[tuple[np.generic, int]],
) -> list[tuple[np.generic, int]]:
    """The fewest of the outermost values that are all `FAR` from the rest."""
    for above, below in sorted(
        itertools.product(range(len(highest) + 1), range(len(lowest) + 1)), key=sum
    ):
        chosen = highest[:above] + lowest[:below]
        if not chosen:
            continue
        rest = finite[~np.isin(finite, [value for value, _ in chosen])].astype(np.float64)
        if len(rest) < OFTEN or (len(chosen) > 1 and len(np.unique(rest)) < DISTINCT):
            continue
        low, high = float(rest.min()), float(rest.max())
        away = [max(float(value) - high, low - float(value)) for value, _ in chosen]
        if high > low and min(away) > FAR * (high - low):
            return chosen
    return []


class Still(NamedTuple):
    """A column that stands still for a while, though it else moves at every step.

    Attributes:
        column: which.
        rows: rows whose value equals the previous row's.
    """

    column: int
    rows: np.ndarray


def find_still(values: np.ndarray, ends: np.ndarray) -> list[Still]:
    """Columns `[N, F]` that rarely repeat, and then for `STILL` rows or more in a row.

    Values that a column reaches step by step and cannot pass (a limit) do not count, nor rows in
    which no column moves.

    Args:
        ends: `[N]` bool, the last row of a sequence.
    """
    if len(values) < 2:
        return []
    inside = ~np.asarray(ends, bool)[:-1]
    same = (values[1:] == values[:-1]) & inside[:, None]
    same[same.all(1)] = False
    found = []
    for index in np.flatnonzero(same.any(0) & (same.mean(0) <= RARE)).tolist():
        column, here = np.asarray(values[:, index], np.float64), same[:, index]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], here, [0]])))
        begins, lengths = edges[::2], edges[1::2] - edges[::2]
        change = np.abs(np.diff(column))[inside]
        usual = np.median(change[change > 0]) if (change > 0).any() else 0.0
        into = np.abs(column[begins] - column[np.maximum(begins - 1, 0)])
        limit = (column[begins] == column.max()) | (column[begins] == column.min())
        long = (lengths >= STILL) & (~limit | (into > INTO * usual))
        if 0 < long.sum() <= max(2, RARE * (1 + np.sum(~inside))):
            spans = zip(begins[long], lengths[long], strict=True)
            rows = np.concatenate([np.arange(b + 1, b + 1 + n) for b, n in spans])
            found.append(Still(index, rows))
    return found
