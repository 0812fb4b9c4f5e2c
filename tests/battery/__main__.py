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
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.reports.text import print_report, report_markdown

PARTS = ("kills", "damage", "pressure", "hostile", "folders", "exported")
PARTS += ("settings", "simulators", "machines")
OUT = Path("runs") / "battery"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.battery", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if left out")
    parser.add_argument("--share", type=float, default=1.0, help="of the attacks")
    parser.add_argument("--seed", type=int, default=0, help="of their random choices")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"parts: found {', '.join(sorted(unknown))}, expected {', '.join(PARTS)}")
    failed = False
    for name in asked.parts or PARTS:
        begin, rows, bad = time.monotonic(), [], []
        for tally in importlib.import_module(f".{name}", __package__).run(asked.share, asked.seed):
            rows.append(tally.row())
            bad += [f"{name}: {line}" for line in tally.bad]
            print(tally.row(), *tally.bad, sep="\n", file=sys.stderr, flush=True)
            report = made(name, rows, asked.share, asked.seed, asked.out)
            report.wall_seconds += time.monotonic() - begin
            begin = time.monotonic()
            report.notes += bad
            report.save(asked.out)
            (asked.out / "report.md").write_text(report_markdown(report), encoding="utf-8")
        print_report(load_report(asked.out))
        failed = failed or bool(bad)
    return 1 if failed else 0


def made(name: str, rows: list[dict], share: float, seed: int, out: Path) -> Report:
    """The report of a part, with the tables that others left in `out`."""
    config = {"share": share, "seed": seed}
    report = Report(
        "battery", "full" if share == 1 else "part", config, "python -m tests.battery", 1
    )
    if (out / "report.json").is_file():
        before = load_report(out)
        report.tables = dict(before.tables)
        report.notes = [line for line in before.notes if not line.startswith(f"{name}: ")]
        report.wall_seconds = before.wall_seconds
    report.table(name, rows)
    every = [row for rows in report.tables.values() for row in rows]
    for kind in ("silently wrong", "tracebacks", "lost", "executed", "hangs"):
        report.claim(
            Claim.of(
                kind,
                values=[row.get(kind, 0) for row in every],
                at_most=0,
                source="the project's goal",
                expected="none",
                statistic="max",
            )
        )
    return report


if __name__ == "__main__":
    sys.exit(main())
