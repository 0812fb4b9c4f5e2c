"""Runs of a stranger that are fine-tuned, compared and chosen from: none of their code runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.record.folder import RunFolder

pytest.importorskip("gymnasium")
from test_foreign_code import LINES, MODULE

EVIL = "evil:make"
QUICK = ("--preset", "smoke", "--no-progress", "--out")


def changed(run: Path, file: str, change: Callable[[Any], None]) -> None:
    """A record with something else in it, and no digest."""
    for path in run.rglob(file):
        data = json.loads(path.read_text())
        data.pop("digest")
        change(data)
        path.write_text(json.dumps(data))


def named(*keys: str) -> Callable[[Any], None]:
    """Puts the name of code in some places of a record."""

    def change(data: Any) -> None:
        inner = data["config"] if "config" in data and "experiment" in data else data
        inner.update(dict.fromkeys(keys, EVIL))

    return change


# What a stranger changed in a run, by the name of its copy.
CHANGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "policy": ("policy.json", named("environment")),
    "kind": ("policy.json", named("kind")),
    "agent": ("policy.json", named("agent", "config", "method")),
    "data": ("run.json", named("dataset")),
    "run": ("run.json", named("environment", "method")),
}
# Commands that read nothing of what was changed, and end as on the run as it was.
UNREAD = ("choose policy", "evaluate data", "finetune run", "choose run", "evaluate run")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, bool, bool]]:
    """Exit code, errors and whether the module ran, of every command line."""
    place = tmp_path_factory.mktemp("stranger")
    (place / "evil.py").write_text(MODULE)
    words = ["run", "offline", "--method", "iql", "--seeds", "1", *QUICK, str(place / "made")]
    cli.dispatch(words)
    (made,) = (place / "made").iterdir()
    lines: dict[str, list[str]] = {}
    for name, (file, change) in CHANGES.items():
        changed(Path(shutil.copytree(made, place / name)), file, change)
        lines[f"finetune {name}"] = ["finetune", name, *QUICK, "tuned"]
        lines[f"choose {name}"] = ["choose", name, "--preset", "smoke", "--out", f"{name}.json"]
        lines[f"evaluate {name}"] = ["evaluate", name, "--episodes", "1"]
    lines["choose true"] = ["choose", "run", "policy", "--preset", "smoke", "--truth", "1"]
    lines["config"] = ["run", "finetune", "--config", "settings.yaml", *QUICK, "tuned"]
    (place / "settings.yaml").write_text(f"start: policy\nenvironment: {EVIL}\n")
    theirs = RunFolder.at(place / "theirs", "finetune").path
    settings = {"start": str(place / "run"), "environment": EVIL}
    changed(theirs, "run.json", lambda data: data.update(preset="smoke", config=settings))
    lines["resume"] = ["resume", "theirs", "--no-progress"]
    lines["trusted"] = ["finetune", "policy", "--environment", EVIL, *QUICK, "tuned"]
    environment = os.environ | {"PYTHONPATH": str(place)}
    command = [sys.executable, "-c", LINES, json.dumps(lines)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("command", ["finetune", "choose", "evaluate"])
def test_no_record_of_a_run_imports_code(ended: dict, command: str, name: str) -> None:
    code, said, ran, _ = ended[f"{command} {name}"]
    assert not ran and "Traceback" not in said, said
    assert code == 0 if f"{command} {name}" in UNREAD else code == 2 and EVIL in said, said


def test_choosing_against_the_simulator_takes_that_of_the_log(ended: dict) -> None:
    code, said, ran, _ = ended["choose true"]
    assert code == 0 and not ran, said


@pytest.mark.parametrize("name", ["config", "resume"])
def test_nor_do_settings_or_the_record_of_a_fine_tuning(ended: dict, name: str) -> None:
    code, said, ran, _ = ended[name]
    assert code == 2 and not ran and f"found '{EVIL}'" in said, said


def test_an_environment_that_was_typed_is_imported(ended: dict) -> None:
    code, said, ran, _ = ended["trusted"]
    assert code == 0 and ran, said
