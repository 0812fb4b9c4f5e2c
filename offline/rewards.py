"""Rewards as a method learns from them: a view of the dataset, undone where values are reported.

A view is affine, `r' = scale r + shift`. Values learned from it are
`V' = scale V + shift E[sum_t gamma^t]`, the sum over the steps that an episode has.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import DataError

from .data import Dataset, Transitions, episode_returns, episodes

RewardView = Literal["raw", "iql", "minus_one", "standard"] | tuple[float, float]
LEAST = 1e-8  # of a range or a deviation that is divided by


class RewardScale(NamedTuple):
    """An affine view, `scale * r + shift`."""

    scale: float = 1.0
    shift: float = 0.0

    def of(self, rows: Transitions) -> Transitions:
        """The rows with rewards as they are learned from."""
        if self == RewardScale():
            return rows
        rewards = np.asarray(rows.rewards, np.float32)
        return rows._replace(rewards=rewards * np.float32(self.scale) + np.float32(self.shift))

    def undo(self, values: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
        """Values in the dataset's own rewards, `(V' - shift weight) / scale`.

        Args:
            values: learned from the view.
            weight: `E[sum_t gamma^t]` of the episodes they are of, see `discounted_steps`.
        """
        if self == RAW:
            return np.asarray(values)
        return np.asarray((values - self.shift * weight) / self.scale, np.float32)


RAW = RewardScale()


def discounted_steps(lengths: np.ndarray, terminated: np.ndarray, discount: float) -> np.ndarray:
    """`sum_t gamma^t` over an episode's steps, per episode.

    Critics bootstrap beyond a time limit, so episodes that were cut count `1 / (1 - gamma)`.
    """
    if discount >= 1:
        return np.asarray(lengths, np.float64)
    ended = np.where(terminated, discount ** np.asarray(lengths, np.float64), 0.0)
    return (1.0 - ended) / (1.0 - discount)


def steps_of_data(dataset: Dataset, discount: float) -> float:
    """Mean of `discounted_steps` over a dataset's episodes."""
    parts = episodes(dataset.transitions)
    return float(discounted_steps(parts.lengths, parts.terminated, discount).mean())


def reward_scale(dataset: Dataset, view: RewardView) -> RewardScale:
    """The affine view of a dataset that a setting names.

    Args:
        dataset: whose returns and rewards it is made of.
        view: `raw`; `iql`, 1000 over the difference of the highest and lowest return (Kostrikov et
            al. 2022, locomotion); `minus_one`, less 1 (AntMaze); `standard`, of mean 0 and
            deviation 1; or `(scale, shift)`.

    Raises:
        DataError: `iql` or `standard` where all returns or all rewards are equal.
    """
    if not isinstance(view, str):
        return RewardScale(*view)
    rows = dataset.transitions
    if view == "minus_one":
        return RewardScale(1.0, -1.0)
    if view == "iql":
        returns = np.asarray(episode_returns(rows))
        spread = _spread(dataset, view, float(returns.max() - returns.min()), "returns that differ")
        return RewardScale(1000.0 / spread)
    if view == "standard":
        rewards = np.asarray(rows.rewards, np.float64)
        deviation = _spread(dataset, view, float(rewards.std()), "rewards that differ")
        return RewardScale(1.0 / deviation, -float(rewards.mean()) / deviation)
    return RewardScale()


def _spread(dataset: Dataset, view: str, spread: float, expected: str) -> float:
    if spread < LEAST:
        found = f"a spread of {spread:g}, by which reward={view!r} divides"
        raise DataError(dataset.name, "rewards", found, expected, "reward='raw' leaves them")
    return spread
