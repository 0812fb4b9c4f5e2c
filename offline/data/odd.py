"""Suspicious rows: extreme numbers, missing values, changes unlike the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxrl_rollouts.feeds import blocks
from jaxrl_rollouts.left_out import LAGS, ROWS, Scores, find_missing_steps, scores, usual, weights
from jaxrl_rollouts.outside import subtract
from jaxrl_rollouts.suspicions import Odd, find_odd_changes, find_sentinels, find_still

from .successors import mismatches
from .transitions import Dataset, Transitions, episodes

FAR, EXTREME = 1e4, 1e8  # see `extremes`
KINDS = {
    "jump": "jump into the row after",
    "zeros": "zero in all columns after something",
    "left out alone": "a change of two steps into the row after",
    "out of order": "a step back into the row after",
}
SQUARES = 16  # columns up to which their products predict, too
FITTED = 20_000  # rows that predictions are fitted to
LISTED = 5  # row numbers given with a suspicion
CUT = "do episodes end there? cut_mismatches=True (--cut-mismatches) cuts them"
STILL = "the value of the row before, though it else moves at every step: a sensor without news?"
WRONG = "one of the two arrays may be wrong"
LATE = "at the ends of episodes: are their flags one row late?"


@dataclass(frozen=True)
class Suspicion:
    """A suspicious finding to check.

    Attributes:
        kind: `non-finite`, `extreme`, `missing value?`, `constant column`, `all zero`, `action out
            of bounds`, `at the bounds`, `every row ends an episode`, `same as the row before`, `not
            the row that follows`, `episode cut before the time limit`, `rows dropped`, `only one
            row`, `terminals without a successor` and what that means, `jump into the row after`,
            `zero in all columns after something`, `stands still`, `a change of two steps into the
            row after`, `a step back into the row after`.
        array: name of the array, with the column where it is about one.
        count: number of rows or episodes.
        rows: the first few row numbers.
        hint: possible cause, or what to do.
    """

    kind: str
    array: str
    count: int
    rows: tuple[int, ...] = ()
    hint: str = ""


def suspicion(kind: str, array: str, rows: np.ndarray, hint: str = "") -> list[Suspicion]:
    """One, with its first rows; none where there are no rows."""
    first = tuple(int(row) for row in rows[:LISTED])
    return [Suspicion(kind, array, len(rows), first, hint)] if len(rows) else []


def extremes(dataset: Dataset) -> list[Suspicion]:
    """Columns with numbers that are no measurement: single ones drown all others.

    From 1e8 in magnitude on, or 10,000 times as far from the median as 1 % and 99 % are apart; and
    values that occur often, far from all others, which stand for missing ones (-9999).
    """
    found: list[Suspicion] = []
    rows = dataset.transitions
    for key in ("observations", "actions", "rewards", "next_observations"):
        values = np.asarray(getattr(rows, key))
        flat = values if values.ndim == 2 else values[:, None]
        most = np.zeros(flat.shape[1])
        for part in blocks(len(flat)):
            most = np.fmax.reduce(np.abs(flat[part]), axis=0, initial=0).clip(most)
        for index in np.flatnonzero(most > FAR):
            column = flat[:, index].astype(np.float64)
            finite = column[np.isfinite(column)]
            low, middle, high = np.quantile(finite, (0.01, 0.5, 0.99)) if len(finite) else (0, 0, 0)
            far = (np.abs(column) > FAR) & (np.abs(column - middle) > FAR * (high - low))
            far |= np.abs(column) >= EXTREME
            name = _column(key, values, int(index))
            found += suspicion("extreme", name, np.flatnonzero(far & np.isfinite(column)))
        for one in find_sentinels(flat):
            value = one.value
            if dataset.offset is not None and "observations" in key:
                value += dataset.offset[one.column]
            hint = f"{value:.6g} occurs often, far from all others"
            name = _column(key, values, one.column)
            found.append(Suspicion("missing value?", name, one.count, (one.first,), hint))
    return found


def _column(key: str, values: np.ndarray, index: int) -> str:
    return key if values.ndim == 1 else f"{key}[{index}]"


def row_changes(rows: Transitions) -> np.ndarray:
    """How much every row changes its observation, `[N]` float64: the root mean square over the
    columns, each in units of its median change. NaN at ends whose successor is not known."""
    now, after = np.asarray(rows.observations), np.asarray(rows.next_observations)
    count, width = now.shape
    squares, moving = np.zeros(count), 0
    for column in range(width):
        change = np.abs(after[:, column].astype(np.float64) - now[:, column])
        typical = change[(change > 0) & np.isfinite(change)]
        if len(typical):
            squares += (change / np.median(typical)) ** 2
            moving += 1
    sizes = np.sqrt(squares / max(moving, 1))
    alone = np.asarray(rows.terminations, bool) & (now == after).all(1)
    return np.where(alone, np.nan, sizes)


def odd_changes(dataset: Dataset) -> list[Suspicion]:
    """Jumps, blocks of zeros, and successors that are not the row that follows.

    A jump before most ends shows flags that stand one row late, so that a step leads from one
    episode into the next.
    """
    rows = dataset.transitions
    parts = episodes(rows)
    ending = np.zeros(len(dataset), bool)
    ending[parts.ends - 1] = True
    wrong = mismatches(np.asarray(rows.observations), np.asarray(rows.next_observations), ending)
    found: list[Suspicion] = []
    if len(dataset) > 2 and rows.observations.shape[1]:
        sizes = row_changes(rows)
        # An episode's changes are not those around in the next one.
        flat = np.insert(sizes, parts.ends[:-1], np.nan)
        zero = 0 if dataset.offset is None else subtract(-dataset.offset, None)
        empty = (np.asarray(rows.next_observations) == zero).all(1)
        empty = np.insert(empty & (rows.observations.shape[1] > 1), parts.ends[:-1], False)
        at = np.delete(np.arange(len(flat)), parts.ends[:-1] + np.arange(len(parts.ends) - 1))
        row_of = np.full(len(flat), -1)
        row_of[at] = np.arange(len(sizes))
        known = wrong
        for odd in find_odd_changes(flat[None], empty[None]):
            places = np.setdiff1d(row_of[odd.places[:, 1]], wrong)
            known = np.union1d(known, places)
            if odd.kind != "repeat":  # "same as the row before" reports these
                kind = KINDS[odd.kind]
                hint = _late(places, parts.ends) if odd.kind == "jump" else ""
                found += suspicion(kind, "observations", places, hint)
        for odd in _left_out(rows, ending, known):
            hint = "a row left out?" if odd.kind == "left out alone" else "rows out of order?"
            found += suspicion(KINDS[odd.kind], "observations", odd.places[:, 1], hint)
        for still in find_still(np.asarray(rows.observations), ending):
            name = f"observations[{still.column}]"
            found += suspicion("stands still", name, still.rows, STILL)
    inner = len(dataset) - int(ending.sum())
    hint = CUT if 2 * len(wrong) <= inner else WRONG
    return found + suspicion("not the row that follows", "next_observations", wrong, hint)


def _left_out(rows: Transitions, ending: np.ndarray, known: np.ndarray) -> list[Odd]:
    """Rows that were left out or exchanged, where no other change around is odd (`known`)."""
    observations, actions = np.asarray(rows.observations), np.asarray(rows.actions)
    count, wide = len(observations), observations.shape[1] + actions.shape[1] <= SQUARES
    free = np.ones(count, bool)
    for near in range(-2, 3):
        free[np.clip(known + near, 0, count - 1)] = False
    inside = np.append(~ending[:-1] & free[:-1], False)
    first = np.flatnonzero(inside[:-1] & inside[1:])  # with two rows after them
    first = first[:: max(1, len(first) // FITTED)]
    if not len(first):
        return []
    sample = observations[first].astype(np.float64)
    middle, spread = sample.mean(0), sample.std(0)
    moving = np.flatnonzero(spread > 0)

    def units(at: np.ndarray) -> np.ndarray:
        return (observations[at][:, moving] - middle[moving]) / spread[moving]

    def features(at: np.ndarray) -> np.ndarray:
        seen = np.concatenate([units(at), actions[at], np.ones((len(at), 1))], 1)
        one, other = np.triu_indices(seen.shape[1] - 1 if wide else 0)
        return np.concatenate([seen, seen[:, one] * seen[:, other]], 1)

    if not len(moving) or len(first) < ROWS * features(first[:1]).shape[1]:
        return []
    now = {at: units(first + at) for at in (0, 1, 2)}
    seen = features(first)
    fitted = {
        1: weights(seen, now[1] - now[0]),
        2: weights(seen, now[2] - now[0]),
        -1: weights(features(first + 1), now[0] - now[1]),
    }
    change = now[1] - now[0]
    scale = usual(change - seen @ fitted[1], change, 0)
    found = Scores(np.full(count, np.nan), np.full(count, np.nan))
    for part in blocks(count - 1):
        at = np.arange(part.start, part.stop)[inside[part.start : part.stop]]
        change, seen = units(at + 1) - units(at), features(at)
        residuals = {lag: change - seen @ fitted[lag] for lag in LAGS}
        for kept, score in zip(found, scores(residuals, scale), strict=True):
            kept[at] = score
    # An episode's changes are not those around in the next one.
    apart = np.flatnonzero(ending)[:-1] + 1
    row_of = np.insert(np.arange(count), apart, -1)
    flat = Scores(*(np.insert(score, apart, np.nan)[None] for score in found))
    return [
        Odd(odd.kind, np.stack([odd.places[:, 0], row_of[odd.places[:, 1]]], 1))
        for odd in find_missing_steps(flat)
    ]


def _late(jumps: np.ndarray, ends: np.ndarray) -> str:
    """What it means that most jumps, or those at most ends, are at the last rows of episodes."""
    at = int(np.isin(jumps, ends - 1).sum())
    return LATE if 2 * at > len(jumps) and 2 * at > len(ends) - 1 else ""


def rows_in_file(dataset: Dataset, rows: tuple[int, ...]) -> tuple[int, ...]:
    """Row numbers as the file counts them, where rows without a successor were dropped."""
    if dataset.attributes.get("successors") != "shifted":
        return rows
    before = np.cumsum(np.asarray(dataset.transitions.truncations))
    return tuple(row + (int(before[row - 1]) if row else 0) for row in rows)
