"""The site's sources hold together, without building it; building it is a slow test."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pages"
RESULTS = ROOT / "experiments" / "results"
# A page may tell several names.
TOLD = {"sac": "sac_edac", "edac": "sac_edac", "neubay_markov": "neubay"} | {
    "online_sac": "sac_edac"
}

pytestmark = pytest.mark.skipif(not PAGES.is_dir(), reason="no docs beside an installed package")


def texts() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(PAGES.rglob("*.md"))}


def test_every_page_of_the_navigation_is_there() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "docs" / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(listed) > 10
    missing = [page for page in listed if not (PAGES / page).is_file()]
    named = [page for page in missing if page != "results/index.md"]
    assert all((RESULTS / Path(page).name).is_file() for page in named)  # the hook copies them
    pages = {str(path.relative_to(PAGES)) for path in texts()}
    assert pages <= set(listed) and {f"results/{p.name}" for p in RESULTS.glob("*.md")} <= set(
        listed
    )


def test_results_are_twelve_pages_and_more_studies() -> None:
    text = (ROOT / "docs" / "mkdocs.yml").read_text()
    first, more = text.split("- Results:")[1].split("- API:")[0].split("- More studies:")
    assert first.count(": results/") == 12 and first.split("- ")[2].startswith("Benchmark:")
    assert more.count(": results/") == len(list(RESULTS.glob("*.md"))) - 12


def test_every_method_has_a_page() -> None:
    from jaxrl_rollouts.offline import METHODS

    for method in METHODS:
        assert (PAGES / "methods" / f"{TOLD.get(method, method)}.md").is_file(), method


def test_links_lead_somewhere() -> None:
    for path, text in texts().items():
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            place = (path.parent / target).resolve()
            if place.is_relative_to(PAGES / "results"):
                name = place.relative_to(PAGES / "results")
                found = str(name) == "index.md" or (RESULTS / name).is_file()
            else:
                found = place.is_file()
            assert found, (path.name, target)


@pytest.mark.parametrize("path", sorted((PAGES / "methods").glob("[!i]*.md")), ids=lambda p: p.stem)
def test_a_method_page_follows_the_template(path: Path) -> None:
    text = path.read_text()
    parts = (
        "# ",
        "$$",
        "**Paper.**",
        "## Differences from the paper",
        "## Settings",
        "## Result",
        "**See also.**",
    )
    at = [text.index(part) for part in parts]
    assert at == sorted(at)
    assert "../results/" in text and len(text.split()) <= 400


def test_the_guide_to_methods_is_short() -> None:
    assert len((PAGES / "howto" / "choose.md").read_text().splitlines()) <= 60


def test_the_api_is_the_public_names() -> None:
    """The hook writes what is in `__all__`; here that every public package has its page."""
    packages = [m for text in texts().values() for m in re.findall(r"\{\{ names of (\S+) ", text)]
    jr = importlib.import_module("jaxrl_rollouts")
    rooms = [name for name in jr.__all__ if hasattr(getattr(jr, name), "__all__")]
    assert sorted(packages) == ["jaxrl_rollouts", *(f"jaxrl_rollouts.{r}" for r in sorted(rooms))]


def test_commands_on_the_pages_are_commands() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    known = {"run", "resume", "report", "list", *scripts["jaxrl_rollouts.commands"]}
    used = [
        c for text in texts().values() for c in re.findall(r"^jaxrl-rollouts ([\w-]+)", text, re.M)
    ]
    assert set(used) <= known and "evaluate" in used


def test_python_on_the_pages_compiles_and_names_what_exists() -> None:
    for path, text in texts().items():
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            tree = ast.parse(code, path.name)
            rooms = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                    "jaxrl_rollouts"
                ):
                    module = importlib.import_module(str(node.module))
                    for alias in node.names:
                        rooms[alias.name] = getattr(module, alias.name)
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    room = rooms.get(node.value.id)
                    assert room is None or hasattr(room, node.attr), (path.name, node.attr)


@pytest.mark.slow
def test_the_site_can_be_built(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    subprocess.run([*command, "-f", str(ROOT / "docs" / "mkdocs.yml")], check=True)
    page = (tmp_path / "methods" / "ravl" / "index.html").read_text()
    assert "<math" in page and "halfcheetah-mixed" in page
    for room in ("offline", "pde", "diffusion"):
        public = importlib.import_module(f"jaxrl_rollouts.{room}").__all__
        page = (tmp_path / "api" / room / "index.html").read_text()
        assert [name for name in public if f"<code>{room}.{name}</code>" not in page] == []
