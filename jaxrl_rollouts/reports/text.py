"""A readable report: rich tables for a terminal, `report.md`, and `report.html` in one file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import printable
from .claims import counted
from .statistics import FEWEST, Summary, spread

if TYPE_CHECKING:
    from rich.console import Console

    from .claims import Claim
    from .report import Report

import base64
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..record.files import write_atomically

if TYPE_CHECKING:
    from .report import Report


TURNED = 6  # rows of a table that can stand as columns


def format_number(value: Any) -> str:
    """A number in four significant digits, if it is a `Summary` with its spread.

    That is `[low, high]`, the 95 % interval, or `(lowest to highest)` of fewer than five seeds.
    """
    if isinstance(value, Summary):
        text = format_number(value.iqm)
        low, high = spread(value.values)
        if value.seeds >= FEWEST and math.isfinite(low):
            text += f" [{format_number(low)}, {format_number(high)}]"
        elif value.seeds > 1 and math.isfinite(low):
            text += f" ({format_number(low)} to {format_number(high)})"
        return f"{text} {value.unit}" if value.unit else text
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isfinite(value) and 1e3 <= abs(value) < 1e7:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " to ".join(format_number(item) for item in value)
    return printable(str(value))


def report_table_markdown(report: Report, table: str) -> str:
    """A table of the report as Markdown, for the README; numbers align right.

    The names "claims" and "numbers" give the report's claims and numbers.
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
    from rich.console import Console
    from rich.markup import escape

    console = console or Console()
    console.print(f"[bold]{escape(report.experiment)}[/]{escape(_preset(report))}", highlight=False)
    console.print(ran(report), highlight=False, markup=False)
    for text in report.conclusion:
        console.print(printable(text), highlight=False, markup=False, soft_wrap=True)
    for name in [*(["numbers"] if report.numbers else []), *report.tables]:
        _print_table(console, name, _rows(report, name))
    if report.claims:
        rows = [
            {"": {"yes": "✓", "no": "✗"}.get(claim.verdict, "…"), **row}
            for claim, row in zip(report.claims, _rows(report, "claims"), strict=True)
        ]
        title = f"claims: {counted(report.claims)}"
        _print_table(console, title, [{k: v for k, v in r.items() if k != "holds"} for r in rows])
    for note in report.notes:
        console.print(f"note: {printable(note)}", highlight=False, markup=False, soft_wrap=True)


