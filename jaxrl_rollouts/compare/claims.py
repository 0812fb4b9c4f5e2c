"""Claims in two lines: the claim, the values that decide, the bound, what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from ..reports.claims import Claim
from ..reports.report import Report
from .grid import Cell


def claims(report: Report, source: str, cells: Iterable[Cell] = ()) -> Callable[..., Claim]:
    """`add_claim` for one report and, where a claim names no others, one source and these cells.

    claim = claims(report, SOURCE)
    claim("RAVL is near-optimal", ravl["percent"], at_least=90, means="of the optimal return")
    """
    return functools.partial(add_claim, report, source=source, cells=tuple(cells))


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
    cells: Iterable[Cell] = (),
    time_constants: float | None = None,
    undecided: str = "",
) -> Claim:
    """Add the claim that `statistic(values)` lies within the bounds; one that fails is added too.

    Args:
        report, name: where it goes; unique there.
        values: `[seeds]` or `[seeds, tasks]`.
        means: what the values are and what is expected of them, in words.
        source: paper, section, table.
        at_least, at_most, between: exactly one of them.
        statistic: see `Claim`.
        cells: whose critics' values, or returns, these are; read before 3 time constants of any of
            them, the claim is "not converged".
        time_constants: of critics whose cells do not know them.
        undecided: why values and bound cannot be compared; see `Claim`.

    Raises:
        ValueError: no bound, or several, or the report has a claim of that name.
    """
    if sum(bound is not None for bound in (at_least, at_most, between)) != 1:
        raise ValueError(f"{name}: expected one of at_least, at_most and between")
    low, high = between or (at_least, at_most)
    low, high = (None if bound is None else float(bound) for bound in (low, high))
    rows = tuple(np.atleast_1d(np.asarray(values, np.float64)).tolist())
    clocks = (time_constants, *(cell.time_constants for cell in cells))
    late = min((clock for clock in clocks if clock is not None), default=None)
    made = Claim(name, source, means, rows, low, high, statistic, "", late, undecided)
    return report.claim(made)
