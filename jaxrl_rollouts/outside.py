"""The one door for arrays from outside: what a user, a file or a simulator gives, as numpy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError, one_line

RAGGED = "lists of several lengths"
MASKED = "leave those rows out, or fill them by a value that you choose: values.filled(...)"


def to_array(source: str | Path, key: str, values: Any) -> np.ndarray:
    """`values` as a numpy array of one shape, without masked entries; numbers are not checked."""
    hidden = _masked(values)
    if hidden:
        raise DataError(source, key, f"{hidden:,} masked entries", "none", MASKED)
    try:
        array = np.asarray(values)
    except ValueError as error:
        found = RAGGED if "inhomogeneous" in str(error) else one_line(error)
        raise DataError(source, key, found, "an array of one shape") from None
    except Exception as error:  # another library's: a tensor on a device, a frame of mixed columns
        raise DataError(source, key, one_line(error), "an array") from error
    if array.dtype.kind == "O":
        found = RAGGED if _ragged(array) else "Python objects"
        raise DataError(source, key, found, "an array of numbers of one shape")
    return array


def to_numbers(source: str | Path, key: str, values: Any) -> np.ndarray:
    """`to_array` of real numbers (floating point or whole); NaN and infinity are not checked."""
    array = to_array(source, key, values)
    if array.dtype.kind not in "fiu":
        raise DataError(source, key, f"dtype {array.dtype}", "a real number dtype")
    return array


def _masked(values: Any, depth: int = 2) -> int:
    """How many entries are masked; of lists also in the arrays that they hold."""
    if np.ma.isMaskedArray(values):
        return int(np.ma.count_masked(values))
    if depth and isinstance(values, list | tuple):
        return sum(_masked(value, depth - 1) for value in values)
    return 0


def _ragged(array: np.ndarray) -> bool:
    flat = array.ravel()[:1000]
    return any(isinstance(value, list | tuple | np.ndarray) for value in flat)


ROUNDED = 0.01  # share of a column's median change that rounding to float32 may take


def rounding_loss(values: np.ndarray) -> np.ndarray:
    """Error of rounding columns `[N, F]` to float32, over their median change from row to row.

    Columns without a change, and those that float32 holds as they are, have no loss.
    """
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4 or len(values) < 2:
        return np.zeros(values.shape[1])
    loss = np.zeros(values.shape[1])
    for index, column in enumerate(np.asarray(values, np.float64).T):
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(column - column.astype(np.float32))
            change = np.abs(np.diff(column))
        change, error = change[change > 0], error[np.isfinite(error)]
        if len(change) and len(error):
            loss[index] = error.max() / np.median(change)
    return loss


def warn_of_rounding(source: str | Path, key: str, values: np.ndarray) -> None:
    """Warn of columns `[N, F]` whose changes float32 loses (`ROUNDED`)."""
    loss = rounding_loss(values)
    for index in np.flatnonzero(loss > ROUNDED):
        warnings.warn(
            f"{source}: {key}[{index}]: float32 rounds it by {100 * loss[index]:.2g} % of its "
            "median change from row to row; subtract an offset from this column, in the data and "
            "in the environment",
            stacklevel=3,
        )
