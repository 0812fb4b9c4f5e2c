"""Rows that an ensemble is fitted to and evaluated on, shared by members or for each group."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .ensemble_config import EnsembleConfig
from .errors import ConfigError


class OwnRows(NamedTuple):
    """Which rows are each member's own: `[N, R]` and `[N, H]` int32.

    Groups need not be equally large: of the smaller ones rows are listed again.
    """

    learned: jax.Array
    held: jax.Array


class FitData(NamedTuple):
    """Rows the members learn from and rows they are evaluated on; `[n, I]` and `[n, O]`.

    Attributes:
        own: groups of rows of the members; None gives all rows to each.
    """

    inputs: jax.Array
    targets: jax.Array
    holdout_inputs: jax.Array
    holdout_targets: jax.Array
    own: OwnRows | None = None


def part_rows(config: EnsembleConfig, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Which of `rows` rows members learn from, ascending, and which they are evaluated on.

    The latter are `min(holdout_fraction * rows, holdout_rows)` random ones, the same for all
    members.
    """
    count = min(int(rows * config.holdout_fraction), config.holdout_rows)
    if count < 1 or count >= rows:
        raise ConfigError("rows", rows, "enough for a holdout and a training part")
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[count:]), order[:count]


def split_holdout(
    config: EnsembleConfig,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> FitData:
    """Set aside the rows that members are evaluated on, see `part_rows`.

    Args:
        inputs, targets: `[n, I]` and `[n, O]`.
        groups: `[n]` int, 0 to G - 1, what each row came from (a machine, a patient, a site):
            member `i` learns from group `i % G` and is evaluated on it.
    """
    kept, held = part_rows(config, len(inputs), seed)
    parts: Any = jax.device_put((inputs[kept], targets[kept], inputs[held], targets[held]))
    data = FitData(*parts)
    if groups is None:
        return data
    total = count_groups(groups, len(inputs))
    if config.members % total:
        expected = f"a multiple of the {total} groups, each with members of its own"
        raise ConfigError("members", config.members, expected)
    if config.elites != config.members:
        expected = f"all {config.members} members: each stands for its group"
        raise ConfigError("elites", config.elites, expected)
    tables = []
    for part in (kept, held):
        table, sizes = rows_of_groups(groups[part], total)
        if not sizes.min():
            expected = "rows of every group to learn from, and in the holdout"
            found = f"rows {sizes.tolist()}"
            raise ConfigError("groups", found, expected, "raise holdout_fraction or _rows")
        tables.append(jnp.asarray(table[np.arange(config.members) % total], jnp.int32))
    return data._replace(own=OwnRows(*tables))


def count_groups(groups: np.ndarray, rows: int) -> int:
    """How many groups there are, `G`."""
    groups = np.asarray(groups)
    if groups.shape != (rows,):
        raise ConfigError("groups", groups.shape, f"({rows},), one number for each row")
    found, total = np.unique(groups), int(groups.max()) + 1
    if not np.array_equal(found, np.arange(total)):
        raise ConfigError("groups", found.tolist(), f"every number from 0 to {total - 1}")
    return total


def rows_of_groups(groups: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are of each group, `[G, R]`, and how many are, `[G]`.

    R is the size of the largest group; of the smaller ones rows are listed again.
    """
    places = [np.flatnonzero(groups == group) for group in range(total)]
    sizes = np.array([len(place) for place in places])
    return np.stack([np.resize(place, sizes.max()) for place in places]), sizes
