"""What the site takes from elsewhere: experiments' pages, their navigation, equations as MathML.

The page of a report is `experiments/results/NAME/README.md`, with others beside it where one would
be too long; they are told where they lie, so here they are only copied, with their pictures.
Equations become MathML while the site is built, so that reading it asks no other server for a
script.
"""

from __future__ import annotations

import importlib
import json
import re
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
REPORT = re.compile(r"\{\{ (\w+) \}\}")
NAMES = re.compile(r"\{\{ names of ([\w.]+) \}\}")
RESULTS = ROOT / "experiments" / "results"
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every method's page, every experiment's and every room of the API, by name."""
    pages = Path(config.docs_dir)
    lists = {
        "Methods": [f"methods/{stem}.md" for stem in stems(pages / "methods")],
        "Experiments": [{name: of_experiment(name)} for name in experiments()],
        "API": [f"api/{stem}.md" for stem in stems(pages / "api")],
    }
    for section in config.nav or []:
        for name, entries in section.items():
            if name in lists:
                entries.extend(lists[name])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the experiments' pages, pictures and reports."""
    for name in experiments():
        for path in sorted((RESULTS / name).rglob("*")):
            if path.suffix in (".png", ".json"):
                place = f"experiments/{path.relative_to(RESULTS)}"
                files.append(File.generated(config, place, abs_src_path=str(path)))
        for place, page in told(name).items():
            files.append(File.generated(config, place, content=links_of_the_site(page.read_text())))
    files.append(File.generated(config, "experiments/index.md", content=overview()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """`{{ experiment }}` becomes a link to its page, with how many of its claims hold; `{{ names
    of PACKAGE }}` the documentation of its `__all__`."""
    markdown = NAMES.sub(lambda match: names(match[1]), markdown)
    return REPORT.sub(lambda match: verdict(match[1]), markdown)


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


def verdict(name: str) -> str:
    claims = json.loads((RESULTS / name / "report.json").read_text())["claims"]
    held = sum(claim["holds"] for claim in claims)
    early = sum(claim.get("verdict") == "not converged" for claim in claims)
    text = f"{held} of {len(claims)} claims hold" + f", {early} not converged" * bool(early)
    return f"[`{name}`](../experiments/{name}/index.md): {text}"


def on_page_content(html: str, **_: Any) -> str:
    """Equations as MathML, which browsers draw by themselves."""

    def drawn(match: re.Match[str]) -> str:
        if match[1] == "span":
            return convert(unescape(match[2]))
        return f'<div class="equation">{convert(unescape(match[2]), display="block")}</div>'

    return EQUATION.sub(drawn, html)


def stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")


def experiments() -> list[str]:
    """Names of the experiments that have a page."""
    return sorted(path.parent.name for path in RESULTS.glob("*/README.md"))


def told(name: str) -> dict[str, Path]:
    """An experiment's pages by their places on the site, the first one first."""
    first = RESULTS / name / "README.md"
    others = sorted(page for page in first.parent.glob("*.md") if page != first)
    here = f"experiments/{name}"
    return {f"{here}/index.md": first, **{f"{here}/{page.name}": page for page in others}}


def of_experiment(name: str) -> str | list[Any]:
    """In the navigation: its page, or its pages."""
    pages = told(name)
    first, *others = pages
    named: list[Any] = [{pages[place].stem.replace("_", " "): place} for place in others]
    return [first, *named] if named else first


def links_of_the_site(text: str) -> str:
    """Links to a folder's first page, which has another name here."""
    return re.sub(r"(\]\([^)\s]*)\bREADME\.md", r"\1index.md", text)


def overview() -> str:
    """The page of all experiments, `experiments/README.md`."""
    text = (ROOT / "experiments" / "README.md").read_text()
    return links_of_the_site(text.replace("](results/", "]("))
