"""Claims in two lines, and the clock of bootstrapped critics by which they are read.

A target network that takes a share tau of its critic at every gradient step makes values follow
`dQ/dn = tau (r - (1 - gamma) Q)`: after n steps at most `1 - exp(-n tau (1 - gamma))` of any value
has been reached, of those that explode, too. Before 3 time constants every method looks alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..reports.claims import TIME_CONSTANTS, Claim
from ..reports.report import Report
from .grid import Cell

LAST = 0.2  # share of the training over which slope and residual are read
EXPLAINED = (
    "Time constants: n tau (1 - gamma) after n gradient steps. Slope: change of the mean Bellman "
    "target per time constant over the last fifth, as a share of its size; 0 once settled. "
    "Residual: root mean squared Bellman error."
)
TARGETS = ("target_mean", "q_real")  # what learners record of their values; the first there is


def clock_rows(cells: Mapping[Any, Cell], **same: Any) -> list[dict[str, Any]]:
    """Rows of the table `clock`: of every cell with bootstrapped critics how late it was read.

    `slope` is that of the mean Bellman target (of the value on the data, where no target is
    recorded) over the last fifth of the training, as a share of its mean size there, per time
    constant: 0 where values have settled. `residual` is the root of
    the mean squared Bellman error of a critic there, in the units of values.

    Args:
        cells: by name of the arm.
        **same: columns before it, the same in all rows (`dataset=...`).
    """
    rows = []
    for name, cell in cells.items():
        read = (_target(cell), "critic_loss")
        if cell.time_constants is None or not all(metric in cell for metric in read):
            continue
        row: dict[str, Any] = {**same, "arm": name}
        row |= {"gradient steps": int(cell.time_constants / (cell.rate or 1) + 0.5)}
        row |= {"time constants": cell.time_constants, "slope": slope(cell)}
        rows.append(row | {"residual": residual(cell)})
    return rows


def add_clock(report: Report, rows: list[dict[str, Any]], name: str = "clock") -> None:
    """Add `clock_rows` as a table, where there are any, and a note where values came too early."""
    if not rows:
        return
    report.table(name, rows, EXPLAINED)
    least = min(row["time constants"] for row in rows)
    if least < TIME_CONSTANTS:
        report.note(
            f"{name.capitalize()}: values were read after {least:.2g} time constants of the "
            f"critics. By then at most {100 * -np.expm1(-least):.0f} % of a value is reached; "
            f"claims are read from {TIME_CONSTANTS:g} on."
        )


def slope(cell: Cell) -> np.ndarray:
    """Least-squares slope of the mean target over the last fifth, per time constant and as a share
    of its mean size there, `[seeds]`; NaN with fewer than two records."""
    steps, target = _last(cell, _target(cell))
    if len(steps) < 2:
        return np.full(len(target), np.nan)
    clock = (steps - steps.mean()) * (cell.rate or np.nan)
    rise = (target - target.mean(1, keepdims=True)) @ clock / (clock @ clock)
    return rise / np.maximum(np.abs(target).mean(1), 1e-12)


def residual(cell: Cell) -> np.ndarray:
    """Root mean squared Bellman error over the last fifth, `[seeds]`."""
    return np.sqrt(_last(cell, "critic_loss")[1].mean(1))


def _target(cell: Cell) -> str:
    return next((name for name in TARGETS if name in cell), TARGETS[0])


def _last(cell: Cell, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Gradient steps `[n]` and values `[seeds, n]` of the last fifth of the training."""
    steps, values = cell.curve(metric)
    late = steps >= (1 - LAST) * steps[-1]
    return steps[late].astype(float), np.asarray(values, float)[:, late]


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
        means: description of the values and of their expected range.
        cells: whose critics' values, or returns, these are; read before 3 time constants of any of
            them, the claim is "not converged".
        time_constants: time constants of critics whose cells do not state them.
        claim: source, bound, `statistic` and `undecided`, as of `Claim.of`.
    """
    clocks = (time_constants, *(cell.time_constants for cell in cells))
    late = min((clock for clock in clocks if clock is not None), default=None)
    return report.claim(Claim.of(name, values, expected=means, time_constants=late, **claim))
