"""All cells of one dataset in `pgd_agents`, and the best setting of a source of data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .pgd_agents_cells import Cell
from .pgd_agents_config import Config

Grid = Mapping[tuple[str, str, str], Cell]  # (agent, source, regulariser)


def best_by_others(returns: np.ndarray) -> np.ndarray:
    """What each seed earns with the setting that is best on the mean of the *other* seeds.

    The maximum over settings of a mean would reward noise; this does not.

    Args:
        returns: `[settings, seeds]`; NaN (a diverged cell) is never chosen if anything else is
            left.

    Returns:
        `[seeds]`; a single seed takes its own best.
    """
    count = returns.shape[1]
    if count == 1:
        return np.nan_to_num(returns, nan=-np.inf).max(0)
    others = (returns.sum(1, keepdims=True) - returns) / (count - 1)
    chosen = np.where(np.isnan(others), -np.inf, others).argmax(0)
    return returns[chosen, np.arange(count)]


def sweep(grid: Grid, config: Config, agent: str, source: str) -> np.ndarray:
    """Returns of all regularisers, `[settings, seeds]`, the default first."""
    return np.stack([grid[agent, source, label].returns for label in config.regularisers(agent)])
