"""Aggregates over seeds and tasks, with stratified bootstrap intervals.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(arXiv:2108.13264): the interquartile mean, and percentile intervals from resampling seeds within
each task. Arrays are `[seeds]` (one task) or `[seeds, tasks]`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Resampling fewer seeds than this gives no more than their lowest and highest.
FEWEST = 5


def iqm(x: ArrayLike, axis: int | None = None) -> Any:
    """Interquartile mean: the mean without the lowest and highest `floor(n / 4)` values.

    Fewer than four values have nothing to trim, so this is their mean.
    """
    values = np.asarray(x, np.float64)
    if axis is None:
        values, axis = values.reshape(-1), 0
    count = values.shape[axis]
    cut = count // 4
    kept = np.take(np.sort(values, axis=axis), np.arange(cut, count - cut), axis=axis)
    # A NaN sorts to the end and would be trimmed away: a diverged seed must not vanish.
    return np.where(np.isnan(values).any(axis=axis), np.nan, kept.mean(axis=axis))[()]


def _iqm(x: Array) -> Array:
    return iqm(x.reshape(*x.shape[:-2], -1), axis=-1)


def _mean(x: Array) -> Array:
    return x.mean(axis=(-2, -1))


def _median(x: Array) -> Array:
    # Over the tasks' means as in the paper; with one task, over its seeds.
    return np.median(x[..., 0] if x.shape[-1] == 1 else x.mean(axis=-2), axis=-1)


# Each reduces [..., seeds, tasks] to [...].
STATISTICS: Mapping[str, Callable[[Array], Array]] = {
    "iqm": _iqm,
    "mean": _mean,
    "median": _median,
}


def _two_axes(values: ArrayLike) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(f"values: found shape {array.shape}, expected [seeds] or [seeds, tasks]")
    return array[:, None] if array.ndim == 1 else array


def aggregate(values: ArrayLike, statistic: str = "iqm") -> float:
    """One number for `[seeds]` or `[seeds, tasks]` values.

    "iqm" trims over all runs of all tasks; "mean" averages; "median" is over the tasks' means
    (over the seeds where there is one task).
    """
    return float(STATISTICS[statistic](_two_axes(values)))


def bootstrap_interval(
    values: ArrayLike,
    statistic: str = "iqm",
    *,
    generator: np.random.Generator | None = None,
    level: float = 0.95,
    resamples: int = 2000,
) -> tuple[float, float]:
    """Percentile interval of a statistic, resampling seeds within each task.

    Args:
        values: `[seeds]` or `[seeds, tasks]`.
        generator: source of randomness; None makes one from seed 0, so that a report remade from
            the same numbers is the same.

    Returns:
        Lower and upper end. With a single seed both are the value: one run has no information on
        the spread. NaN when any value is NaN.
    """
    x = _two_axes(values)
    if not np.isfinite(x).all():
        return (np.nan, np.nan)
    generator = np.random.default_rng(0) if generator is None else generator
    seeds, tasks = x.shape
    rows = generator.integers(seeds, size=(resamples, seeds, tasks))
    estimates = STATISTICS[statistic](x[rows, np.arange(tasks)])
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def spread(values: ArrayLike, statistic: str = "iqm", **settings: Any) -> tuple[float, float]:
    """What is shown around a number: `bootstrap_interval`, or the range of fewer than five seeds.

    Args:
        values: `[seeds]` or `[seeds, tasks]`; of the tasks each seed's mean counts for the range.
        statistic: "iqm", "mean" or "median".
        settings: settings of `bootstrap_interval`.

    Returns:
        Lower and upper end; NaN when any value is NaN. `spread_name` says which it is.
    """
    x = _two_axes(values)
    if len(x) >= FEWEST or not np.isfinite(x).all():
        return bootstrap_interval(values, statistic, **settings)
    return float(x.mean(1).min()), float(x.mean(1).max())


def spread_name(seeds: int) -> str:
    """What `spread` is, of so many seeds: `95 % bootstrap interval` or `range of 2 seeds`."""
    return "95 % bootstrap interval" if seeds >= FEWEST else f"range of {seeds} seeds"


@dataclass(frozen=True)
class Summary:
    """A number with what it rests on.

    Attributes:
        values: `[seeds]` or `[seeds, tasks]`, as nested tuples.
        mean: their mean.
        iqm: their interquartile mean.
        seeds: number of seeds.
        unit: unit of the values, "" for none.
    """

    values: tuple[Any, ...]
    mean: float = field(init=False)
    iqm: float = field(init=False)
    seeds: int = field(init=False)
    unit: str = ""

    def __post_init__(self) -> None:
        array = np.asarray(self.values, np.float64)
        computed = {
            "values": tuple(tuple(v) if isinstance(v, list) else v for v in array.tolist()),
            "mean": aggregate(array, "mean"),
            "iqm": aggregate(array, "iqm"),
            "seeds": len(array),
        }
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """95 % stratified bootstrap interval of the interquartile mean.

        Computed at its first use: a report that is read has thousands of numbers.
        """
        return bootstrap_interval(np.asarray(self.values, np.float64), "iqm")


def summarize(values: ArrayLike, unit: str = "") -> Summary:
    """The `Summary` of a scalar, `[seeds]` or `[seeds, tasks]`."""
    return Summary(tuple(np.atleast_1d(np.asarray(values, np.float64))), unit=unit)
