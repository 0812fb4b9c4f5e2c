"""Keep the README's tables equal to the committed reports.

A table stands between `<!-- report: EXPERIMENT / TABLE -->` and `<!-- end -->`:

    python -m jaxrl_rollouts.experiments.readme README.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.report import load_report, report_table_markdown

MARK = re.compile(r"(<!-- report: ([\w-]+) / ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def renewed(text: str, results: Path) -> str:
    """`text` with every marked table taken from the reports in `results`.

    Raises:
        DataError: a report has no such table.
        CheckpointError: there is no such report.
    """

    def table(match: re.Match[str]) -> str:
        report, name = load_report(results / match[2]), match[3]
        if name not in (*report.tables, "claims", "numbers"):
            raise DataError(results / match[2], "tables", name, f"one of {sorted(report.tables)}")
        return f"{match[1]}{report_table_markdown(report, name).rstrip()}\n{match[5]}"

    return MARK.sub(table, text)


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    path.write_text(renewed(path.read_text(), path.parent / "experiments" / "results"))


if __name__ == "__main__":
    main()
