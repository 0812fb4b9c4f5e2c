"""Run the battery and write its report.

    python -m tests.battery                       # every part, tens of minutes
    python -m tests.battery damage --share 0.1    # one part, a tenth of its attacks

A part that is run again takes the place of its table in the report; the others stay.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.page import report_markdown
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.reports.text import print_report

PARTS = ("kills", "damage", "pressure", "hostile")
OUT = Path(__file__).parents[2] / "experiments" / "results" / "battery"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.battery", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if left out")
    parser.add_argument("--share", type=float, default=1.0, help="of the attacks")
    parser.add_argument("--seed", type=int, default=0, help="of their random choices")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"parts: found {', '.join(sorted(unknown))}, expected {', '.join(PARTS)}")
    begin, bad, tables = time.monotonic(), [], {}
    for name in asked.parts or PARTS:
        tables[name] = rows = []
        for tally in importlib.import_module(f".{name}", __package__).run(asked.share, asked.seed):
            rows.append(tally.row())
            bad += [f"{name}: {line}" for line in tally.bad]
            print(tally.row(), *tally.bad, sep="\n", file=sys.stderr, flush=True)
    report = made(tables, asked.share, asked.seed, time.monotonic() - begin, asked.out)
    for line in bad:
        report.note(line)
    report.save(asked.out)
    (asked.out / "report.md").write_text(report_markdown(report), encoding="utf-8")
    print_report(report)
    return 1 if bad else 0


def made(
    tables: dict[str, list[dict]], share: float, seed: int, seconds: float, out: Path
) -> Report:
    """The report of what was run, with the tables that another time left in `out`."""
    config = {"share": share, "seed": seed}
    report = Report(
        "battery", "full" if share == 1 else "part", config, "python -m tests.battery", 1
    )
    report.wall_seconds = seconds
    if (out / "report.json").is_file():
        before = load_report(out)
        report.tables = dict(before.tables)
        report.notes = [x for x in before.notes if x.partition(":")[0] not in tables]
        report.wall_seconds += before.wall_seconds
    for name, rows in tables.items():
        report.table(name, rows)
    every = [row for rows in report.tables.values() for row in rows]
    for name in ("silently wrong", "tracebacks", "lost"):
        report.claim(
            Claim.at_most(
                name,
                values=[row[name] for row in every],
                threshold=0,
                source="the project's goal",
                expected="none",
                statistic="max",
            )
        )
    return report


if __name__ == "__main__":
    sys.exit(main())
