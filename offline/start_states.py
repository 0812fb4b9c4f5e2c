"""Start states of a dataset and of a simulator, compared by column.

Flat observations have no names: their order and units show in the numbers alone.
"""

from __future__ import annotations

import warnings

import numpy as np

from jaxrl_rollouts.errors import DataError

from .data.transitions import Dataset, episodes
from .environments.base import Environment

STARTS = 16  # of the simulator
FAR = 5.0  # deviations between medians from which on two columns are not the same quantity
NEAR = 1.0
UNITS = 30.0  # times that start states spread wider, from which on units may differ
MOST = 4096  # rows and episodes of the data that are looked at


def compare_starts(dataset: Dataset, env: Environment, there: np.ndarray, then: np.ndarray) -> None:
    """Compare where episodes begin, and which columns never move.

    Args:
        there, then: `[K, S]` first observations of the environment, and those a step later.
    """
    rows = dataset.transitions
    here = np.asarray(rows.observations[episodes(rows).starts[:MOST]], np.float64)
    if len(here) < 3:
        return
    still = _never_moves(dataset)
    moves = (np.asarray(then) != there).any(0)
    apart = distances(here, np.asarray(there, np.float64))
    # A column that is constant all episode long is none that an action changes.
    apart[np.ix_(still, moves)] = np.maximum(apart[np.ix_(still, moves)], 2 * FAR)
    bad = np.flatnonzero(np.diag(apart) > FAR)
    if not len(bad):
        _compare_units(dataset, env, here, there)
        return
    alike = apart < NEAR
    alike[np.ix_(~still, ~moves)] = False
    good = np.setdiff1d(np.arange(len(apart)), bad)
    alike[good, good] = True
    source = dataset.source if dataset.source.exists() else dataset.name
    order = reordering(alike)
    if order is not None:
        pairs = [f"{i} as its {j}" for i, j in enumerate(order) if i != j]
        found = f"column(s) {', '.join(pairs[:8])}, by where episodes begin and what moves"
        hint = "put the columns of the data, or of the environment, into the other's order"
        raise DataError(source, "observations", found, f"the order of {env.name}", hint)
    listed = ", ".join(map(str, bad[:8].tolist()))
    middle = [f"{np.median(here[:, i]):.4g} and {np.median(there[:, i]):.4g}" for i in bad[:4]]
    warnings.warn(
        f"{source}: observations: the first states of the data and of {env.name} differ in "
        f"column(s) {listed} (medians {'; '.join(middle)}), or only one of the two moves there: "
        "are these the same columns, in the same units?",
        stacklevel=4,
    )


def _compare_units(dataset: Dataset, env: Environment, here: np.ndarray, there: np.ndarray) -> None:
    """Warn of columns whose start states spread over another range: metres and millimetres."""
    ours, theirs = here.std(0), there.std(0)
    size = np.maximum(np.abs(here).max(0), np.abs(there).max(0))
    both = np.minimum(ours, theirs) > 1e-6 * size  # a column that begins at one place is no unit
    ratio = np.where(both, ours / np.where(both, theirs, 1.0), 1.0)
    bad = np.flatnonzero((ratio > UNITS) | (ratio < 1 / UNITS))
    if len(bad):
        source = dataset.source if dataset.source.exists() else dataset.name
        spreads = [f"{ours[i]:.4g} and {theirs[i]:.4g}" for i in bad[:4]]
        listed = ", ".join(map(str, bad[:8].tolist()))
        warnings.warn(
            f"{source}: observations: the first states of the data and of {env.name} differ in "
            f"spread in column(s) {listed} (deviations {'; '.join(spreads)}): are these the same "
            "columns, in the same units?",
            stacklevel=5,
        )


def _never_moves(dataset: Dataset) -> np.ndarray:
    """Which columns are constant in every episode, `[S]` bool; of the first `MOST` rows."""
    rows = dataset.transitions
    alone = np.asarray(rows.terminations[:MOST], bool)
    now, after = (np.asarray(x[:MOST])[~alone] for x in (rows.observations, rows.next_observations))
    return (now == after).all(0) & bool(len(now))


def distances(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """How far start states of every pair of columns are apart, `[S, S]`, in deviations.

    Columns whose ranges overlap are never further than `FAR`; the deviation is the larger of the
    two, and at least a thousandth of the values.
    """
    medians = np.median(here, 0)[:, None], np.median(there, 0)[None]
    spread = np.maximum(here.std(0)[:, None], there.std(0)[None])
    size = np.maximum(np.abs(medians[0]), np.abs(medians[1]))
    apart = np.abs(medians[0] - medians[1]) / np.maximum(spread, np.maximum(1e-3 * size, 1e-6))
    overlap = (here.min(0)[:, None] <= there.max(0)) & (there.min(0) <= here.max(0)[:, None])
    return np.where(overlap, np.minimum(apart, FAR), apart)


def reordering(alike: np.ndarray) -> list[int] | None:
    """For each row of `[S, S]` bool a column of its own that is alike, itself where that goes; None
    where there is no such order."""
    taken: dict[int, int] = {}  # column: row

    def place(row: int, seen: set[int]) -> bool:
        for column in [row] * int(alike[row, row]) + np.flatnonzero(alike[row]).tolist():
            if column not in seen:
                seen.add(column)
                if column not in taken or place(taken[column], seen):
                    taken[column] = row
                    return True
        return False

    if not all(place(row, set()) for row in range(len(alike))):
        return None
    rows = {row: column for column, row in taken.items()}
    return [rows[row] for row in range(len(alike))]
