"""A benchmark's page and pictures, built from its table file.

Aggregates follow Agarwal et al. 2021 (arXiv:2108.13264): the interquartile mean over all seeds and
datasets with stratified bootstrap intervals, performance profiles, and the probability that one
method earns more than another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..reports.names import colour
from ..reports.pictures import figure, legend, save_png
from ..reports.statistics import bootstrap_interval, iqm, spread, spread_name
from .suite import Suite
from .table import Curves, final, result

Cells = Mapping[tuple[str, str], Curves]
Shown = Callable[[str, str], str]


def page(suite: Suite, name: str, cells: Cells, picture: str = "") -> str:
    """The page as Markdown.

    Args:
        suite: the suite.
        name: of the suite.
        cells: results that exist; the others stay empty.
        picture: file name of the performance profile, where there is one.
    """
    datasets = list(dict.fromkeys([*suite.datasets, *(dataset for dataset, _ in cells)]))
    methods = [m for m in dict.fromkeys([*suite.columns, *(m for _, m in cells)])]
    state = f"{counted(suite, cells)} cells are measured; others are empty or show their n."
    lines = [*opening(suite), state]
    tried = {method for _, method in cells}
    measured = [m for m in methods if m in tried]
    if missing := [suite.title(m) for m in methods if m not in tried]:
        lines.append(f"No cell yet: {', '.join(missing)}.")
    lines += ["", *_scores(suite, datasets, measured, cells), ""]
    lines += [
        f"Mean of the last {suite.last} evaluations. In brackets the {spread_name(suite.seeds)}."
    ]
    if suite.tuning:
        lines.append(suite.tuning)
    for note in suite.notes:
        lines += ["", note]
    for place, (title, names) in enumerate(together(suite).items()):
        lines += ["", f"## Over {title}", "", *_aggregates(suite, names, methods, cells)]
        if picture and place == 0:  # `draw_profile` has the first group
            lines += ["", f"![Performance profile]({picture})"]
    lines += ["", "## Estimated and true value", "", *_values(suite, datasets, measured, cells)]
    lines += ["", "## How it was made", "", made(suite, name, cells), ""]
    return "\n".join(lines)


def together(suite: Suite) -> Mapping[str, Sequence[str]]:
    """Datasets whose scores are averaged: those of each group, or all."""
    return suite.groups or {"all datasets": suite.datasets}


def opening(suite: Suite) -> list[str]:
    """Title, question and what the data are."""
    lines = [f"# {suite.verdict or suite.question}", ""]
    lines += [f"**Question.** {suite.question}", ""] if suite.verdict else []
    return lines + ([suite.data, ""] if suite.data else [])


def counted(suite: Suite, cells: Cells) -> str:
    """How many of a suite's cells are there: "3 of 4"."""
    wanted = [(d, m) for m in suite.columns for d in suite.datasets if suite.has(d, m)]
    there = [cells[cell] for cell in wanted if cell in cells]
    return f"{sum(cell.seeds >= suite.seeds for cell in there)} of {len(wanted)}"


def across(
    suite: Suite, datasets: Sequence[str], methods: Iterable[str], shown: Shown, corner: str = ""
) -> list[str]:
    """A table with methods down and datasets across; `shown(dataset, method)` is an entry."""
    lines = [f"|{corner and f' {corner}'} | {' | '.join(datasets)} |"]
    lines.append("|---|" + "--:|" * len(datasets))
    for method in methods:
        row = [shown(dataset, method) for dataset in datasets]
        lines.append(f"| {suite.title(method)} | {' | '.join(row)} |")
    return lines


def made(suite: Suite, name: str, cells: Cells) -> str:
    """The page's commands, the options of all runs, methods' exceptions, datasets' identities."""
    shared = {k: v for k, v in suite.options.items() if not isinstance(v, Mapping)}
    groups = {k: v for k, v in suite.options.items() if k not in shared}
    own = "".join(f" {group}: {_listed(options)}." for group, options in groups.items())
    for method in dict.fromkeys(method for _, method in cells):
        given = suite.methods.get(method, {})
        if other := {k: v for k, v in given.items() if k in shared and v != shared[k]}:
            own += f" {suite.title(method)}: {_listed(other)}."
    shas = {dataset: cell.sha256 for (dataset, _), cell in cells.items()}
    known = [d for d in dict.fromkeys([*suite.datasets, *shas]) if d in shas]
    data = ", ".join(f"{d} `{shas[d]}`" for d in known)
    data = f" Training data: {data}." if data else ""
    return (
        f"`jaxrl-rollouts bench run {name}` fills what is missing, `bench table {name}` builds "
        f"this page. Every run: {_listed(shared)}; {suite.seeds} seeds.{own}{data}"
    )


def ends(values: Iterable[float], shown: str, unit: str = "") -> str:
    """Lowest and highest in the format `shown`, once where they do not differ; "" of none."""
    held = list(values)
    both = (min(held), max(held)) if held else ()
    return "–".join(dict.fromkeys(f"{x:{shown}}{unit}" for x in both))


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in options.items())


