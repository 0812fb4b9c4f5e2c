"""The workflows of the repository's host: what they run exists, and they hold no secret."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(file: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(file.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_asks_for_little_and_holds_no_secret(file: Path) -> None:
    text = file.read_text("utf-8")
    assert "secrets." not in text
    assert yaml.safe_load(text)["permissions"]["contents"] == "read"
    for step in steps(file):
        assert ("uses" in step) != ("run" in step)
        # A tag or a branch of an action, never its moving default.
        assert "@" in step.get("uses", "@")


def test_tests_run_on_every_python_that_the_package_names() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]["tests"]
    named = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    versions = [text.rpartition(" ")[2] for text in named if ":: Python :: 3." in text]
    assert job["strategy"]["matrix"]["python"] == versions
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    assert (ROOT / ".ci" / "run").is_file()


def test_both_ends_of_the_dependencies_are_installed_and_run() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]
    ends = jobs["dependencies"]["strategy"]["matrix"]["include"]
    assert {end["resolution"] for end in ends} == {"lowest-direct", "highest"}
    pythons = jobs["tests"]["strategy"]["matrix"]["python"]
    assert [end["python"] for end in ends] == [pythons[0], pythons[-1]]
    jax = next(name for name in PROJECT["dependencies"] if name.startswith("jax>"))
    assert ">=" in jax and "<" in jax, "a tested range"


def test_the_lock_is_of_this_project_and_of_no_mirror() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    packages = {package["name"]: package for package in lock["package"]}
    own = packages["jaxrl-rollouts"]["metadata"]["requires-dist"]
    locked = {(need["name"], need.get("specifier", "")) for need in own if "marker" not in need}
    asked = set()
    for need in PROJECT["dependencies"]:
        name = re.split(r"[<>=]", need)[0]
        asked.add((name, ",".join(sorted(need.removeprefix(name).split(","), reverse=True))))
    assert {(n, ",".join(sorted(s.split(","), reverse=True))) for n, s in locked} == asked
    for name, package in packages.items():
        if name == "jaxrl-rollouts":
            continue
        assert package["source"] == {"registry": "https://pypi.org/simple"}, name
        for file in [*package.get("wheels", []), *filter(None, [package.get("sdist")])]:
            assert file["url"].startswith("https://files.pythonhosted.org/packages/"), name
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]), name


def test_the_changelog_of_a_version_can_be_read() -> None:
    parts = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert all(len(part.splitlines()) <= 60 for part in parts)


def test_a_release_is_built_checked_and_published_by_trust() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text("utf-8"))["jobs"][
        "pypi"
    ]
    assert job["permissions"] == {"id-token": "write"}
    words = [step.get("run", step.get("uses")) for step in job["steps"]]
    built, checked, published = (
        next(n for n, word in enumerate(words) if what in word)
        for what in ("-m build", "twine check --strict", "gh-action-pypi-publish")
    )
    assert built < checked < published
