"""Keep the pages' tables equal to the committed reports.

A table of a report stands between `<!-- report: EXPERIMENT / TABLE -->` and `<!-- end -->`, the
list of all reports between `<!-- reports -->` and `<!-- end -->`. A variation of an experiment has
its report in a folder within the experiment's (`EXPERIMENT/VARIATION`) and is told on a page there:

    cd experiments; python -m jaxrl_rollouts.experiments.kit.pages README.md results/*/*.md
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.reports.claims import counted
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.reports.text import report_table_markdown

from ..catalogue import LISTINGS

NAME = r"[\w-]+(?:/[\w-]+)?"  # EXPERIMENT or EXPERIMENT/VARIATION
MARK = re.compile(rf"(<!-- report: ({NAME}) / ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
LIST = re.compile(r"(<!-- reports -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def results_of(page: Path) -> Path:
    """The folder of reports that belongs to a page: its checkout's `experiments/results`.

    Raises:
        DataError: no folder above the page has one.
    """
    for folder in page.resolve().parents:
        if (folder / "experiments" / "results").is_dir():
            return folder / "experiments" / "results"
    raise DataError(page, "place", "no experiments/results above it", "a page of a checkout")


def renewed(text: str, results: Path) -> str:
    """`text` with every marked table taken from the reports in `results`.

    Raises:
        DataError: a report has no such table.
        CheckpointError: there is no such report.
    """

    loaded = functools.cache(load_report)  # a page has several tables of each

    def table(match: re.Match[str]) -> str:
        report, name = loaded(results / match[2]), match[3]
        if name not in (*report.tables, "claims", "numbers"):
            raise DataError(results / match[2], "tables", name, f"one of {sorted(report.tables)}")
        return f"{match[1]}{report_table_markdown(report, name).rstrip()}\n{match[5]}"

    def overview(match: re.Match[str]) -> str:
        return f"{match[1]}{reports_markdown(results)}{match[3]}"

    return LIST.sub(overview, MARK.sub(table, text))


def reports_markdown(results: Path) -> str:
    """One row per committed report: what it asks, how many of its claims hold, where it is told."""
    folders = [path.parent for path in sorted(results.glob("*/report.json"))]
    # The battery's report lies there too (`tests/battery`), and is no experiment's.
    reports = [load_report(folder) for folder in folders if folder.name in LISTINGS]
    return "".join(
        [
            "| experiment | what it asks | claims that hold | seeds | preset |\n",
            "|---|---|---:|---:|---|\n",
            *map(_row, reports),
        ]
    )


def _row(report: Report) -> str:
    name = report.experiment
    link = f"[`{name}`](results/{name}/README.md)"
    held = counted(report.claims).replace(" hold", "", 1)
    summary = load_experiment(name).summary
    return f"| {link} | {summary} | {held} | {report.seeds} | {report.preset} |\n"


def main() -> None:
    for page in map(Path, sys.argv[1:] or ["experiments/README.md"]):
        page.write_text(renewed(page.read_text(), results_of(page)))


if __name__ == "__main__":
    main()
