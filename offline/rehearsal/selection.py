"""Which rows of a task's data a buffer keeps.

`mbes` is the selection of OER (Gai et al. 2023, arXiv:2305.13804) as published in words: from a
start of the data the learned policy acts, the world model predicts, and the nearest row is kept.
The others are what it is compared with.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import ConfigError

from ..data.transitions import Transitions, episode_returns, episodes

Rule = Literal["random", "reward", "episodes", "coverage", "policy", "mbes"]
RULES: tuple[Rule, ...] = get_args(Rule)


def select(
    rule: Rule,
    rows: Transitions,
    count: int,
    seed: int = 0,
    *,
    actions: np.ndarray | None = None,
    predicted: np.ndarray | None = None,
    length: int = 1000,
) -> np.ndarray:
    """Rows to keep, `[count]` int, each once.

    Args:
        rule: `random`; `reward`, the highest; `episodes`, whole ones of the highest return;
            `coverage`, farthest points: each the farthest from those before it; `policy`, where
            the policy's action is nearest to the data's; `mbes`, nearest to the policy's path in a
            world model. Distances are of observations in their standard deviations.
        rows: `[N, ...]` of a task.
        count: at most N, which keeps all.
        seed: random seed.
        actions: `[N, A]`, the policy's in the rows' states; for `policy`.
        predicted: `[N, S]`, where the world model leads from the rows' states under these actions;
            for `mbes`.
        length: steps of a path of `mbes` before it begins at another start.

    Raises:
        ConfigError: an unknown rule, a count out of range, or what the rule reads is missing.
    """
    total, rng = len(rows.rewards), np.random.default_rng(seed)
    if not 1 <= count <= total:
        raise ConfigError("count", count, f"1 to {total}, the rows of the task")
    if rule == "random":
        return rng.permutation(total)[:count]
    if rule == "reward":
        return np.argsort(-np.asarray(rows.rewards), kind="stable")[:count]
    if rule == "episodes":
        return _best_episodes(rows)[:count]
    if rule == "coverage":
        return _farthest(_scaled(rows)[0], count, int(rng.integers(total)))
    if rule == "policy":
        apart = np.square(_given(rule, "actions", actions) - rows.actions).sum(-1)
        return np.argsort(apart, kind="stable")[:count]
    if rule == "mbes":
        return _along(rows, _given(rule, "predicted", predicted), count, length, rng)
    raise unknown("rule", rule, RULES)


def _given(rule: str, name: str, found: np.ndarray | None) -> np.ndarray:
    if found is None:
        raise ConfigError(name, None, f"an array, which the rule {rule} reads")
    return np.asarray(found)


def _scaled(rows: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Observations in their deviations `[N, S]`, and these `[S]`."""
    seen = np.asarray(rows.observations, np.float32)
    std = seen.std(0)
    std = np.where(std > 0, std, 1).astype(np.float32)
    return seen / std, std


def _best_episodes(rows: Transitions) -> np.ndarray:
    """All rows, those of the episodes with the highest return first."""
    parts = episodes(rows)
    order = np.argsort(-episode_returns(rows), kind="stable")
    return np.concatenate([np.arange(int(parts.starts[e]), int(parts.ends[e])) for e in order])


def _farthest(points: np.ndarray, count: int, first: int) -> np.ndarray:
    """Farthest-point sampling of `[N, S]`."""
    chosen = np.empty(count, np.int64)
    apart = np.full(len(points), np.inf)
    for i in range(count):
        chosen[i] = first
        apart = np.minimum(apart, np.square(points - points[first]).sum(1))
        apart[first] = -1.0  # equal points would be kept twice
        first = int(apart.argmax())
    return chosen


def _along(
    rows: Transitions, predicted: np.ndarray, count: int, length: int, rng: np.random.Generator
) -> np.ndarray:
    """Rows nearest to where the policy goes; a path continues from the row, not from the model."""
    points, std = _scaled(rows)
    aims, starts = predicted / std, episodes(rows).starts
    free, chosen = np.ones(len(points), bool), []
    while len(chosen) < count:
        at = rng.choice(starts)
        for _ in range(min(length, count - len(chosen))):
            apart = np.square(points - aims[at]).sum(1)
            at = int(np.where(free, apart, np.inf).argmin())
            free[at] = False
            chosen.append(at)
            if rows.terminations[at]:
                break
    return np.array(chosen)
