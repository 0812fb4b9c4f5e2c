"""Training data of a planner: states ahead of every present, and the return from there.

A window is the states that led to the present, and by how much the following ones differ from it.
Where an episode terminates the state stays, as in `synthetic.windows`; where it was cut off the
future is unknown, and its last presents are left out. Before an episode begins is its first state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.errors import DataError

from ..data import Transitions, episodes
from ..data.transitions import Array


class PlanRows(NamedTuple):
    """One row per present, `[W, ...]` on the host or the device.

    Attributes:
        observations: `[W, L S]`, a flattened window: `history` states up to the present, then by
            how much each of `horizon` states ahead differs from it.
        actions: `[W, A]`, what was done in the present.
        rewards: `[W]`, the rank of what followed among all presents, from -1 (worst) to 1.
    """

    observations: Array
    actions: Array
    rewards: Array


def mean_to_go(transitions: Transitions, discount: float) -> np.ndarray:
    """`[N]` float64: `sum_k g^k r_{t+k} / sum_k g^k` over what is left of the episode.

    A terminated episode continues without reward for ever; a truncated one just stops, so that
    its last states are as good as its others and not better for having less ahead of them.
    """
    rewards = np.asarray(transitions.rewards, np.float64)
    ends = np.asarray(transitions.terminations) | np.asarray(transitions.truncations)
    over = np.asarray(transitions.terminations, bool)
    means = np.empty(len(rewards))
    total = weight = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        if over[t]:
            total, weight = 0.0, 1.0 / (1.0 - discount)
        elif ends[t]:
            total = weight = 0.0
        total, weight = rewards[t] + discount * total, 1.0 + discount * weight
        means[t] = total / weight
    return means


def ranks(values: np.ndarray) -> np.ndarray:
    """`[N]` from -1 (least) to 1, evenly; equal values share the middle of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * (counts + 1)
    return (2.0 * middle[which] / max(len(values) - 1, 1) - 1.0).astype(np.float32)


def plan_rows(
    transitions: Transitions, history: int, horizon: int, *, discount: float, most: int
) -> PlanRows:
    """Rows of every present whose future is in the data, or of `most` spread over them."""
    t = Transitions(*(np.asarray(column) for column in transitions))
    parts = episodes(t)
    last = np.repeat(parts.ends - 1, parts.lengths)
    first = np.repeat(parts.starts, parts.lengths)
    rows = np.arange(len(t.rewards))
    whole = np.repeat(parts.terminated, parts.lengths) | (rows + horizon - 1 <= last)
    presents = rows[whole]
    if not len(presents):
        found = f"at most {int(parts.lengths.max(initial=0))} steps"
        raise DataError("dataset", "episodes", found, f"{horizon} steps, or a shorter horizon")
    presents = presents[np.arange(0, len(presents), -(-len(presents) // most))]
    before = np.maximum(presents[:, None] - np.arange(history - 1, -1, -1), first[presents, None])
    after = np.minimum(presents[:, None] + np.arange(horizon), last[presents, None])
    past, now = t.observations[before], t.observations[presents, None]
    window = np.concatenate([past, t.next_observations[after] - now], 1)
    flat = window.reshape(len(presents), -1).astype(np.float32)
    return PlanRows(flat, t.actions[presents], ranks(mean_to_go(t, discount)[presents]))
