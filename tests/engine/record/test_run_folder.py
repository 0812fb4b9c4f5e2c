"""A run's folder and its record, and what checkpoints say they are of."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError, StorageError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record import folder as run_folder
from jaxrl_rollouts.record.about import ABOUT, check_facts, warnings_of
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.run import Run


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


@dataclass(frozen=True)
class Inner:
    rate: float = 1e-3
    sizes: tuple[int, ...] = (8, 8)


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    several: tuple[Inner, ...] = (Inner(1.0),)
    code: Any = None


def test_settings_stand_by_their_dotted_names_as_json_has_them() -> None:
    assert warnings_of(None) == {}
    assert warnings_of(Inner()) == {"rate": 1e-3, "sizes": [8, 8]}
    found = warnings_of({"kind": "a", "agent": Outer(code=len)})
    assert found["kind"] == "a" and found["agent.inner.rate"] == 1e-3
    assert found["agent.several"] == [{"rate": 1.0, "sizes": [8, 8]}]
    # Of code its kind: where it lies in memory is another place in every session.
    assert found["agent.code"] == "builtin_function_or_method"


def test_only_what_both_know_is_compared() -> None:
    kept = json.dumps(warnings_of({"rate": 0.1, "gone": 1}))
    check_facts(Path("x"), kept, warnings_of({"rate": 0.1, "new": 2}))
    check_facts(Path("x"), None, warnings_of({"rate": 0.2}))
    with pytest.raises(CheckpointError, match=r"x: rate: found a training with 0.1, expected 0.2;"):
        check_facts(Path("x"), kept, warnings_of({"rate": 0.2}))


def run(
    folder: Path, about: Any, iterations: int = 2, units: int = 1, seed: int = 0, rows: float = 0.0
) -> Any:
    keys = {"key": jax.random.split(jax.random.key(seed), 1), "rows": jnp.full(1, rows)}

    def update(state: jax.Array, data: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        return state + 1, {"value": state}

    with Run.open(folder, progress=False) as context:
        return train_loop(
            update, lambda keys, data: jnp.zeros(()), keys, iterations=iterations, stage="a",
            units_per_iteration=units, context=context, about=about,
        )  # fmt: skip


def test_a_program_that_was_changed_is_not_given_what_it_trained_before(tmp_path: Path) -> None:
    run(tmp_path / "run", Inner())
    assert run(tmp_path / "run", Inner(), 3).state[0] == 3
    for change, name in ((Inner(rate=2e-3), "rate"), (Inner(sizes=(4,)), "sizes")):
        with pytest.raises(CheckpointError, match=f"{name}: found a training with"):
            run(tmp_path / "run", change)
    with pytest.raises(CheckpointError, match="steps of an iteration: .* 1, expected 5"):
        run(tmp_path / "run", Inner(), units=5)
    with pytest.raises(CheckpointError, match="keys of the seeds: found a training with '"):
        run(tmp_path / "run", Inner(), seed=1)
    # What was computed has other last bits elsewhere.
    assert run(tmp_path / "run", Inner(), 3, rows=1e-7).state[0] == 3
    # Nothing was touched, and a run of an earlier version, which does not say, is gone on with.
    assert run(tmp_path / "run", Inner(), 3).state[0] == 3
    folder = tmp_path / "run" / "a"
    for step in checkpoint.steps(folder):
        (folder / str(step) / ABOUT).unlink()
        digests = folder / str(step) / checkpoint.DIGESTS
        known = json.loads(digests.read_text())
        del known["files"][ABOUT], known["digest"]
        digests.write_text(json.dumps(known))
    assert run(tmp_path / "run", Inner(rate=2e-3), 3).state[0] == 3
