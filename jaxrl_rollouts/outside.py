"""Conversion of all external arrays, of a user, a file or a simulator, to numpy."""

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


WIDE = "its range is too wide for steps of this size"
ROUNDED = 0.01  # share of a column's median change that rounding to float32 may take
NOISE = 1e-13  # of a column's largest number: what float64 arithmetic leaves of a constant


def rounding_loss(values: np.ndarray) -> np.ndarray:
    """Error of rounding columns `[N, F]` to float32, over their median change from row to row.

    Columns without a change, or none beyond `NOISE`, and those that float32 holds as they are, have
    no loss.
    """
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4 or len(values) < 2:
        return np.zeros(values.shape[1])
    loss = np.zeros(values.shape[1])
    for index, column in enumerate(np.asarray(values, np.float64).T):
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(column - column.astype(np.float32))
            change = np.abs(np.diff(column))
            least = NOISE * np.fmax.reduce(np.abs(column[np.isfinite(column)]), initial=0.0)
        change, error = change[change > least], error[np.isfinite(error)]
        if len(change) and len(error):
            loss[index] = error.max() / np.median(change)
    return loss


def warn_of_rounding(source: str | Path, key: str, values: np.ndarray, hint: str) -> None:
    """Warn of columns `[N, F]` whose changes float32 loses (`ROUNDED`)."""
    loss = rounding_loss(values)
    for index in np.flatnonzero(loss > ROUNDED):
        warnings.warn(
            f"{source}: {key}[{index}]: float32 rounds it by {100 * loss[index]:.2g} % of its "
            f"median change from row to row; {hint}",
            stacklevel=3,
        )


def find_offset(source: str | Path, key: str, values: np.ndarray) -> np.ndarray | None:
    """What to subtract from columns `[N, S]` so that float32 holds their changes.

    Returns:
        `[S]` float64, the median of columns that lose more than `ROUNDED` of their median change
        and 0 of the others; None where that is all of them.

    Warns:
        UserWarning: columns lose precision all the same.
    """
    bad = np.flatnonzero(rounding_loss(values) > ROUNDED)
    offset = np.zeros(values.shape[1])
    for index in bad.tolist():
        column = np.asarray(values[:, index], np.float64)
        # Itself a float32: compiled simulators subtract it without another rounding.
        middle = float(np.float32(np.median(column[np.isfinite(column)])))
        offset[index] = middle if np.isfinite(middle) else 0.0
    if len(bad):
        warn_of_rounding(source, key, np.asarray(values, np.float64) - offset, WIDE)
    return offset if offset.any() else None


def subtract(values: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """`[..., S]` float32, less an offset that is subtracted in float64."""
    with np.errstate(over="ignore"):  # an overflow becomes inf
        if offset is not None:
            values = np.asarray(values, np.float64) - offset
        return np.ascontiguousarray(values, dtype=np.float32)
