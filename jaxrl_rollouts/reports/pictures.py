"""House style for figures: drawn on their own canvas, without pyplot's global state.

figure, axes = figure(1, 2, title="Edge of reach")
curve_with_band(axes[0], steps, returns, "RAVL")
report.picture("returns", figure, "Return of the policy while it trains")
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from ..configs import unknown
from ..record.files import replacing
from .names import PALETTE, SHOWN, colour, named
from .statistics import STATISTICS, Summary, iqm, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "image.cmap": "viridis",
}
DPI = 150
MAX_BYTES = 200_000
INSIDE = 4  # entries of a legend that leave room for curves
ENTRY = 1.1  # inches that one takes
FORMATS = "JAXRL_ROLLOUTS_PICTURES"  # variable of the environment: formats to write beside PNG
# Without dates and random names, so that the same figure gives the same bytes.
VECTOR = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def _unlike(ax: Axes, shade: str, label: str, linestyle: str) -> str:
    """`shade`, or the first of the palette that no other name has here in the same style."""
    same = (line for line in ax.get_lines() if line.get_linestyle() == linestyle)
    taken = {str(line.get_color()) for line in same if line.get_label() != label}
    return next((one for one in (shade, *PALETTE) if one not in taken), shade)


def figure(
    rows: int = 1,
    columns: int = 1,
    *,
    width: float = 3.4,
    height: float = 2.6,
    title: str = "",
    titles: Sequence[str] = (),
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row.

    `width` and `height` are inches per panel, `titles` are the panels'.
    """
    # Imported here: a training plots nothing before its report.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        made = Figure(figsize=(width * columns, height * rows + 0.25 * bool(title)))
        made.set_layout_engine("constrained")
        FigureCanvasAgg(made)
        axes = made.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
        if title:
            made.suptitle(title, fontsize=10)
        for ax, text in zip(axes.flat, titles, strict=False):
            ax.set_title(text)
    return made, list(axes.flat)


def curve_with_band(
    ax: Axes,
    x: ArrayLike,
    values: ArrayLike,
    label: str,
    *,
    colour_name: str | None = None,
    colours: Mapping[str, str] | None = None,
    linestyle: str = "-",
) -> None:
    """A curve of interquartile means with a band of their `spread`; a marker for a lone point.

    Args:
        ax: where.
        x: `[points]`.
        values: `[seeds, points]`; points with a non-finite seed leave a gap. One seed: no band.
        label: a key of `names.SHOWN`, whose name is shown, or any text; also decides the colour.
        colour_name: a matplotlib colour instead.
        colours: further labels and theirs; see `names.colour`.
        linestyle: matplotlib's.
    """
    array, points = np.asarray(values, np.float64), np.asarray(x)
    if array.ndim != 2 or array.shape[1:] != points.shape:
        raise ValueError(
            f"values: found shape {array.shape}, expected [seeds, points] with x {points.shape}"
        )
    shade = colour_name or colour(label, colours)
    assigned = colour_name is not None or label in SHOWN or label in (colours or {})
    label = named(label)
    if not assigned:
        shade = _unlike(ax, shade, label, linestyle)
    centre = np.where(np.isfinite(array).all(0), iqm(array, axis=0), np.nan)
    lone = np.isfinite(centre).sum() == 1  # a line of one point is not to be seen
    ax.plot(
        points, centre, color=shade, label=label, linestyle=linestyle, marker="o" if lone else ""
    )
    if len(array) > 1:
        band = np.array([spread(v, resamples=500) for v in array.T])
        ax.fill_between(points, band[:, 0], band[:, 1], color=shade, alpha=0.2, linewidth=0)
        if lone:
            ax.vlines(points, band[:, 0], band[:, 1], color=shade, alpha=0.5)


