"""Add a finished run's numbers to a study's table.

    python -m jaxrl_rollouts.experiments.collect runs/FOLDER bandit

One row for each seed and metric: `dataset, sha256, arm, seed, step, metric, value, commit`, six
significant digits. Rows that the run's folder name already has are replaced. Numbers that have no
seeds are one row, seed `all`.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl_rollouts.reports.report import Report, load_report

COLUMNS = ("dataset", "sha256", "arm", "seed", "step", "metric", "value", "commit")
EVIDENCE = Path(__file__).parent / "evidence"
HASH = re.compile(r"Data (\S+): sha256 ([0-9a-f]{8})")
STEPS = ("step", "steps", "updates", "gradient steps")


def rows_of(report: Report, run: str) -> Iterator[tuple]:
    """Rows of all tables of a report; the arm is the run, the table and the row's words."""
    commit = report.versions["commit"]  # of the code that ran
    hashes = dict(pair for note in report.notes for pair in HASH.findall(note))
    # One file under several names, one for each stage: the first note has the dataset's own name.
    only = next(iter(hashes)) if len(set(hashes.values())) == 1 else ""
    for table, entries in report.tables.items():
        for number, entry in enumerate(entries):
            words = [f"{k}={v}" for k, v in entry.items() if isinstance(v, str) and k != "dataset"]
            name = ", ".join(words) or f"row={number}"
            data = str(entry.get("dataset") or only)
            step = next((entry[key] for key in STEPS if isinstance(entry.get(key), int)), "")
            head = data, hashes.get(data, ""), f"{run}: {table}: {name}"
            for metric, found in entry.items():
                for seed, value in values_of(found):
                    yield (*head, seed, step, metric, f"{value:.6g}", commit)


def values_of(found: Any) -> Iterator[tuple[int | str, float]]:
    """Seeds and values of a cell; words and gaps have none."""
    values = getattr(found, "values", None)
    if values is not None and not callable(values):
        yield from enumerate(map(float, values))
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield "all", float(found)


def collect(folder: Path, study: str, evidence: Path = EVIDENCE) -> Path:
    """Write a run's rows into `evidence/STUDY.csv`; the others stay, in their order."""
    path, kept = evidence / f"{study}.csv", []
    if path.is_file():
        with path.open() as file:
            kept = [row for row in list(csv.reader(file))[1:] if row]
    mine = [row for row in kept if not row[2].startswith(f"{folder.name}: ")]
    added = [tuple(map(str, row)) for row in rows_of(load_report(folder), folder.name)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *mine, *added])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("study")
    given = parser.parse_args()
    print(collect(given.run.resolve(), given.study))


if __name__ == "__main__":
    main()
