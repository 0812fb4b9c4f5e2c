"""Options of the main job: those of one method, methods in files, settings in files."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from fixtures import SMOKE

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.config_json import to_json
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline import main_job
from jaxrl_rollouts.offline.methods import METHODS
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.reports.report import load_report

# Of every experiment, as those of `main_job.Config` are of every method.
OF_RUNS = {"--help", "--preset", "--config", "--out", "--publish", "--logger", "--progress"}
OF_RUNS |= {"--trust"}


@pytest.mark.parametrize("method", METHODS)
def test_help_shows_the_options_of_one_method_each_described(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "offline", "--method", method, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    own = {f.name for f in fields(METHODS[method])}
    assert ("--world." in out) == ("world" in own)
    assert ("--agent" in out) == ("agent" in own)
    assert ("--penalty FLOAT" in out) == ("penalty" in own)
    assert ("--weight FLOAT" in out) == ("weight" in own)
    shared = {f"--{f.name.replace('_', '-')}" for f in fields(main_job.Config)} | OF_RUNS
    assert len(set(re.findall(r"--[a-z][\w.-]*", out)) - negated(out) - shared) <= 80


def negated(text: str) -> set[str]:
    return set(re.findall(r"--(?:[\w-]+\.)*no-[\w-]+", text))


OWN = """
from dataclasses import dataclass
from jaxrl_rollouts.configs import coefficient
from jaxrl_rollouts.offline.methods.mopo import Mopo

@dataclass(frozen=True, kw_only=True)
class Mine(Mopo):
    name = "mine"
    penalty: float = coefficient(0.5, least=0)
"""


def test_a_method_in_a_file_runs_and_resumes_once_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_file.py").write_text(OWN)
    asked = ["--method", "my_file.py:Mine", "--agent.hidden-dims", "8", "--steps", "20"]
    cli.main(["run", "offline", *SMOKE, *asked, "--out", "runs"])
    (folder,) = (tmp_path / "runs").iterdir()
    place = f"{tmp_path / 'my_file.py'}:Mine"
    stored = json.loads((folder / "run.json").read_text())["config"]["method"]
    assert list(stored) == [place] and stored[place]["penalty"] == 0.5
    before = load_report(folder).numbers["return"].values
    with pytest.raises(SystemExit):
        cli.main(["resume", str(folder), "--no-progress"])
    said = capsys.readouterr().err
    assert "no code to import but what you name" in said and f"--trust {place}" in said
    cli.main(["resume", str(folder), "--no-progress", "--trust", place])
    assert load_report(folder).numbers["return"].values == before
    for wrong, says in (
        ("my_file.py:Yours", "Yours"),
        ("no_file.py:Mine", "FileNotFoundError"),
        ("my_file.py:coefficient", "a frozen dataclass"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["run", "offline", *SMOKE, "--method", wrong])
        assert stop.value.code == 2 and says in capsys.readouterr().err


def test_an_agent_is_chosen_by_its_name() -> None:
    words = [*SMOKE, "--method", "mopo", "--agent", "cql", "--agent.weight", "3", "--penalty", "2"]
    _, config, command = parse_run(main_job.EXPERIMENT, words)
    assert config.method == recipe("mopo", "smoke", penalty=2.0, agent={"cql": {"weight": 3.0}})
    assert command.endswith("--agent cql --agent.weight 3 --penalty 2")
    with pytest.raises(ConfigError, match="agent: found 'cqll'.*did you mean cql"):
        parse_run(main_job.EXPERIMENT, [*SMOKE, "--agent", "cqll"])


@pytest.mark.parametrize(
    "words",
    [
        ["--method", "cql", "--no-backup-entropy", "--hidden-dims", "8", "8"],
        ["--method", "mopo", "--agent", "cql", "--agent.weight", "3", "--world.shared"],
        ["--penalty", "3"],
    ],
)
def test_a_command_remakes_what_a_folder_has(words: list[str], tmp_path: Path) -> None:
    """Settings of a file, written as options, are the same settings."""
    _, config, _ = parse_run(main_job.EXPERIMENT, [*SMOKE, *words])
    file = tmp_path / "run.json"
    record = {"experiment": "offline", "preset": "smoke", "config": to_json(config)}
    file.write_text(json.dumps(record))
    _, read, command = parse_run(main_job.EXPERIMENT, ["--config", str(file)])
    assert read == config and "--config" not in command
    _, again, _ = parse_run(main_job.EXPERIMENT, shlex.split(command)[3:])
    assert again == config


def test_settings_of_a_file_are_of_its_method(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("method: {cql: {weight: 3.0, hidden_dims: [8]}}\nseeds: 5\n")
    _, config, _ = parse_run(main_job.EXPERIMENT, [*SMOKE, "--config", str(file)])
    assert config.method.name == "cql" and config.method.weight == 3.0 and config.seeds == 5
    with pytest.raises(ConfigError, match="--method: found 'iql', expected cql, which"):
        parse_run(main_job.EXPERIMENT, [*SMOKE, "--config", str(file), "--method", "iql"])
    file.write_text("method: {evil.py:Mine: {}}\n")
    with pytest.raises(ConfigError, match="no code to import"):
        parse_run(main_job.EXPERIMENT, [*SMOKE, "--config", str(file)])
