"""Code that a plan, a settings file or a run names is imported only where the user names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl_rollouts import plugins
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.sweep.plan import Plan, Task, read_plan, write_plan

pytest.importorskip("gymnasium")
MODULE = """
open("ran", "a").write("x")
def make():
    return "Pendulum-v1"
"""
SMOKE = ("offline", "--preset", "smoke", "--method", "bc", "--no-progress")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A stranger's folder with a module beside its settings."""
    (tmp_path / "evil.py").write_text(MODULE)
    (tmp_path / "evil.yaml").write_text("environment: evil:make\n")
    return tmp_path


def command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(place)}  # the module can be found
    line = [sys.executable, "-m", "jaxrl_rollouts", *words]
    return subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True)


def sweep(place: Path, *words: str) -> Path:
    task = Task("one", {}, (*SMOKE, *words), str(place))
    folder = place / "sweep"
    folder.mkdir()
    write_plan(folder, Plan("offline", ("",), (task,)))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("--environment", "evil:make"),
        ("--environment=evil:make",),
        ("--config", "evil.yaml"),
        ("--config=evil.yaml",),
    ],
)
def test_a_task_imports_no_code_of_its_plan(place: Path, words: tuple[str, ...]) -> None:
    done = command(place, "sweep", "task", str(sweep(place, *words)), "1")
    assert done.returncode == 2, done.stderr
    assert not (place / "ran").exists()
    assert "found 'evil:make', expected no code to import but what you name" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_imports_the_code_that_the_user_names(place: Path) -> None:
    folder = sweep(place, "--config", "evil.yaml")
    done = command(place, "sweep", "task", str(folder), "1", "--trust", "evil:make")
    assert done.returncode == 0, done.stderr
    assert (place / "ran").exists()


def test_a_plan_trusts_nobody_itself(place: Path) -> None:
    folder = sweep(place, "--trust", "evil:make", "--config", "evil.yaml")
    with pytest.raises(CheckpointError, match="one: found --trust, expected a plan"):
        read_plan(folder)


@pytest.mark.parametrize("config", ["evil.yaml", "runs/theirs", "runs/theirs/run.json"])
def test_a_settings_file_imports_no_code(place: Path, config: str) -> None:
    record = {"environment": "evil:make"}
    folder = RunFolder.at(place / "runs" / "theirs", "offline").path
    data = json.loads((folder / "run.json").read_text())
    data |= {"preset": "smoke", "config": record}
    del data["digest"]
    (folder / "run.json").write_text(json.dumps(data))
    run = ("run", *SMOKE, "--out", "mine", "--config", config)
    done = command(place, *run)
    assert done.returncode == 2 and not (place / "ran").exists(), done.stderr
    assert "--trust evil:make" in done.stderr and "Traceback" not in done.stderr
    assert not (place / "mine").exists(), "before anything is written"
    if config == "evil.yaml":
        done = command(place, *run, "--trust", "evil:make")
        assert done.returncode == 0 and (place / "ran").exists(), done.stderr
        (made,) = (place / "mine").iterdir()
        assert "--trust" not in json.loads((made / "run.json").read_text())["command"]


def test_typed_names_are_those_of_options_that_take_code() -> None:
    typed = ["run", "a:b", "--environment", "c.d:e?x=1", "--study.env=f:g", "--out", "h:i"]
    typed += ["--trust", "j:k", "l:m", "--config=n:o", "--environments", "plane", "p:q"]
    assert list(plugins.typed(typed)) == ["c.d:e?x=1", "f:g", "j:k", "l:m", "p:q"]


def test_a_name_is_trusted_with_and_without_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_TRUSTED", set())
    plugins.trust("json:loads?max_episode_steps=3")
    plugins.check_trusted("environment", ["json:loads", "json:loads?other=1"])
    assert plugins.import_trusted("environment", "json:loads") is json.loads
    for other in ("json:dumps", "json:loads.x", "Json:loads"):
        with pytest.raises(ConfigError, match="--trust"):
            plugins.import_trusted("environment", other)
