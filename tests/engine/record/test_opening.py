"""Nothing outside of a run's folder is written; what was measured is read back."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import DataError, Interrupted
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.files import (
    append,
    check_contents,
    drop_torn_line,
    read_json,
    seal_file,
    write_atomically,
)
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.record.interrupts import StopFlag
from jaxrl_rollouts.record.lock import FolderLock
from jaxrl_rollouts.record.loggers import CsvLogger, JsonlLogger
from jaxrl_rollouts.sweep.plan import Task
from jaxrl_rollouts.sweep.tasks import run_task

PRECIOUS = "first line\nsecond line without an end"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.txt"
    path.write_text(PRECIOUS)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return RunFolder.at(tmp_path / "run", "toy").path


WRITERS = {
    ".lock": lambda folder: FolderLock(folder).__enter__(),
    "sessions.jsonl": lambda folder: RunFolder.open(folder).spend(wall_seconds=1.0),
    "metrics.jsonl": lambda folder: JsonlLogger(folder / "metrics.jsonl").log("a", 1, {"b": 1.0}),
    "metrics.csv": lambda folder: CsvLogger(folder / "metrics.csv").log("a", 1, {"b": 1.0}),
    "lines": lambda folder: append(folder / "lines", "more\n"),
    "torn": lambda folder: drop_torn_line(folder / "torn"),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", ["outside", "inside", "pipe"])
def test_what_is_changed_in_place_is_a_file_and_no_link(
    folder: Path, precious: Path, name: str, kind: str
) -> None:
    target = precious if kind == "outside" else folder / "run.json"
    before = target.read_text()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(target)
    with pytest.raises(DataError, match=rf"{name}: file: found a (link|pipe)"):
        WRITERS[name](folder)
    assert target.read_text() == before and precious.read_text() == PRECIOUS


def test_what_is_replaced_takes_the_place_of_a_link(folder: Path, precious: Path) -> None:
    for name in ("history.jsonl", "a.txt", "b.npz", "b.npz.sha256", ".history.jsonl.tmp"):
        (folder / name).symlink_to(precious)
    History(folder / "history.jsonl").append(1, {"loss": np.ones(2)})
    write_atomically(folder / "a.txt", "mine")
    assert (folder / "a.txt").read_text() == "mine"
    assert json.loads((folder / "history.jsonl").read_text())["iteration"] == 1
    (folder / "b.npz").unlink()
    (folder / "b.npz").write_bytes(b"x")
    seal_file(folder / "b.npz")
    assert precious.read_text() == PRECIOUS
    context = RunContext(RunFolder.at(folder.parent / "other", "toy"), progress=False)
    (context.folder.stage("s") / ".m.npz.tmp").symlink_to(precious)
    assert remember(context, "s", "m", lambda: {"a": np.ones(1)})["a"] == 1
    assert precious.read_text() == PRECIOUS


@pytest.mark.parametrize("name", ["stage", ".lock", "stage/1/params", "metrics.jsonl"])
def test_a_folder_with_a_link_that_leads_outside_is_refused_by_name(
    folder: Path, precious: Path, name: str, capsys: Any
) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(precious.parent if name == "stage" else precious)
    with pytest.raises(DataError, match=f"{name}: file: found a link to {precious.parent}"):
        RunFolder.open(folder)
    with pytest.raises(SystemExit) as caught:
        cli.main(["resume", str(folder)])
    assert caught.value.code == 2 and str(folder / name) in capsys.readouterr().err
    assert precious.read_text() == PRECIOUS


def test_links_that_stay_and_a_folder_that_is_one_itself_are_taken(folder: Path) -> None:
    (folder / "newest").symlink_to("run.json")
    alias = folder.parent / "alias"
    alias.symlink_to(folder)
    assert RunFolder.open(alias).experiment == "toy"


def test_sockets_and_pipes_are_refused_before_anything_waits_for_them(folder: Path) -> None:
    os.mkfifo(folder / "history.jsonl")
    with pytest.raises(DataError, match=r"history\.jsonl: file: found a pipe"):
        check_contents(folder)
    (folder / "history.jsonl").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "s"))  # a socket's name is short
        with pytest.raises(DataError, match="s: file: found a socket"):
            check_contents(folder)
    os.mkfifo(folder / "plan.json")
    with pytest.raises(DataError, match=r"plan\.json: file: found a pipe"):
        read_json(folder / "plan.json", "a sweep's folder")


def test_a_task_writes_in_its_own_folder_only(tmp_path: Path) -> None:
    task = Task("one", {}, ("toy",), str(tmp_path))
    outside, sweep = tmp_path / "outside", tmp_path / "sweep"
    for place in (outside, sweep):
        place.mkdir()
    (sweep / "one").symlink_to(outside)
    with pytest.raises(DataError, match=f"one: file: found a link to {outside}"):
        run_task(str(sweep), task)
    assert not list(outside.iterdir())
    (sweep / "one").unlink()
    (sweep / "one").mkdir()
    (sweep / "one" / "log.txt").symlink_to(sweep / "plan.json")
    (sweep / "plan.json").write_text("{}")
    with pytest.raises(DataError, match=r"log\.txt: file: found a link"):
        run_task(str(sweep), task)
    assert (sweep / "plan.json").read_text() == "{}"


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_what_is_written_has_the_permissions_of_the_umask(
    tmp_path: Path, mask: int, mode: int
) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a.json", "{}")
        append(tmp_path / "lines", "{}\n")
        with FolderLock(tmp_path):
            pass
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {mode}


@dataclass(frozen=True)
class Config:
    seeds: int = 1


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.create(tmp_path, "e", "smoke", Config(), "command"))


def test_arrays_are_measured_once(context: RunContext) -> None:
    calls = []

    def measure() -> dict:
        calls.append(1)
        return {"error": [[1.0, 2.0]], "seconds": 3.0}

    first = remember(context, "stage", "measured", measure)
    again = remember(context, "stage", "measured", measure)
    assert len(calls) == 1
    for arrays in (first, again):
        np.testing.assert_array_equal(arrays["error"], [[1.0, 2.0]])
        assert arrays["seconds"].shape == () and set(arrays) == {"error", "seconds"}
    remember(context, "other", "measured", measure)
    remember(None, "stage", "measured", measure)
    assert len(calls) == 3


@pytest.mark.parametrize("damage", ["flip", "truncate", "no digest"])
def test_what_is_damaged_is_measured_again(context: RunContext, damage: str) -> None:
    remember(context, "stage", "measured", lambda: {"error": np.arange(99.0)})
    path = context.folder.path / "stage" / "measured.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "no digest":
        path.with_name("measured.npz.sha256").unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:50])
    with pytest.warns(UserWarning, match="measured.npz: damaged or not finished, measured again"):
        again = remember(context, "stage", "measured", lambda: {"error": np.arange(98.0)})
    assert len(again["error"]) == 98
    assert len(remember(context, "stage", "measured", dict)["error"]) == 98
    assert sorted(p.name for p in path.parent.iterdir()) == ["measured.npz", "measured.npz.sha256"]


def test_who_asked_to_stop_waits_for_no_measurement(context: RunContext) -> None:
    stop = StopFlag()
    stop.request()
    asked = replace(context, stop=stop)
    with pytest.raises(Interrupted, match=f"stage: measured; .*resume {context.folder.path}"):
        remember(asked, "stage", "measured", lambda: pytest.fail("measured"))


def test_what_cannot_be_written_leaves_nothing(context: RunContext) -> None:
    with pytest.raises(TypeError, match="objects"):
        remember(context, "stage", "measured", lambda: {"objects": np.array([None])})
    assert not (context.folder.path / "stage" / "measured.npz").exists()
    kept = remember(context, "stage", "measured", lambda: {"number": 1.0})
    assert kept["number"] == 1.0
