"""What the site takes from elsewhere: experiments' pages, their navigation, equations as MathML.

The page of a report is `experiments/results/NAME/README.md`; it is told where it lies, so here it
is only copied, with its pictures. Equations become MathML while the site is built, so that reading
it asks no other server for a script.
"""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
REPORT = re.compile(r"\{\{ (\w+) \}\}")
PACKAGES = ("offline", "pde", "experiments")
RESULTS = ROOT / "experiments" / "results"
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every method's page, every experiment's and every room of the API, by name."""
    pages = Path(config.docs_dir)
    lists = {
        "Methods": [f"methods/{stem}.md" for stem in stems(pages / "methods")],
        "Experiments": [{name: f"experiments/{name}/index.md"} for name in experiments()],
        "API": [f"api/{stem}.md" for stem in stems(pages / "api")],
    }
    for section in config.nav or []:
        for name, entries in section.items():
            if name in lists:
                entries.extend(lists[name])
    return config


def on_startup(**_: Any) -> None:
    """Links to the packages where an installation has them; the API's pages are read from there."""
    tree = ROOT / "docs" / ".tree" / "jaxrl_rollouts"
    shutil.rmtree(tree.parent, ignore_errors=True)
    tree.mkdir(parents=True)
    for path in [*(ROOT / "jaxrl_rollouts").iterdir(), *(ROOT / name for name in PACKAGES)]:
        (tree / path.name).symlink_to(path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the experiments' pages, pictures and reports."""
    for name in experiments():
        for path in sorted((RESULTS / name).rglob("*")):
            if path.suffix in (".png", ".json"):
                place = f"experiments/{path.relative_to(RESULTS)}"
                files.append(File.generated(config, place, abs_src_path=str(path)))
        text = (RESULTS / name / "README.md").read_text().replace("/README.md", "/index.md")
        files.append(File.generated(config, f"experiments/{name}/index.md", content=text))
    files.append(File.generated(config, "experiments/index.md", content=overview()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """`{{ experiment }}` becomes a link to its page, with how many of its claims hold."""
    return REPORT.sub(lambda match: verdict(match[1]), markdown)


def verdict(name: str) -> str:
    claims = json.loads((RESULTS / name / "report.json").read_text())["claims"]
    held = sum(claim["holds"] for claim in claims)
    return f"[`{name}`](../experiments/{name}/index.md): {held} of {len(claims)} claims hold"


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


def overview() -> str:
    """The README's table of experiments."""
    readme = (ROOT / "README.md").read_text()
    table = re.search(r"<!-- reports -->\n(.*?)<!-- end -->", readme, re.DOTALL)
    rows = table[1].replace("](experiments/results/", "](").replace("/README.md", "/index.md")
    return f"# Experiments\n\nEach asks one question, and one command remakes its report.\n\n{rows}"
