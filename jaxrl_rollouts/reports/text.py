"""A report as text: rich tables for a terminal, Markdown for a README."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .statistics import Summary

if TYPE_CHECKING:
    from rich.console import Console

    from .report import Report


def format_number(value: Any) -> str:
    """A number in four significant digits, with its interval if it is a `Summary`."""
    if isinstance(value, Summary):
        text = format_number(value.iqm)
        low, high = value.interval
        if value.seeds > 1 and math.isfinite(low):
            text += f" [{format_number(low)}, {format_number(high)}]"
        return f"{text} {value.unit}" if value.unit else text
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, float):
        if math.isfinite(value) and 1e3 <= abs(value) < 1e7:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " to ".join(format_number(item) for item in value)
    return str(value)


def report_table_markdown(report: Report, table: str) -> str:
    """A table of the report as Markdown, for the README; numbers align right.

    The names "claims" and "numbers" give the report's claims and numbers.

    Raises:
        KeyError: the report has no table of that name.
    """
    rows = _rows(report, table)
    columns = _columns(rows)
    right = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|" + "|".join("---:" if flag else "---" for flag in right) + "|")
    for row in rows:
        cells = [format_number(row.get(column)).replace("|", "\\|") for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def print_report(report: Report, console: Console | None = None) -> None:
    """Print the report: what ran, numbers, tables, claims with their outcome, notes."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = console or Console()
    versions = report.versions
    console.print(
        f"[bold]{escape(report.experiment)}[/] ({escape(report.preset)})", highlight=False
    )
    console.print(
        f"{report.seeds} seed(s), {report.wall_seconds:.0f} s wall, {report.compile_seconds:.0f} s "
        f"compiling, jax {versions.get('jax')} on {versions.get('device_count')} x "
        f"{versions.get('device')} ({versions.get('cpu')})",
        highlight=False,
        markup=False,
    )
    for name in [*(["numbers"] if report.numbers else []), *report.tables]:
        rows = _rows(report, name)
        columns = _columns(rows)
        grid = Table(title=escape(name), box=box.SIMPLE_HEAD, title_justify="left")
        for column in columns:
            numeric = all(_is_number(row.get(column)) for row in rows)
            grid.add_column(escape(column), justify="right" if numeric else "left")
        for row in rows:
            grid.add_row(*(escape(format_number(row.get(column))) for column in columns))
        console.print(grid)
    if report.claims:
        held = sum(claim.holds for claim in report.claims)
        title = f"claims: {held} of {len(report.claims)} hold"
        grid = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for column in ("", *_columns(_rows(report, "claims"))[:-1]):
            grid.add_column(column)
        for claim, row in zip(report.claims, _rows(report, "claims"), strict=True):
            mark = "[green]✓[/]" if claim.holds else "[red]✗[/]"
            grid.add_row(mark, *(escape(str(cell)) for cell in list(row.values())[:-1]))
        console.print(grid)
    for note in report.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _rows(report: Report, table: str) -> list[dict[str, Any]]:
    if table == "numbers":
        return [{"number": k, "IQM [95 %]": v} for k, v in report.numbers.items()]
    if table == "claims":
        return [
            {
                "claim": claim.name,
                "source": claim.source,
                "expected": claim.expected,
                "threshold": f"{claim.rule.replace('_', ' ')} {format_number(claim.threshold)}",
                "measured": _measured(claim),
                "holds": "yes" if claim.holds else "**no**",
            }
            for claim in report.claims
        ]
    if table not in report.tables:
        raise KeyError(f"{table}: found {sorted(report.tables)}, expected a table of the report")
    return report.tables[table]


def _measured(claim: Any) -> str:
    text = f"{format_number(claim.measured)} ({claim.statistic} of {claim.seeds})"
    if claim.interval is not None:
        text += " [" + ", ".join(format_number(end) for end in claim.interval) + "]"
    return text


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float | Summary)
