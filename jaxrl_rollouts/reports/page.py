"""A report as a page: `report.md`, and `report.html`, one file with the pictures inside it."""

from __future__ import annotations

import base64
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import printable
from ..record.files import write_atomically
from .claims import counted
from .text import ran, report_table_markdown

if TYPE_CHECKING:
    from .report import Report

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


def report_markdown(report: Report) -> str:
    """The whole report as Markdown; pictures are links to the files beside it."""
    parts = [f"# {report.experiment} ({report.preset})", ran(report)]
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
