"""An `Inspection` on the terminal and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxrl_rollouts.errors import DataError, one_line, printable

from .inspection import QUANTILES, Inspection, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _GREY, _INK = "#2f6f9f", "#8a8f98", "#30343b"
_RED, _ORANGE = "#b5483a", "#d98b2b"
_SHOWN = 24  # ranges listed before the rest is counted


def _number(value: float) -> str:
    if not np.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _headline(found: Inspection) -> str:
    environment = f", {found.environment}" if found.environment else ""
    return printable(f"{found.name} ({found.format}{environment})")


def _endings(found: Inspection) -> str:
    text = f"{found.episodes:,}: {found.terminated:,} terminated, {found.truncated:,} truncated"
    text += f" ({found.cut_short:,} before the limit)" if found.cut_short else ""
    return text + (f", {found.unfinished} unfinished" if found.unfinished else "")


def warnings_of(found: Inspection) -> list[str]:
    texts = []
    for entry in found.suspicions:
        listed = ", ".join(map(str, entry.rows)) + (
            ", ..." if entry.count > len(entry.rows) else ""
        )
        rows = f" (row {listed})" if entry.rows else ""
        hint = f"; {entry.hint}" if entry.hint else ""
        texts.append(f"{entry.array}: {entry.kind}: {entry.count:,}{rows}{hint}")
    return texts


def _summary(found: Inspection) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("rows", f"{found.rows:,}")
    sizes = f"{found.observation_size} observation, {found.action_size} action entries"
    table.add_row("columns", sizes)
    if found.action_bounds not in ("", "[-1, 1]"):
        table.add_row("actions", Text(f"rescaled to [-1, 1] from {found.action_bounds}"))
    table.add_row("episodes", _endings(found))
    table.add_row("time limit", "not seen" if found.time_limit is None else f"{found.time_limit}")
    if found.normalised_return is not None:
        score = f"{found.normalised_return:.1f} +- {found.normalised_std:.1f}"
        table.add_row(found.score_label, f"{score} (std over whole episodes)")
    else:
        where = "in the metadata, nor" if found.format == "minari" else ""
        none = " ".join(f"none: no reference returns {where} for this name".split())
        table.add_row(found.score_label, none)
    table.add_row("file", Text(printable(found.source)))
    table.add_row("sha256", found.sha256[:16])
    return table


def _spreads(found: Inspection) -> Table:
    heads = ["min" if q == 0 else "max" if q == 1 else f"{100 * q:g} %" for q in QUANTILES]
    table = Table("per episode", "mean", "std", *heads, box=None, header_style="bold")
    rows: list[tuple[str, Spread | None]] = [("return", found.returns)]
    if found.cut_short:
        rows.append(("return, cut ones too", found.returns_finished))
    rows.append(("length", found.lengths))
    for name, spread in rows:
        if spread is not None:
            values = (spread.mean, spread.std, *spread.quantiles)
            table.add_row(name, *(_number(value) for value in values))
    return table


def _ranges(found: Inspection) -> Table:
    table = Table("column", "min", "max", "mean", "std", box=None, header_style="bold")
    tail = [r for r in found.ranges if not r.column.startswith("observations")]
    shown = [r for r in found.ranges if r.column.startswith("observations")][:_SHOWN]
    for entry in [*shown, *tail[:_SHOWN]]:
        values = (entry.low, entry.high, entry.mean, entry.std)
        table.add_row(Text(entry.column), *(_number(value) for value in values))
    hidden = len(found.ranges) - len(shown) - len(tail[:_SHOWN])
    if hidden:
        table.add_row(f"... {hidden} more")
    return table


def print_inspection(found: Inspection, console: Console | None = None) -> None:
    """Print tables to `console`, standard output by default."""
    console = console or Console()
    console.print(Text(_headline(found), style="bold"))
    console.print(_summary(found))
    for table in (_spreads(found), _ranges(found)):
        console.print()
        console.print(table)
    console.print()
    if found.read_as:
        console.print(Text(printable(found.read_as)))
    for problem in found.problems:
        console.print(Text(f"problem: {problem}", style="bold red"))
    for text in warnings_of(found):
        console.print(Text(f"look at: {text}", style="yellow"))
    if not found.problems and not found.suspicions:
        console.print(Text("nothing suspicious", style="green"))


def _style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=_INK)
    axes.set_xlabel(x, fontsize=9, color=_INK)
    axes.set_ylabel(y, fontsize=9, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)


def _histogram(axes: Axes, values: np.ndarray, mark: float | None, text: str) -> None:
    low, high = float(values.min()), float(values.max())
    # Equal values get one bar in the middle of a readable axis.
    pad = max(1.0, 0.05 * abs(low)) if low == high else 0.0
    bins = 21 if low == high else min(40, max(10, len(values) // 5))
    counts, _, _ = axes.hist(
        values, bins=bins, range=(low - pad, high + pad), color=_BLUE, edgecolor="white", lw=0.4
    )
    axes.set_ylim(0, 1.15 * float(np.max(counts)))  # room for the label
    axes.ticklabel_format(axis="x", useOffset=False)
    if mark is not None:
        left = mark < (low + high) / 2
        axes.axvline(mark, color=_RED, lw=1.2)
        axes.annotate(
            text,
            (mark, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(4 if left else -4, -2),
            textcoords="offset points",
            ha="left" if left else "right",
            va="top",
            fontsize=8,
            color=_RED,
        )


def _curve(axes: Axes, values: np.ndarray, whole: np.ndarray) -> None:
    index = np.arange(len(values))
    axes.plot(index[whole], values[whole], ".", ms=3.5, color=_GREY, label="whole")
    if not whole.all():
        style = {"ls": "", "marker": "o", "ms": 3.5, "mfc": "none", "color": _ORANGE}
        axes.plot(index[~whole], values[~whole], label="cut short", **style)
    index, values = index[whole], values[whole]
    window = len(values) // 20
    if window > 1:
        kernel = np.ones(window) / window
        centre = np.convolve(index, kernel, mode="valid")
        mean = np.convolve(values, kernel, mode="valid")
        axes.plot(centre, mean, color=_BLUE, lw=1.5, label=f"mean of {window}")
    axes.ticklabel_format(axis="y", useOffset=False)
    # Above the axes, opposite the title: inside it would hide episodes.
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 3}
    axes.legend(fontsize=8, frameon=False, columnspacing=1.2, handletextpad=0.3, **place)


def draw_inspection(found: Inspection, path: str | Path) -> None:
    """Write a picture: returns and lengths, each as histogram and in file order.

    Raises:
        DataError: the picture cannot be written there.
    """
    path = Path(path)
    # Imported here: loading data needs no pictures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    known = found.normalised_return is not None
    score = f", {found.score_label} {found.normalised_return:.1f}" if known else ""
    title = f"{_headline(found)}\n{found.rows:,} rows; episodes {_endings(found)}{score}"
    figure.suptitle(title, fontsize=11, color=_INK, ha="left", x=0.01)
    notes = [*found.problems, *warnings_of(found)]
    if notes:
        text = "\n".join(f"look at: {note[:140]}" for note in notes[:3])
        figure.supxlabel(text, fontsize=8, color=_RED, ha="left", x=0.01)
    grid = figure.subplots(2, 2, width_ratios=(2, 3))
    whole = np.array(found.episode_whole, bool)
    returns, lengths = np.array(found.episode_returns), np.array(found.episode_lengths, float)
    for row, (values, name, spread) in enumerate(
        ((returns, "return", found.returns), (lengths, "length (steps)", found.lengths))
    ):
        _style(grid[row, 0], f"{name}: how often", name, "episodes")
        _style(grid[row, 1], f"{name}: in file order", "episode", name)
        finite = np.isfinite(values)
        if not finite.any():
            for axes in grid[row]:
                axes.text(0.5, 0.5, "no episodes", ha="center", transform=axes.transAxes)
            continue
        mean = None if spread is None or not np.isfinite(spread.mean) else spread.mean
        what = "mean of whole ones" if row == 0 and not whole.all() else "mean"
        text = "" if mean is None else f"{what} {_number(mean)}"
        _histogram(grid[row, 0], values[finite], mean, text)
        _curve(grid[row, 1], values[finite], whole[finite])
    try:
        canvas.print_figure(path, dpi=130)
    except (OSError, ValueError) as error:
        raise DataError(path, "picture", one_line(error), "a place and format to write") from error