def _print_table(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """A table nothing of which is cut: turned if it is too wide, and where no terminal is, wide."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    def drawn(rows: list[dict[str, Any]], header: bool = True) -> Table:
        columns = _columns(rows)
        grid = Table(
            title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", show_header=header
        )
        for column in columns:
            numeric = all(_is_number(row.get(column)) for row in rows)
            grid.add_column(escape(column), justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            grid.add_row(*(escape(format_number(row.get(column))) for column in columns))
        return grid

    grid = drawn(rows)
    width = console.measure(grid, options=console.options.update(width=10_000)).maximum
    if not console.is_terminal:
        console.width = max(width, console.width)
        console.print(grid)
    elif width > console.width and len(rows) <= TURNED:
        turned = [
            {"": column, **{str(i): format_number(row.get(column)) for i, row in enumerate(rows)}}
            for column in _columns(rows)
        ]
        console.print(drawn(turned, header=False))
    else:
        console.print(grid)


def ran(report: Report) -> str:
    """One line: seeds, seconds, versions and the machine."""
    versions, seeds = report.versions, report.seeds
    return (
        f"{seeds} seed{'s' * (seeds != 1)}, {report.wall_seconds:.0f} s wall, "
        f"{report.compile_seconds:.0f} s compiling, jax {versions.get('jax')} on "
        f"{versions.get('device_count')} x {versions.get('device')} ({versions.get('cpu')})"
    )


def _rows(report: Report, table: str) -> list[dict[str, Any]]:
    if table == "numbers":
        return [{"number": k, _heading(v): v} for k, v in report.numbers.items()]
    if table == "claims":
        return [
            {
                "claim": claim.name,
                "source": claim.source,
                "expected": claim.expected,
                "threshold": _threshold(claim),
                "measured": _measured(claim),
                "holds": "yes" if claim.holds else f"**{claim.verdict}**",
            }
            for claim in report.claims
        ]
    if table not in report.tables:
        raise KeyError(f"{table}: found {sorted(report.tables)}, expected a table of the report")
    return report.tables[table]


def _heading(summary: Summary) -> str:
    width = "[95 % interval]" if summary.seeds >= FEWEST else "(lowest to highest)"
    return f"interquartile mean over seeds {width}"


def _threshold(claim: Claim) -> str:
    ends = claim.threshold if isinstance(claim.threshold, tuple) else (claim.threshold,)
    return f"{claim.rule.replace('_', ' ')} {' and '.join(map(format_number, ends))}"


def _measured(claim: Claim) -> str:
    text = format_number(claim.measured)
    if claim.seeds > 1:  # one number is its own statistic: the worst of all seeds, a share of them
        text += f" ({claim.statistic} of {claim.seeds})"
    if claim.interval is not None:
        low, high = map(format_number, claim.interval)
        text += f" [{low}, {high}]" if claim.seeds >= FEWEST else f" ({low} to {high})"
    return text


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float | Summary)


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #8884; vertical-align: top; }
th { text-align: left; } td { font-variant-numeric: tabular-nums; }
img { max-width: 100%; background: white; }
pre { overflow-x: auto; padding: .8rem; background: #8881; font-size: .85rem; }
em { color: #777; }
"""


def write_pages(report: Report, folder: str | Path) -> None:
    """Write `report.md` and `report.html` beside the pictures of a saved report, atomically."""
    folder = Path(folder)
    write_atomically(folder / "report.md", printable(report_markdown(report)))
    write_atomically(folder / "report.html", printable(report_html(report, folder)))


def _preset(report: Report) -> str:
    """In brackets; nothing where a report is of no preset."""
    return f" ({report.preset})" if report.preset else ""


def report_markdown(report: Report) -> str:
    """The whole report as Markdown; pictures are links to the files beside it."""
    parts = [f"# {report.experiment}{_preset(report)}", ran(report)]
    parts += [f"```\n{report.command}\n```"] if report.command else []
    parts += ["## Conclusion", *report.conclusion] if report.conclusion else []
    for name, picture in report.pictures.items():
        parts.append(f"![{name}]({picture.file})\n\n*{picture.caption}*")
    for name in (*(["numbers"] if report.numbers else []), *report.tables):
        parts.append(f"## {name}\n\n{report_table_markdown(report, name)}")
        parts += [report.explained[name]] if name in report.explained else []
    if report.claims:
        parts.append(f"## Claims: {counted(report.claims)}")
        parts.append(report_table_markdown(report, "claims"))
    if report.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in report.notes))
    for name, facts in (("Settings", report.config), ("Versions", report.versions)):
        parts.append(f"## {name}\n\n```json\n{json.dumps(facts, indent=1, default=str)}\n```")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def report_html(report: Report, folder: Path) -> str:
    """The whole report as one HTML file that needs no other; pictures are read from `folder`."""
    from markdown_it import MarkdownIt

    # No raw HTML: texts of a report are plain text.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(report_markdown(report))
    files = {picture.file for picture in report.pictures.values()}
    for token in tokens:
        for child in token.children or ():
            if child.type != "image":
                continue
            if (name := child.attrs.get("src")) in files:
                picture = base64.b64encode((folder / str(name)).read_bytes()).decode()
                kind = str(name).rpartition(".")[2]
                child.attrs["src"] = f"data:image/{kind};base64,{picture}"
            else:  # a name that reads as an image would be fetched from wherever it says
                child.type, child.tag, child.nesting, child.children = "text", "", 0, None
    body = markdown.renderer.render(tokens, markdown.options, {})
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.experiment)}</title>\n<style>{STYLE}</style>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )
