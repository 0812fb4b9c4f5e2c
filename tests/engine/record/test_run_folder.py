from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError, StorageError
from jaxrl_rollouts.record import folder as run_folder
from jaxrl_rollouts.record.folder import RunFolder


@dataclass(frozen=True)
class Config:
    seeds: int = 3


def make(root: Path) -> RunFolder:
    return RunFolder.create(root, "toy", "cpu", Config(), "jaxrl-rollouts run toy")


def test_open_returns_what_create_made(tmp_path: Path) -> None:
    made = make(tmp_path / "deep" / "runs")
    assert RunFolder.open(made.path) == made
    assert RunFolder.open(str(made.path)).config_as(Config) == Config(3)
    assert made.path.name.startswith("toy-cpu-20")
    assert set(made.versions) - {"commit"} == {"python", "jax", "jaxlib", "jaxrl-rollouts"}
    assert [p.name for p in made.path.iterdir()] == ["run.json"]


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "20261120-000000")
    names = [make(tmp_path).path.name for _ in range(3)]
    base = "toy-cpu-20261120-000000"
    assert names == [base, f"{base}-2", f"{base}-3"]


def test_sessions_add_up(tmp_path: Path) -> None:
    folder = make(tmp_path)
    assert folder.spend(wall_seconds=1.5) == {"wall_seconds": 1.5}
    assert folder.spend(wall_seconds=0.25) == {"wall_seconds": 1.75}
    # The second time was not on record in the first sessions.
    both = RunFolder.open(folder.path).spend(wall_seconds=1.0, compile_seconds=0.5)
    assert both == {"wall_seconds": 2.75, "compile_seconds": 0.5}


@pytest.mark.parametrize("line", [b'{"wall', b"\xff\n", b'{"wall_seconds": 9.5, "digest": "0"}\n'])
def test_a_damaged_session_costs_its_time_and_no_more(tmp_path: Path, line: bytes) -> None:
    folder = make(tmp_path)
    folder.spend(wall_seconds=1.5)
    path = folder.path / "sessions.jsonl"
    path.write_bytes(path.read_bytes() + line)
    if line.endswith(b"\n"):
        with pytest.warns(UserWarning, match="sessions.jsonl: line 2 is damaged"):
            assert folder.spend(wall_seconds=0.25) == {"wall_seconds": 1.75}
    else:  # torn
        assert folder.spend(wall_seconds=0.25) == {"wall_seconds": 1.75}


def test_a_run_holds_its_data(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.hold("hopper", sha256="ab")
    folder.hold("walker", sha256="cd")
    again = RunFolder.open(folder.path)
    again.hold("hopper", sha256="ab")
    assert again.data == {"hopper": {"sha256": "ab"}, "walker": {"sha256": "cd"}}
    with pytest.raises(DataError, match="run.json: data.hopper.sha256: found ba, expected ab"):
        again.hold("hopper", sha256="ba")
    assert again.data == folder.data and RunFolder.open(folder.path) == folder


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path: Path) -> None:
    folder = make(tmp_path)
    stage = folder.stage("fit")
    (stage / "7").mkdir()
    kept = [stage / "7" / "array", stage / "history.jsonl", folder.path / ".lock", stage / ".own"]
    left = [folder.path / ".report.json.x1_y2.tmp", stage / ".history.jsonl.tmp"]
    left += [stage / ".data.h5.0f.part", stage / ".writing" / "8" / "array"]
    left += [stage / "8.orbax-checkpoint-tmp" / "array"]
    for path in kept + left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    folder.tidy()
    there = {path for path in folder.path.rglob("*") if path.is_file()}
    assert there == {*kept, folder.path / "run.json"}
    assert sorted(p.name for p in stage.iterdir()) == [".own", "7", "history.jsonl"]


def test_a_stage_is_a_subfolder_and_cannot_leave_it(tmp_path: Path) -> None:
    folder = make(tmp_path)
    assert folder.stage("world-model") == folder.path / "world-model"
    assert folder.stage("world-model").is_dir()
    for name in ("", ".", "..", "a/b", "/tmp"):
        with pytest.raises(ValueError, match="plain folder name"):
            folder.stage(name)


def spoil(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    del data["digest"]  # as who edits it by hand would
    data.update(changes)
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": 999}, "format: found 999, expected 1"),
        ({"format": ...}, "format: found None, expected 1"),
        ({"config": ...}, "config: found nothing, expected an object"),
        ({"config": [1]}, "config: found list, expected an object"),
        ({"experiment": 3}, "experiment: found int, expected a string"),
        ({"command": None}, "command: found NoneType, expected a string"),
        ({"versions": "1"}, "versions: found str, expected an object"),
        ({"data": {"a": 1}}, "data: found {'a': 1}, expected objects by name"),
    ],
)
def test_spoilt_run_json(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    folder = make(tmp_path)
    spoil(folder.path / "run.json", **changes)
    with pytest.raises(CheckpointError, match=expected) as caught:
        RunFolder.open(folder.path)
    assert "run.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b'"run"', b'{"format": 1'])
def test_run_json_of_anything_else(tmp_path: Path, content: bytes) -> None:
    folder = make(tmp_path)
    (folder.path / "run.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        RunFolder.open(folder.path)
    assert "run.json" in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found no folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="found no such file"):
        RunFolder.open(tmp_path)
    folder = make(tmp_path)
    spoil(folder.path / "run.json", config={"sedes": 3})  # of another version
    with pytest.raises(ConfigError, match="sedes.*did you mean seeds"):
        RunFolder.open(folder.path).config_as(Config)
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageError, match="runs: cannot make a run folder: File exists"):
        make(tmp_path / "runs")
