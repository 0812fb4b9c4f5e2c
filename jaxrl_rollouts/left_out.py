"""Missing rows or frames, and swapped ones.

What follows is predicted by least squares: one step ahead, two steps ahead and one step back. Where
one step explains a change badly and two explain it well, something was left out between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .suspicions import RARE, Odd

LAGS = (1, 2, -1)
TAIL = 3.0  # of Student's t, in which a residual counts by its logarithm
LEFT_OUT = 0.35  # mean log ratio of residuals from which two steps explain a change better
SWAPPED = 0.3  # the same of a step back
ABOVE = 1.0  # how far such a ratio is above those around
SWAPPED_ABOVE, BESIDE = 0.8, 0.5  # and, of a step back, that of two steps before or after it
AROUND = 6  # changes on either side that are called around, without the next ones
FEW = 5  # such changes are never the nature of data; above, up to a share of `RARE`
LEAST = 1e-3  # of the median change: smaller residuals are rounding
RIDGE = 1e-8
ROWS = 8  # equations for each weight


class Scores(NamedTuple):
    """How much better than one step others explain each change, `[N, T]` float64; NaN: unknown.

    Attributes:
        two: two steps; a row or frame is left out where it is high.
        back: a step back; the two are in each other's place where it is high.
    """

    two: np.ndarray
    back: np.ndarray


def weights(features: np.ndarray, change: np.ndarray) -> np.ndarray:
    """`[..., K, F]` that predict `[..., R, F]` from `[..., R, K]`, least squares."""
    across = np.swapaxes(features, -1, -2)
    square = across @ features
    size = np.diagonal(square, 0, -2, -1)
    ridge = RIDGE * size + RIDGE**2 * size.mean(-1, keepdims=True) + np.finfo(np.float64).tiny
    return np.linalg.solve(square + ridge[..., None] * np.eye(size.shape[-1]), across @ change)


def scores(residuals: Mapping[int, np.ndarray], scale: np.ndarray) -> Scores:
    """Mean over columns of `log sqrt((TAIL + (e_1 / s)^2) / (TAIL + (e_k / s)^2))`.

    Args:
        residuals: `[N, T, F]` of each change by the prediction of each lag in `LAGS`.
        scale: `s`, the usual residual of one step, broadcast to these.
    """
    sizes = {lag: np.log(TAIL + np.square(residuals[lag] / scale)) for lag in LAGS}
    return Scores(*(0.5 * (sizes[1] - sizes[lag]).mean(-1) for lag in (2, -1)))


def usual(residual: np.ndarray, change: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Scale of a residual: the deviation of a normal of its median size, as `LEAST` allows."""
    least = LEAST * np.median(np.abs(change), axis, keepdims=True)
    found = 1.4826 * np.median(np.abs(residual), axis, keepdims=True)
    return np.maximum(np.maximum(found, least), np.finfo(np.float64).tiny)


def find_missing_steps(found: Scores) -> list[Odd]:
    """Changes over a step that is missing, and between two that stand in each other's place.

    Limits were measured by removing single rows or frames, or exchanging two, at 20 to 60 random
    places, on the sets on which the thresholds were chosen: other data may do worse. Nothing was
    reported of the sound data. Removed ones that are found: all on KS with 0.2 between frames and
    on Burgers, 98 % on HalfCheetah's medium rows. On Hopper and on replay rows it is half to three
    quarters, on KS with 0.8 between frames a fifth. Exchanged ones that are found: half to all on
    these, on KdV half.

    Little is found where one step is hard to predict, its residual above about 0.15 of the change:
    removed frames of KdV, 2-D flows in large steps, removed rows of random HalfCheetah. Nor is it
    where a field barely changes.

    Returns:
        `left out alone` and `out of order`, where there are any.
    """
    two, back = found
    high = back > SWAPPED
    above_back, above = _above(back, high), _above(two, (two > LEFT_OUT) | _next_to(high))
    beside = np.pad(above, ((0, 0), (1, 1)), constant_values=np.nan)
    beside = np.fmax(beside[:, 2:], beside[:, :-2])
    swapped = high & (above_back > SWAPPED_ABOVE) & (beside > BESIDE)
    missing = (two > LEFT_OUT) & (above > ABOVE) & ~swapped & ~_next_to(swapped)
    # The change after a missing step is predicted from a wrong speed.
    missing[:, 1:] &= ~missing[:, :-1]
    odd = {"left out alone": missing, "out of order": swapped}
    most = max(FEW, RARE * np.isfinite(two).sum())
    return [Odd(kind, np.argwhere(at)) for kind, at in odd.items() if 0 < at.sum() <= most]


def _next_to(places: np.ndarray) -> np.ndarray:
    """The changes before and after those, `[N, T]` bool."""
    wide = np.pad(places, ((0, 0), (1, 1)))
    return wide[:, 2:] | wide[:, :-2]


def _above(score: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The score at some places less the median of those around it, NaN elsewhere."""
    above, places = np.full(score.shape, np.nan), np.argwhere(where)
    padded = np.pad(score, ((0, 0), (AROUND, AROUND)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1, 1)
    others = np.delete(windows[tuple(places.T)], [AROUND - 1, AROUND, AROUND + 1], -1)
    some = np.isfinite(others).any(-1)
    at = tuple(places[some].T)
    above[at] = score[at] - np.nanmedian(others[some], -1)
    return above
