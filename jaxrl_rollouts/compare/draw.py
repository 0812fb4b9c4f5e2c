"""Plots of comparisons: training curves of the cells of a grid, and levels.

Functions take axes, so that they can be put together:

with picture(report, "training", "Return while training.", titles=("Return", "Loss")) as axes:
    curves(axes[0], grid, "return")
    level(axes[0], optimum, "optimum")
    curves(axes[1], grid, "loss")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..reports import pictures
from ..reports.report import Report
from .grid import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def picture(
    report: Report,
    name: str,
    caption: str,
    *,
    titles: Sequence[str] = ("",),
    columns: int | None = None,
    legend: bool = True,
    **size: Any,
) -> Iterator[list[Axes]]:
    """A picture of the report with a panel per title, in rows of `columns` (None: in one row).

    What has a label is in its legend. `size` is for `pictures.figure`: width, height, title,
    sharex, sharey.
    """
    across = min(columns or len(titles), len(titles))
    figure, axes = pictures.figure(-(-len(titles) // across), across, titles=titles, **size)
    for ax in axes[len(titles) :]:
        ax.set_visible(False)
    yield axes[: len(titles)]
    if legend:
        pictures.legend(figure, axes[: len(titles)])
    report.picture(name, figure, caption)


def curves(
    ax: Axes,
    cells: Mapping[Any, Cell],
    metric: str,
    *,
    label: Callable[[Any], str] = str,
    scale: float = 1.0,
    **style: Any,
) -> None:
    """A metric recorded while training, times `scale`, over gradient steps: a line per cell.

    Cells that diverged are left out; the `label` of a key decides the colour, `style` is for
    `curve_with_band`: `colours` among it.
    """
    for key, cell in cells.items():
        if not cell.diverged:
            steps, values = cell.curve(metric)
            pictures.curve_with_band(ax, steps, scale * values, label(key), **style)
    ax.set_xlabel("gradient steps")


def level(ax: Axes, value: float, label: str = "", *, linestyle: str = "--", **style: Any) -> None:
    """A horizontal line: an optimum, a threshold, what the behaviour earned."""
    style = {"color": "black", "linewidth": 0.8} | style
    ax.axhline(value, linestyle=linestyle, label=label or None, **style)
