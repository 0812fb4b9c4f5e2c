"""Undo one known defect of collectors: an `observations` column that never moves in an episode.

A collector that stores a view of its environment's buffer instead of a copy writes one observation
over and over, while `next_observations` stay right. Then every observation but an episode's first
is known: it is the successor stored on the row before. The first one is read off MuJoCo's `qpos`
and `qvel` where they reproduce all the others, and its row is dropped otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .transitions import Transitions, take_rows

VELOCITY_LIMIT = 10.0  # Hopper and Walker2d clip their velocities to this


class Repaired(NamedTuple):
    """Rows whose observations can be used, and what was done to get them.

    `kept` are the rows of the original that are left, `[K]` int64; `text` is one sentence.
    """

    transitions: Transitions
    kept: np.ndarray
    text: str


def is_frozen(rows: Transitions) -> bool:
    """Whether observations never change inside any episode although their successors do."""
    inner = ~np.asarray(rows.terminations | rows.truncations)[:-1]
    if inner.sum() < 2:
        return False
    still = rows.observations[1:][inner] == rows.observations[:-1][inner]
    moving = rows.next_observations[:-1][inner] != rows.observations[:-1][inner]
    return bool(still.all() and moving.any(1).mean() > 0.5)


def repair_frozen(
    rows: Transitions, qpos: np.ndarray | None = None, qvel: np.ndarray | None = None
) -> Repaired:
    """Rebuild frozen observations; see the module.

    Args:
        rows: for which `is_frozen` holds.
        qpos, qvel: simulator state before each step, `[N, Q]` and `[N, V]`, where stored.
    """
    first = np.concatenate([[True], (rows.terminations | rows.truncations)[:-1]])
    observations = rows.observations.copy()
    observations[1:][~first[1:]] = rows.next_observations[:-1][~first[1:]]
    text = "observations never move inside an episode; rebuilt from next_observations"
    if qpos is not None and qvel is not None:
        for state in _states(qpos, qvel):
            same = state.shape == observations.shape
            if same and np.allclose(state[~first], observations[~first], rtol=1e-5, atol=1e-5):
                observations[first] = state[first]
                text += f", the {first.sum()} first rows of episodes from infos/qpos and infos/qvel"
                return Repaired(
                    rows._replace(observations=observations), np.arange(len(first)), text
                )
    kept = np.flatnonzero(~first)
    text += f", the {first.sum()} first rows of episodes dropped"
    return Repaired(take_rows(rows._replace(observations=observations), kept), kept, text)


def _states(qpos: np.ndarray, qvel: np.ndarray) -> list[np.ndarray]:
    """Observations of Gymnasium's locomotion environments: positions without x, velocities."""
    clipped = np.clip(qvel, -VELOCITY_LIMIT, VELOCITY_LIMIT)
    return [np.concatenate([qpos[:, 1:], v], 1).astype(np.float32) for v in (qvel, clipped)]
