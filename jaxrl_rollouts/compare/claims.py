"""Claims in two lines: what is said, the values that decide, the bound, what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ..reports.claims import Claim
from ..reports.report import Report


def claims(report: Report, source: str) -> Callable[..., Claim]:
    """`add_claim` for one report and, where a claim names no other, one source.

    claim = claims(report, SOURCE)
    claim("RAVL is near-optimal", ravl["percent"], at_least=90, means="of the optimal return")
    """
    return functools.partial(add_claim, report, source=source)


def add_claim(
    report: Report,
    name: str,
    values: ArrayLike,
    *,
    means: str,
    source: str,
    at_least: float | None = None,
    at_most: float | None = None,
    between: tuple[float, float] | None = None,
    statistic: str = "iqm",
) -> Claim:
    """Add the claim that `statistic(values)` lies within the bounds; one that fails is added too.

    Args:
        report, name: where it goes; unique there.
        values: `[seeds]` or `[seeds, tasks]`.
        means: what the values are and what is expected of them, in words.
        source: paper, section, table.
        at_least, at_most, between: exactly one of them.
        statistic: see `Claim`.

    Raises:
        ValueError: no bound, or several, or the report has a claim of that name.
    """
    if sum(bound is not None for bound in (at_least, at_most, between)) != 1:
        raise ValueError(f"{name}: expected one of at_least, at_most and between")
    low, high = between or (at_least, at_most)
    low, high = (None if bound is None else float(bound) for bound in (low, high))
    rows = tuple(np.atleast_1d(np.asarray(values, np.float64)).tolist())
    return report.claim(Claim(name, source, means, rows, low, high, statistic))
