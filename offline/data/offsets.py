"""Observation columns of a large offset: it is subtracted in float64 before float32 is taken.

A position of 5,200,000 m that moves 0.05 m a step moves 0 or 0.5 m in float32. Such columns of a
dataset hold `x - offset`. Environments on the host subtract it from their float64 observations, and
a policy from what it is given, so that all of them are in the same units; what is printed has it
added again. Compiled simulators have float32 observations, from which it is subtracted: digits
that those lack do not come back. Actions and rewards have no offset, only a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.outside import subtract

from .transitions import Dataset


def with_offset(dataset: Dataset, offset: Any) -> Dataset:
    """The same rows less another offset `[S]`; None for none."""
    old = 0.0 if dataset.offset is None else dataset.offset
    new = 0.0 if offset is None else np.asarray(offset, np.float64)
    if np.array_equal(np.broadcast_arrays(old, new)[0], np.broadcast_arrays(old, new)[1]):
        return dataset
    rows = dataset.transitions
    seen, after = (
        subtract(np.asarray(column, np.float64) + old, np.zeros(column.shape[1]) + new)
        for column in (rows.observations, rows.next_observations)
    )
    rows = rows._replace(observations=seen, next_observations=after)
    return replace(dataset, transitions=rows, offset=None if offset is None else np.asarray(new))


def in_order(dataset: Dataset, columns: Sequence[str]) -> Dataset:
    """The same rows with the observations' columns in another order; as they are without names.

    Raises:
        DataError: columns of other names.
    """
    if not columns or not dataset.columns or tuple(columns) == dataset.columns:
        return dataset
    if set(columns) != set(dataset.columns):
        raise DataError(dataset.name, "observations", list(dataset.columns), list(columns))
    order = [dataset.columns.index(name) for name in columns]
    rows, offset = dataset.transitions, dataset.offset
    rows = rows._replace(
        observations=rows.observations[:, order], next_observations=rows.next_observations[:, order]
    )
    offset = None if offset is None else offset[order]
    return replace(dataset, transitions=rows, offset=offset, columns=tuple(columns))
