"""What the site takes from elsewhere: pages of results with their tables, the API, MathML.

Results lie in `experiments/results` and are copied with their pictures and CSV files. Equations
become MathML while the site is built, so that no page asks another server for a script.
"""

from __future__ import annotations

import importlib
import re
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
NAMES = re.compile(r"\{\{ names of ([\w.]+) \}\}")
EXPERIMENTS = ROOT / "experiments"
# Tables of results need the width that a table of contents takes.
WIDE = "---\nhide:\n  - toc\n---\n\n"
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
FUNCTION = re.compile(r"(<mi>(?:log|exp|sin|cos|tanh)</mi>)(?!<mo)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of results, their pictures and tables."""
    for page in sorted((EXPERIMENTS / "results").glob("*.md")):
        place = f"results/{page.name}"
        files.append(File.generated(config, place, content=WIDE + page.read_text()))
    files.append(File.generated(config, "results/index.md", content=overview()))
    for folder, suffix in (("results", ".png"), ("evidence", ".csv")):
        for path in sorted((EXPERIMENTS / folder).rglob(f"*{suffix}")):
            place = str(path.relative_to(EXPERIMENTS))
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def overview() -> str:
    """The page of all results, `experiments/README.md`, whose links begin one folder above."""
    text = (EXPERIMENTS / "README.md").read_text().replace("](results/", "](")
    text = re.sub(r"\[([^\]]*)\]\(evidence(?:/archive)?\)", r"\1", text)
    return text.replace("](evidence/", "](../evidence/")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """`{{ names of PACKAGE }}` becomes the documentation of its `__all__`."""
    return NAMES.sub(lambda match: names(match[1]), markdown)


def names(package: str) -> str:
    """Every public name of a package: what it is called there, then what its docstring says."""
    room = importlib.import_module(package)
    return "\n\n".join(entry(package, name, getattr(room, name)) for name in room.__all__)


def entry(package: str, name: str, value: Any) -> str:
    heading = f"## `{package.removeprefix('jaxrl_rollouts.')}.{name}`"
    if isinstance(value, ModuleType) and hasattr(value, "__all__"):
        return f"{heading}\n\n[A page of its own]({name}.md)."
    if isinstance(value, ModuleType):
        return f"{heading}\n\n::: {value.__name__}\n    options: {{show_root_heading: false}}"
    if hasattr(value, "__qualname__"):
        place = f"{value.__module__}.{value.__qualname__}"
        return f"{heading}\n\n::: {place}\n    options: {{show_root_heading: false}}"
    shown = ", ".join(f"`{part}`" for part in value) if isinstance(value, dict) else f"`{value}`"
    return f"{heading}\n\n{shown}"


def on_page_content(html: str, **_: Any) -> str:
    """Equations as MathML, which browsers draw by themselves."""

    def drawn(match: re.Match[str]) -> str:
        inline = match[1] == "span"
        made = convert(unescape(match[2]), display="inline" if inline else "block")
        if unknown := re.search(r">(\\[^<]+)<", made):
            raise PluginError(f"equation: found {unknown[1]}, which latex2mathml does not convert")
        # Functions are identifiers there, which browsers set close to what follows.
        made = FUNCTION.sub(r'\1<mspace width="0.17em"/>', made)
        return made if inline else f'<div class="equation">{made}</div>'

    return EQUATION.sub(drawn, html)
