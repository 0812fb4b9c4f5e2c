"""A benchmark's results as one table file: a row for every seed, evaluation and metric."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..foreign import check_file, reading
from ..record.files import read_json, write_atomically
from ..reports.report import Report
from .suite import SECONDS, Cell, Suite
from .tasks import finished_report, run_folder

COLUMNS: tuple[str, ...] = (
    "dataset",
    "sha256",
    "method",
    "settings",
    "seed",
    "step",
    "metric",
    "value",
    "seconds",
    "commit",
)
# Metrics of an evaluation, under the names they have in tables.
METRICS = {
    "return": "return",
    "estimated_value": "estimated_value",
    "discounted_return": "true_value",
}
IMAGINED = "imagined value"  # number of a report: that of the last policies in world models
DIGITS = 6
Row = Mapping[str, str]
Score = Callable[[str, float], float | None]


class Curves(NamedTuple):
    """Results of one cell.

    Attributes:
        metrics: name -> `[seeds, evaluations]`.
        seconds: wall time of the whole cell, its parts one after the other.
        sha256: of the dataset, its first 12 digits.
        settings: digest of what was run.
        commit: of the code.
    """

    metrics: Mapping[str, np.ndarray]
    seconds: float
    sha256: str
    settings: str
    commit: str

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len(next(iter(self.metrics.values())))


def read_table(path: Path) -> list[Row]:
    """All rows; none where there is no file yet."""
    if not path.exists():
        return []
    check_file(path, "a table of results")
    with reading(path, "a table of results"), path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            found = ", ".join(reader.fieldnames or ()) or "nothing"
            raise DataError(path, "columns", found, ", ".join(COLUMNS))
        rows: list[Any] = list(reader)
    for number, row in enumerate(rows, start=2):
        with reading(path, "numbers", f"line {number}"):
            _ = _order(row), float(row["value"]), float(row["seconds"])
    return rows


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows, sorted, so that equal results give equal bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=_order))
    write_atomically(path, text.getvalue())


def _order(row: Row) -> tuple:
    return (
        row["dataset"],
        row["method"],
        row["settings"],
        int(row["seed"]),
        row["metric"],
        int(row["step"]),
    )


def key_of(row: Row) -> tuple[str, str, str]:
    """Which cell a row belongs to: dataset, method, settings."""
    return row["dataset"], row["method"], row["settings"]


def merged(table: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The table with a cell's new rows in the place of the old ones of the same seeds."""
    replaced = {(key_of(row), row["seed"]) for row in new}
    return [row for row in table if (key_of(row), row["seed"]) not in replaced] + list(new)


def has_cell(table: Sequence[Row], cell: Cell) -> bool:
    """Whether the table holds a cell, with all its seeds."""
    key = (cell.dataset, cell.method, cell.settings)
    found = {int(row["seed"]) for row in table if key_of(row) == key}
    return found >= {*range(cell.first, cell.first + cell.seeds)}


def rows_of(folder: Path, cell: Cell, score: Score, suite: Suite | None = None) -> list[Row]:
    """Rows of a finished run; none of one that is not finished.

    Args:
        cell: its option `steps` is the last evaluation's step; without one the loop's
            iterations are counted.
        score: `(dataset, returns) -> normalised scores`, None for a dataset without references.
        suite: the suite; its `metrics` are read from the report, also those of its `arms`.
    """
    report, run = finished_report(folder), run_folder(folder)
    if report is None or run is None:
        return []
    facts = read_json(run / "run.json", "a run folder")
    about = {
        "dataset": cell.dataset,
        "sha256": _sha256(facts)[:12],
        "method": cell.method,
        "settings": cell.settings,
        "seconds": f"{report.wall_seconds:.0f}",
        "commit": str(facts.get("versions", {}).get("commit", ""))[:12],
    }
    found: list[Row] = [{**about, **row} for row in _evaluations(run, cell.options.get("steps"))]
    for row in [row for row in found if row["metric"] == "return"]:
        value = score(cell.dataset, float(row["value"]))
        if value is not None:
            found.append({**row, "metric": "score", "value": f"{value:.{DIGITS}g}"})
    step = str(cell.options.get("steps", 0))
    if IMAGINED in report.numbers:
        for seed, value in enumerate(report.numbers[IMAGINED].values):
            row = {"seed": f"{seed}", "metric": "imagined_value", "value": f"{value:.{DIGITS}g}"}
            found.append({**about, **row, "step": step})
    if suite is not None:
        found += [
            {**about, **row, "step": step} for row in _reported(report, suite, cell.row, True)
        ]
        # A baseline is measured in every run of the suite's own steps; it has no time of its own.
        arms = () if cell.method.endswith(SECONDS) else suite.arms(cell.dataset)
        for arm, other in arms:
            same = {"method": other.method, "settings": other.settings, "seconds": "0"}
            rows = _reported(report, suite, arm)
            found += [{**about, **same, **row, "step": step} for row in rows]
    return [{**row, "seed": str(int(row["seed"]) + cell.first)} for row in found]


