"""Rows without a stored successor: take the following row of the same episode, or drop the row.

D4RL's own `qlearning_dataset` pairs a terminal row with the first observation of the *next*
episode. Q-learning masks that entry, a dynamics model would learn from it. Here a terminal row
keeps its own observation in that place: values learn the reward and the end, AntMaze's only ones,
and `Dataset.with_successors` leaves these rows out for whatever learns what comes next. Rows that
were cut are dropped and counted (`Dropped`). Files with `next_observations` lose nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.feeds import blocks

from .transitions import Transitions


class Dropped(NamedTuple):
    """How many rows had neither a known successor nor an end."""

    rows: int
    truncations: int


class Shifted(NamedTuple):
    """Result of `shift`; `M` rows are kept."""

    rows: np.ndarray  # [M] int64: which rows are kept
    next_observations: np.ndarray  # [M, S]: the row that follows each; at an end the row's own
    truncations: np.ndarray  # [M] bool: the kept row before a dropped one is now the cut
    dropped: Dropped


def cut_by_length(terminations: np.ndarray, limit: int) -> np.ndarray:
    """Truncations, `[N]` bool, for files without any: every `limit` steps since an ending."""
    index = np.arange(len(terminations))
    begins = np.concatenate([[True], terminations[:-1]]) if len(index) else np.zeros(0, bool)
    since = index - np.maximum.accumulate(np.where(begins, index, 0))
    return ((since + 1) % limit == 0) & ~terminations


def shift(observations: np.ndarray, terminations: np.ndarray, truncations: np.ndarray) -> Shifted:
    """Successors by shifting inside episodes.

    The row before a dropped one is marked truncated, so that no sequence runs on into the next
    episode; the last row of the file is dropped as well unless it is an end, and an unfinished last
    episode stays unfinished.

    Args:
        observations: `[N, S]`, at least one row.
        terminations: `[N]` bool.
        truncations: `[N]` bool.
    """
    rows, cut, dropped = followed(terminations, truncations)
    return Shifted(rows, observations[rows + ~terminations[rows]], cut, dropped)


def followed(
    terminations: np.ndarray, truncations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Dropped]:
    """`rows`, `truncations` and `dropped` of `shift`, which observations do not matter to."""
    keep = terminations | ~truncations
    keep[-1] = terminations[-1]
    cut_off = truncations & ~terminations
    rows = np.flatnonzero(keep)
    cut = ~terminations[rows] & np.append(cut_off, False)[rows + 1]
    return rows, cut, Dropped(int((~keep).sum()), int(cut_off.sum()))


def is_frozen(rows: Transitions) -> bool:
    """Whether observations never change inside any episode although their successors do.

    So looks a file whose collector stored views of its environment's buffer instead of copies.
    """
    inner = ~np.asarray(rows.terminations | rows.truncations)[:-1]
    if inner.sum() < 2:
        return False
    moving = 0
    for part in blocks(len(inner)):
        at = part.start + np.flatnonzero(inner[part])
        now = rows.observations[at]
        if (rows.observations[at + 1] != now).any():
            return False
        moving += int((rows.next_observations[at] != now).any(1).sum())
    return moving > 0.5 * inner.sum()


def mismatches(
    observations: np.ndarray, next_observations: np.ndarray, ending: np.ndarray
) -> np.ndarray:
    """Rows inside episodes whose stored successor is not the row that follows, `[K]` int64.

    Either column may be the wrong one (`is_frozen` detects a frequent case). Differences of float32
    rounding do not count.
    """
    if len(observations) < 2:
        return np.zeros(0, np.int64)
    here, there = next_observations[:-1], observations[1:]
    found = []
    for part in blocks(len(here)):
        differ = (here[part] != there[part]).any(1)
        rows = part.start + np.flatnonzero(~ending[:-1][part] & differ)
        close = np.isclose(here[rows], there[rows], rtol=1e-5, atol=1e-5, equal_nan=True)
        found.append(rows[~close.all(1)])
    return np.concatenate(found)