def _cell(values: np.ndarray, seeds: int) -> str:
    """Mean and spread of `[seeds]` values, and their number where some are missing."""
    few = f" (n = {len(values)})" if len(values) < seeds else ""
    if not np.isfinite(values).all():
        return f"diverged{few}"
    low, high = spread(values, "mean")
    between = f" [{low:.1f}, {high:.1f}]" if len(values) > 1 else ""
    return f"{values.mean():.1f}{between}{few}"


def _scores(
    suite: Suite, datasets: Sequence[str], methods: Sequence[str], cells: Cells
) -> list[str]:
    """Methods down, datasets across; scores where a dataset has references, else returns."""

    def shown(dataset: str, method: str) -> str:
        cell = cells.get((dataset, method))
        return "" if cell is None else _cell(result(cell, suite.last), suite.seeds)

    return across(suite, datasets, methods, shown, "method")


def whole(suite: Suite, datasets: Sequence[str], method: str, cells: Cells) -> np.ndarray | None:
    """Scores `[seeds, datasets]` of a method that has a cell on each dataset; else None."""
    columns = []
    for dataset in datasets:
        if (dataset, method) not in cells:
            return None
        columns.append(result(cells[dataset, method], suite.last))
    seeds = min(map(len, columns))
    return np.stack([column[:seeds] for column in columns], 1)


def complete(
    suite: Suite, datasets: Sequence[str], methods: Iterable[str], cells: Cells
) -> dict[str, np.ndarray]:
    """Scores `[seeds, datasets]` of the methods that have finite ones on every dataset."""
    found = {m: whole(suite, datasets, m, cells) for m in methods}
    return {m: x for m, x in found.items() if x is not None and np.isfinite(x).all()}


def improvement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """P(X > Y), mean over datasets: the share of pairs of seeds in which ours earns more, ties as
    one half (Agarwal et al. 2021, section 4.3). Both `[seeds, datasets]`."""
    above = ours[:, None] > theirs[None]
    equal = ours[:, None] == theirs[None]
    return float((above + 0.5 * equal).mean((0, 1)).mean())


def _aggregates(
    suite: Suite, datasets: Sequence[str], methods: Sequence[str], cells: Cells
) -> list[str]:
    scores = complete(suite, datasets, methods, cells)
    if not scores:
        return ["No method has been run on every one of them yet."]
    base = scores.get(suite.reference)
    compared = f"P(better than {suite.title(suite.reference)})" if base is not None else ""
    lines = [
        f"| method | interquartile mean | 95 % interval |{f' {compared} |' if compared else ''}",
        f"|---|--:|--:|{'--:|' if compared else ''}",
    ]
    for method, values in sorted(scores.items(), key=lambda pair: -iqm(pair[1])):
        low, high = bootstrap_interval(values, "iqm")
        line = f"| {suite.title(method)} | {iqm(values):.1f} | {low:.1f} to {high:.1f} |"
        if base is not None:
            line += f" {improvement(values, base):.2f} |"
        lines.append(line)
    return lines


def _values(
    suite: Suite, datasets: Sequence[str], methods: Sequence[str], cells: Cells
) -> list[str]:
    """What critics, and world models where a cell has any, estimate, and what policies earn."""
    metrics = ["estimated_value", "imagined_value", "true_value"]
    if not any("imagined_value" in cell.metrics for cell in cells.values()):
        metrics.remove("imagined_value")

    def shown(column: str, method: str) -> str:
        if column == "minutes":
            return ends((cells[d, m].seconds / 60 for d, m in cells if m == method), ".0f")
        if (column, method) not in cells:
            return ""
        found = [final(cells[column, method], metric, suite.last) for metric in metrics]
        return "/".join(f"{x.mean():.3g}" if np.isfinite(x).all() else "–" for x in found)

    words = [metric.removesuffix("_value") for metric in metrics]
    note = f"Discounted, mean over seeds: {'/'.join(words)}; – if none or not finite."
    return [note, "", *across(suite, [*datasets, "minutes"], methods, shown, "method")]


def draw_profile(path: Path, suite: Suite, cells: Cells, thresholds: int = 200) -> bool:
    """The share of seeds and datasets above each score, a line for each complete method.

    With groups of datasets it is that of the first group.

    Returns:
        Whether there was anything to draw.
    """
    methods = dict.fromkeys([*suite.methods, *(method for _, method in cells)])
    scores = complete(suite, next(iter(together(suite).values())), methods, cells)
    if not scores:
        return False
    highest = max(float(x.max()) for x in scores.values())
    lowest = min(0.0, *(float(x.min()) for x in scores.values()))
    levels = np.linspace(lowest, highest, thresholds)
    titles = ("Share of runs above a score",)
    drawn, (ax,) = figure(1, 1, width=5.2, height=3.0, titles=titles)
    for method, values in scores.items():
        share = (values.reshape(-1)[None] > levels[:, None]).mean(1)
        name = str(suite.methods.get(method, {}).get("method", method))
        style: dict[str, Any] = {
            "color": colour(name),
            "linestyle": "-" if name == method else "--",
        }
        ax.step(levels, share, where="post", label=suite.title(method), **style)
    ax.set_xlabel("normalised score")
    ax.set_ylabel("share of seeds and datasets")
    legend(drawn, [ax], columns=4)
    save_png(drawn, path)
    return True