def _reported(
    report: Report, suite: Suite, arm: str, numbers: bool = False
) -> Iterator[dict[str, str]]:
    """Seed, metric and value of a suite's metrics in a report's tables.

    Args:
        arm: the first column's entry of the rows to read; "" reads the first row of a table.
        numbers: the report's numbers, too.
    """
    for metric, column in suite.metrics.items():
        rows = [row for table in report.tables.values() for row in table if column in row]
        found = [row[column] for row in rows if not arm or next(iter(row.values())) == arm]
        if numbers:
            found += [report.numbers[column]] if column in report.numbers else []
        for seed, value in enumerate(found[0].values if found else ()):
            yield {"seed": str(seed), "metric": metric, "value": f"{value:.{DIGITS}g}"}


def _sha256(facts: Mapping[str, Any]) -> str:
    """Of the first dataset that a run recorded."""
    data = facts.get("data") or {}
    return str(next(iter(data.values()), {}).get("sha256", ""))


def _evaluations(run: Path, last_step: int | None) -> list[dict[str, str]]:
    """Seed, step, metric and value of every evaluation of the stage that was evaluated."""
    found = []
    for step, metrics in evaluations(run, last_step):
        for metric, name in METRICS.items():
            for seed, value in enumerate(metrics.get(metric, ())):
                shown = f"{value:.{DIGITS}g}"
                found.append({"seed": str(seed), "step": f"{step}", "metric": name, "value": shown})
    return found


def evaluations(
    run: Path, last_step: int | None
) -> Iterator[tuple[int, Mapping[str, list[float]]]]:
    """Step and metrics, each with a value per seed, of every evaluation of a run's policies.

    Args:
        run: its folder.
        last_step: gradient steps of the whole training; None counts the loop's iterations.
    """
    for history in sorted(run.glob("*/history.jsonl")):
        records = [json.loads(line) for line in history.read_text("utf-8").splitlines() if line]
        for record in records:
            if {"return", "estimated_value"} & set(record["metrics"]):
                scale = 1.0 if last_step is None else last_step / records[-1]["iteration"]
                yield round(record["iteration"] * scale), record["metrics"]


def curves_of(table: Sequence[Row], suite: Suite) -> dict[tuple[str, str], Curves]:
    """Curves by dataset and method; of several settings of a method those of the suite, else the
    last ones in the table."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in table:
        cells.setdefault(key_of(row), []).append(row)
    found: dict[tuple[str, str], Curves] = {}
    for (dataset, method, settings), rows in cells.items():
        wanted = suite.cell(dataset, method)
        if (dataset, method) in found and settings != wanted.settings:
            continue
        # Every row has the time of its own part.
        seconds = {row["seed"]: float(row["seconds"]) for row in rows}.values()
        found[dataset, method] = Curves(
            {
                name: _curve([row for row in rows if row["metric"] == name])
                for name in dict.fromkeys(row["metric"] for row in rows)
            },
            sum(seconds) / min(wanted.seeds, len(seconds)),
            rows[0]["sha256"],
            settings,
            rows[0]["commit"],
        )
    return found


def _curve(rows: Sequence[Row]) -> np.ndarray:
    """`[seeds, evaluations]` of one metric."""
    seeds = sorted({int(row["seed"]) for row in rows})
    steps = sorted({int(row["step"]) for row in rows})
    curve = np.full((len(seeds), len(steps)), np.nan)
    for row in rows:
        curve[seeds.index(int(row["seed"])), steps.index(int(row["step"]))] = float(row["value"])
    return curve


def final(curves: Curves, metric: str, last: int) -> np.ndarray:
    """`[seeds]`: the mean over the last evaluations; NaN where a metric is missing."""
    if metric not in curves.metrics:
        return np.full(1, np.nan)
    return curves.metrics[metric][:, -last:].mean(1)


def result(curves: Curves, last: int) -> np.ndarray:
    """`[seeds]`: normalised scores, or returns of a dataset without references."""
    return final(curves, "score" if "score" in curves.metrics else "return", last)