def intervals(
    ax: Axes,
    rows: Mapping[str, Summary | ArrayLike],
    *,
    statistic: str = "iqm",
    xlabel: str = "",
    colours: Mapping[str, str] | None = None,
) -> None:
    """Horizontal interval bars, one per method, in the manner of rliable.

    The bar is the `spread`, the dark line the statistic, the dots are seeds (their mean over
    tasks). Methods come in the order given, the first at the top; `colours` as for `colour`.
    """
    ax.use_sticky_edges = False  # else a bar ends at the frame
    for index, (name, row) in enumerate(rows.items()):
        array = np.asarray(row.values if isinstance(row, Summary) else row, np.float64)
        table = array.reshape(len(array), -1)
        shade = colour(name, colours)
        finite = np.isfinite(table).all()
        if finite:
            low, high = spread(table, statistic)
            middle = float(STATISTICS[statistic](table))
            ax.barh(index, high - low, left=low, height=0.55, color=shade, alpha=0.35)
            ax.vlines(middle, index - 0.275, index + 0.275, color=shade, linewidth=2.2)
        seeds = table.mean(1)
        seeds = seeds[np.isfinite(seeds)]
        ax.plot(seeds, np.full(len(seeds), index), "o", color=shade, markersize=2.5, alpha=0.9)
        if not finite:
            ax.annotate(
                "diverged",
                (0.99, index),
                xycoords=("axes fraction", "data"),
                fontsize=8,
                ha="right",
                va="center",
                color=shade,
            )
    ax.set_yticks(range(len(rows)), map(named, rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)


def legend(made: Figure, axes: Sequence[Axes], *, columns: int = 6) -> None:
    """One legend: a short one inside a single panel, else below, `columns` wide if they fit."""
    handles = {t: h for ax in axes for h, t in zip(*ax.get_legend_handles_labels(), strict=True)}
    if not handles:
        return
    if len(axes) == 1 and len(handles) <= INSIDE:
        axes[0].legend(frameon=False, fontsize=8)
        return
    wanted = min(len(handles), columns, max(int(made.get_figwidth() / ENTRY), 1))
    for ncols in range(wanted, 0, -1):  # the text's own width decides: long names need fewer
        drawn = made.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=ncols,
            frameon=False,
            fontsize=8,
        )
        if drawn.get_window_extent().width <= made.bbox.width or ncols == 1:
            return
        drawn.remove()


def formats() -> list[str]:
    """Formats to write beside PNG, by the variable `JAXRL_ROLLOUTS_PICTURES`: svg, pdf.

    Raises:
        ConfigError: it names another one.
    """
    asked = [name.strip() for name in os.environ.get(FORMATS, "").split(",") if name.strip()]
    for name in asked:
        if name not in VECTOR:
            raise unknown(FORMATS, name, VECTOR)
    return asked


def save_png(made: Figure, path: Path) -> Path:
    """Write a PNG atomically; in 256 colours, then smaller, if it would exceed 200 kB.

    The formats asked for with `JAXRL_ROLLOUTS_PICTURES` lie beside it.
    """
    from matplotlib import rc_context

    for name in formats():
        with rc_context({"svg.hashsalt": path.stem}):
            made.savefig(buffer := io.BytesIO(), format=name, metadata=VECTOR[name])
        _write(buffer, path.with_suffix(f".{name}"))
    dpi = DPI
    while True:
        buffer = io.BytesIO()
        # Without the version of matplotlib in it, the same figure gives the same bytes.
        made.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        if buffer.tell() > MAX_BYTES:
            fewer = Image.open(buffer).convert("RGB").quantize(256)
            buffer = io.BytesIO()
            fewer.save(buffer, format="png", optimize=True)
        if buffer.tell() <= MAX_BYTES or dpi <= 20:
            break
        dpi = int(dpi * 0.8)
    return _write(buffer, path)


def save_gif(
    frames: Sequence[np.ndarray], path: Path, *, per_second: float = 10.0, colours: int = 64
) -> Path:
    """Write frames `[rows, columns, 3]` uint8 as an animation that repeats, atomically."""
    first, *others = [Image.fromarray(frame).quantize(colours) for frame in frames]
    buffer, duration = io.BytesIO(), round(1000 / per_second)
    first.save(
        buffer, "gif", save_all=True, append_images=others, duration=duration, loop=0, optimize=True
    )
    return _write(buffer, path)


def save_frame(frame: np.ndarray, path: Path) -> Path:
    """Write a frame `[rows, columns, 3]` uint8 as PNG, atomically."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "png")
    return _write(buffer, path)


def _write(buffer: io.BytesIO, path: Path) -> Path:
    with replacing(path, "wb") as file:
        file.write(buffer.getvalue())
    return path
