"""Gymnasium's spaces as columns, each with a name, in the order of the space itself.

A `Dict` space keeps the order of its keyword arguments; only plain dictionaries are sorted. So data
and simulator may hold the same parts in another order: names are what identifies a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.outside import to_array

SCOPE = "only vectors of real numbers are supported, as observations and as actions"


class UnsupportedSpaceError(ValueError):
    """A space that has no columns here; the message names it and its part."""


def column_names(space: Any, part: str = "") -> tuple[str, ...]:
    """A name for each column of a flattened space; `part` names one of several."""
    inner = _inner(space)
    if inner is not None:
        names = [column_names(s, f"{part}.{key}" if part else str(key)) for key, s in inner.items()]
        return tuple(name for one in names for name in one)
    size = _size(space, part)
    return (part or "0",) if size == 1 else tuple(f"{part}[{i}]" for i in range(size))


def is_flat(space: Any) -> bool:
    """Whether a space is one vector of real numbers, whose columns have no names."""
    return type(space).__name__ == "Box" and len(space.shape) == 1


def flatten(space: Any, values: Any, rows: bool = False) -> np.ndarray:
    """What a space describes as columns `[S]`, or `[N, S]` with `rows` first."""
    inner = _inner(space)
    if inner is not None:
        parts = [flatten(one, values[key], rows) for key, one in inner.items()]
        return np.concatenate(parts, -1)
    kind, array = type(space).__name__, plain_array(values)
    if kind == "Discrete" and not rows and array.size == 1:
        array = array.reshape(())
    expected = array.shape[:1] * rows + tuple(space.shape)
    if array.shape != expected:
        raise ValueError(f"shape {list(array.shape)}, expected {list(expected)}")
    if kind == "Discrete":
        return _one_hot(array - space.start, int(space.n))
    if kind == "MultiDiscrete":
        starts = np.zeros_like(space.nvec) if space.start is None else space.start
        parts = [
            _one_hot(array[..., i] - starts[i], int(n)) for i, n in enumerate(space.nvec.tolist())
        ]
        return np.concatenate(parts, -1)
    return array.reshape(*array.shape[:1] * rows, -1)


def plain_array(values: Any) -> np.ndarray:
    """`values` as numpy; `ValueError` of masked entries, lists of several lengths and objects."""
    try:
        return to_array("", "", values)
    except DataError as error:
        raise ValueError(str(error.found)) from error


def _one_hot(index: np.ndarray, size: int) -> np.ndarray:
    if index.dtype.kind == "f" and (index != np.floor(index)).any():
        raise ValueError("a number that is not whole, for one of several kinds")
    if ((index < 0) | (index >= size)).any():
        raise ValueError(f"a value outside the {size} of the space")
    return np.eye(size, dtype=np.float32)[index.astype(np.int64)]


def _inner(space: Any) -> Mapping[Any, Any] | None:
    """The parts of a `Dict` or `Tuple`; None of others."""
    kind = type(space).__name__
    if kind == "Dict":
        return space.spaces
    return dict(enumerate(space.spaces)) if kind == "Tuple" else None


def _size(space: Any, part: str) -> int:
    kind, of = type(space).__name__, f" in part {part}" if part else ""
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete" and space.nvec.ndim == 1:
        return int(space.nvec.sum())
    if kind not in ("Box", "MultiBinary"):
        raise UnsupportedSpaceError(f"a {kind} space{of}")
    if len(space.shape) > 1:
        raise UnsupportedSpaceError(f"a {kind} space of shape {tuple(space.shape)}{of}")
    return int(np.prod(space.shape))
