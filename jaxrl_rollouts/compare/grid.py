"""A grid of arms: each trained with all seeds side by side, resumed, and read as numbers.

grid = run_grid({"method": ("base", "ravl")}, train, context, seeds=5)
report.table("after training", grid.rows({"return": "return", "estimated": "estimated_value"}))
grid["ravl"]["return"] - grid["base"]["return"]  # [seeds]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from ..errors import DivergenceError
from ..loop import Trained
from ..record.arrays import remember
from ..record.context import RunContext
from ..record.folder import MEASURED
from ..record.history import History
from ..reports.statistics import summarize

Measure = Callable[[], Mapping[str, Any]]
Column = str | Callable[["Cell"], Any]


@dataclass(frozen=True)
class Cell:
    """One arm, all seeds: what its training recorded and what was measured afterwards.

    Attributes:
        history: history of the training; None where nothing was trained.
        extra: more by name: arrays `[seeds, ...]`, and further columns of tables.
        measure: makes more of `extra`. `run_grid` calls it and keeps its arrays in the stage's
            folder, so that a resumed run does not measure again.
        per_iteration: gradient steps of a recorded iteration.
        seconds: spent in compiled training.
        rate: `tau (1 - gamma)` of critics that bootstrap from slow copies of themselves: the share
            of the way to their fixed point that values go in a gradient step; None without any.
        seeds, diverged: number of seeds, and whether training failed on non-finite numbers (every
            metric is then NaN); filled in by `run_grid`.
        point: the value of every axis of the grid it lies in.
    """

    history: History | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    measure: Measure | None = None
    per_iteration: int = 1
    seconds: float = np.nan
    rate: float | None = None
    seeds: int = 0
    point: Mapping[str, Any] = field(default_factory=dict)
    diverged: bool = False

    @classmethod
    def of(
        cls,
        trained: Trained,
        extra: Mapping[str, Any] | None = None,
        *,
        measure: Measure | None = None,
        per_iteration: int = 1,
        rate: float | None = None,
    ) -> Cell:
        """What `train_loop` returned; the state is not kept."""
        return cls(trained.history, extra or {}, measure, per_iteration, trained.run_seconds, rate)

    @property
    def time_constants(self) -> float | None:
        """`n tau (1 - gamma)` after all n gradient steps; None without critics, or diverged."""
        if self.rate is None or self.history is None or not self.history.records:
            return None
        return self.history.records[-1].iteration * self.per_iteration * self.rate

    def __getitem__(self, key: Any) -> np.ndarray:
        """A metric at the end, `[seeds]`, or an array of `extra`; also a part of one.

        `cell["error", :, 20:]` is `cell["error"][:, 20:]`. In a cell that diverged it is NaN, with
        one entry along every axis but the seeds', so that means over parts are `[seeds]` there too.
        """
        metric, *index = key if isinstance(key, tuple) else (key,)
        if self.diverged:
            axes = [i for i in index[1:] if not isinstance(i, int | np.integer)]
            return np.full((self.seeds, *[1] * len(axes)), np.nan)
        if metric in self.extra:
            return np.asarray(self.extra[metric])[tuple(index)]
        if self.history is None:
            raise KeyError(f"{metric}: not measured; measured are {sorted(self.extra)}")
        return self.history.last(metric)[tuple(index)]

    def __contains__(self, metric: str) -> bool:
        """Whether a metric was recorded or measured; one that diverged has every metric."""
        recorded = self.history.records if self.history else []
        return self.diverged or metric in self.extra or any(metric in r.metrics for r in recorded)

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Gradient steps `[points]` and values `[seeds, points]` of a recorded metric."""
        if self.diverged:
            return np.zeros(0), np.zeros((self.seeds, 0))
        if self.history is None:
            raise KeyError(f"{metric}: nothing was trained")
        iterations, values = self.history.curve(metric)
        return iterations * self.per_iteration, values.T


class Grid(Mapping[Any, Cell]):
    """Cells by point, in the order they were run.

    The key of a cell is the tuple of its values, or the value itself where there is one axis.
    """

    def __init__(self, axes: Sequence[str], cells: Mapping[tuple, Cell]) -> None:
        self.axes = tuple(axes)
        self.cells = {
            point: replace(cell, point=dict(zip(axes, point, strict=True)))
            for point, cell in cells.items()
        }

    def __getitem__(self, key: Any) -> Cell:
        return self.cells[(key,) if len(self.axes) == 1 else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(p[0] if len(self.axes) == 1 else p for p in self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    def at(self, **fixed: Any) -> Grid:
        """The cells where these axes have these values, by the other axes."""
        rest = [axis for axis in self.axes if axis not in fixed]
        chosen = {
            tuple(cell.point[axis] for axis in rest): cell
            for cell in self.cells.values()
            if fixed.items() <= cell.point.items()
        }
        return Grid(rest, chosen)

    @property
    def trained(self) -> Grid:
        """Without the cells that diverged: what can be drawn."""
        return Grid(self.axes, {p: c for p, c in self.cells.items() if not c.diverged})

    def rows(self, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
        """A table's rows: the axes, then per column a metric or a function of the cell.

        A function may return anything a table holds; arrays `[seeds]` are summarised.
        """
        return [
            dict(cell.point) | {name: _entry(cell, column) for name, column in columns.items()}
            for cell in self.cells.values()
        ]


def _entry(cell: Cell, column: Column) -> Any:
    value = cell[column] if isinstance(column, str) else column(cell)
    return summarize(value) if isinstance(value, np.ndarray) else value


def run_grid(
    axes: Mapping[str, Sequence[Any]] | Sequence[str],
    train: Callable[..., Cell],
    context: RunContext | None,
    *,
    seeds: int,
    points: Iterable[tuple] | None = None,
    stage: str = "",
    clear: bool = True,
) -> Grid:
    """Train every arm; one that diverges becomes a cell of NaN and the others continue.

    Args:
        axes: name -> values (text or numbers); their product is run, the last axis fastest. With
            `points`, names are enough.
        train: `(*values, stage) -> Cell`, all seeds of one arm; `stage` names its folder in the
            run, where it resumes by itself.
        context: context of the run; None keeps nothing.
        seeds: number of seeds per cell.
        points: cells to run, in this order, in place of the product.
        stage: optional prefix of the stages' names.
        clear: drop the compiled programs after each arm; False where arms share them.
    """
    cells = {}
    if points is None:
        assert isinstance(axes, Mapping), "values or points are needed"
        points = itertools.product(*axes.values())
    for point in points:
        name = stage_name(*([stage] if stage else []), *point)
        try:
            cell = train(*point, stage=name)
            if cell.measure is not None:
                measured = remember(context, name, MEASURED, cell.measure)
                cell = replace(cell, extra={**cell.extra, **measured}, measure=None)
        except DivergenceError:
            cell = Cell(diverged=True)
        cells[point] = replace(cell, seeds=seeds)
        if clear:
            jax.clear_caches()  # an arm's programs are not needed again
    return Grid(tuple(axes), cells)


def stage_name(*values: Any) -> str:
    """A plain folder name of an arm's values."""
    texts = (f"{v:g}" if isinstance(v, float) else str(v) for v in values)
    return "-".join(texts).replace(" ", "-").replace("/", "-")
