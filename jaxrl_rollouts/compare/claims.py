"""Claims in two lines: the claim, the values that decide, the bound, what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

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
    cells: Iterable[Cell] = (),
    time_constants: float | None = None,
    **claim: Any,
) -> Claim:
    """Add the claim that `statistic(values)` lies within the bounds; one that fails is added too.

    Args:
        report, name: where it goes; unique there.
        values: `[seeds]` or `[seeds, tasks]`.
        means: what the values are and what is expected of them, in words.
        cells: whose critics' values, or returns, these are; read before 3 time constants of any of
            them, the claim is "not converged".
        time_constants: of critics whose cells do not know them.
        claim: source, bound, `statistic` and `undecided`, as of `Claim.of`.
    """
    clocks = (time_constants, *(cell.time_constants for cell in cells))
    late = min((clock for clock in clocks if clock is not None), default=None)
    return report.claim(Claim.of(name, values, expected=means, time_constants=late, **claim))
