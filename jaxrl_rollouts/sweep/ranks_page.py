"""A benchmark's page where methods are compared by ranks: errors and times, not returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .bench_page import Cells, across, counted, ends, made, opening
from .suite import SECONDS, Suite
from .table import final


def page(suite: Suite, name: str, cells: Cells) -> str:
    """The page as Markdown.

    Args:
        suite: the suite. The first metric of either kind has a table, and ratios are of the
            very first; ranks are over all.
        name: of the suite.
        cells: results that exist; the others stay empty.
    """
    lines = [*opening(suite), f"{counted(suite, cells)} cells are measured."]
    lines += [suite.tuning] if suite.tuning else []
    for metric in (*[*suite.minimise][:1], *[*suite.maximise][:1]):
        lines += ["", f"**{suite.metrics[metric]}**", "", *_metric(suite, metric, cells)]
    lines += ["", f"Lowest to highest of {suite.seeds} seeds."]
    for note in suite.notes:
        lines += ["", note]
    lines += ["", "## Over problems", ""]
    lines += [*_over(suite, cells), ""]
    if suite.seconds:
        lines += ["## At equal seconds", "", *_at_equal_seconds(suite, cells), ""]
    lines += [made(suite, name, cells), ""]
    return "\n".join(lines)


def values_of(suite: Suite, cells: Cells, dataset: str, method: str, metric: str) -> np.ndarray:
    """`[seeds]` values of a cell; none of one that was not measured."""
    if (dataset, method) not in cells or metric not in cells[dataset, method].metrics:
        return np.zeros(0)
    return final(cells[dataset, method], metric, 1)


def _shown(values: np.ndarray) -> str:
    """Lowest and highest of the seeds, once where they do not differ."""
    if not len(values):
        return ""
    if not np.isfinite(values).all():
        return "diverged"
    return ends(values, ".3g")


def _metric(suite: Suite, metric: str, cells: Cells) -> list[str]:
    """Methods down, datasets across."""

    def shown(dataset: str, method: str) -> str:
        return _shown(values_of(suite, cells, dataset, method, metric))

    return across(suite, suite.datasets, suite.methods, shown)


def ranks(
    suite: Suite, cells: Cells, dataset: str, metric: str, methods: Sequence[str] = ()
) -> dict[str, float]:
    """Rank of every method by the mean of its seeds, 1 the best, equal means sharing theirs.

    A method that diverged is behind all others. Empty unless every method that runs on the dataset
    was measured, since a rank among some says nothing of the others.

    Args:
        methods: that are compared; none names those of the suite that are `ranked`.
    """
    sign = -1.0 if metric in suite.maximise else 1.0
    found = {}
    ranked = [m for m, own in suite.methods.items() if own.get("ranked", True)]
    for method in methods or ranked:
        values = values_of(suite, cells, dataset, method, metric)
        if len(values):
            mean = sign * float(values.mean())
            found[method] = mean if np.isfinite(mean) else np.inf
        elif suite.has(dataset, method):
            return {}
    return {
        method: 1
        + sum(x < mean for x in found.values())
        + (list(found.values()).count(mean) - 1) / 2
        for method, mean in found.items()
    }


def ratio(suite: Suite, cells: Cells, datasets: Sequence[str], method: str) -> float:
    """Geometric mean over datasets of the first metric over the reference's; NaN where one lacks
    either."""
    metric = next(iter(suite.metrics))
    logs = []
    for dataset in datasets:
        ours, theirs = (
            values_of(suite, cells, dataset, m, metric) for m in (method, suite.reference)
        )
        logs.append(np.log(ours.mean() / theirs.mean()) if len(ours) and len(theirs) else np.nan)
    return float(np.exp(np.mean(logs)))


def _over(suite: Suite, cells: Cells) -> list[str]:
    """A row for every method: parameters, minutes, mean ranks and ratios of each group."""
    groups = suite.groups or {"all": suite.datasets}
    compared = (*suite.minimise, *suite.maximise)
    table = {(d, m): ranks(suite, cells, d, m) for d in suite.datasets for m in compared}
    metric = suite.metrics[next(iter(suite.metrics))]
    heads, notes = [], []
    for group, datasets in groups.items():
        whole = [d for d in datasets if all(table[d, m] for m in compared)]
        heads += [f"{group}: rank", f"over {suite.title(suite.reference)}", "weights", "minutes"]
        notes.append(f"{len(whole)} of {len(datasets)} ({group})")
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for method in suite.methods:
        row = [suite.title(method)]
        for datasets in groups.values():
            own = [table[d, m][method] for d in datasets for m in compared if method in table[d, m]]
            row += [f"{np.mean(own):.1f}" if own else ""]
            over = ratio(suite, cells, datasets, method)
            row += [
                f"{over:.2f}" if np.isfinite(over) else "",
                *_costs(suite, cells, datasets, method),
            ]
        lines.append(f"| {' | '.join(row)} |")
    note = (
        f"Ranks are means over complete problems, {', '.join(notes)}, and over metrics: "
        f"{'; '.join(suite.metrics[m] for m in compared)}. The ratio is the geometric mean over "
        f"problems of {metric}."
    )
    return [*lines, "", note]


def _at_equal_seconds(suite: Suite, cells: Cells) -> list[str]:
    """Methods down, datasets across: the first metric after so many steps, and mean ranks.

    Of each group, as its problems have other methods than another's.
    """
    assert suite.seconds is not None
    metric, compared = next(iter(suite.metrics)), (*suite.minimise, *suite.maximise)
    names = suite.seconds.datasets
    groups = suite.groups or {"all": suite.datasets}
    keys = [suite.reference, *(m for m in suite.columns if m.endswith(SECONDS))]
    table = {(d, m): ranks(suite, cells, d, m, keys) for d in names for m in compared}
    whole = [d for d in names if all(table[d, m] for m in compared)]
    heads = ["steps", *names, *(f"{group}: rank" for group in groups)]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for key in keys:
        steps = [suite.cell(d, key).options["steps"] for d in names if suite.has(d, key)]
        row = [suite.title(key), ends(steps, ",")]
        row += [_shown(values_of(suite, cells, d, key, metric)) for d in names]
        for group in groups.values():
            mine = [table[d, m] for d in whole if d in group for m in compared]
            own = [places[key] for places in mine if key in places]
            row.append(f"{np.mean(own):.1f}" if own else "")
        lines.append(f"| {' | '.join(row)} |")
    note = (
        f"Error: {suite.metrics[metric]}, after as many seconds as {suite.title(suite.reference)}'s"
        f" steps take. Ranks are over metrics and {len(whole)} of {len(names)} problems."
    )
    return [*lines, "", f"{note} {suite.seconds.note}".strip()]


def _costs(suite: Suite, cells: Cells, datasets: Sequence[str], method: str) -> list[str]:
    """Parameters and mean wall minutes of a cell; empty of what is not trained."""
    mine = [cells[d, method] for d in datasets if (d, method) in cells]
    counts = [values_of(suite, cells, d, method, "parameters") for d in datasets]
    held = [x[0] / 1000 for x in counts if len(x)]
    seconds = [cell.seconds for cell in mine if cell.seconds]
    return [ends(held, ".0f", "k"), f"{np.mean(seconds) / 60:.1f}" if seconds else ""]
