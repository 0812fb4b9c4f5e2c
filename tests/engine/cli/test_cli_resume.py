"""Runs that were stopped, refused by the disk or made elsewhere, and how they go on."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers_cli import fails, run_folder

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.record.lock import FolderLock


@pytest.mark.usefixtures("hangup_is_heard")
# Other signals that ask: `test_interrupts`, and SIGTERM in `test_resume`.
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_runs_resume(plugin: Path, capsys: Any, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "jaxrl_rollouts", "run", "toy", "--preset", "slow"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = plugin / "runs"
    deadline = time.monotonic() + 60
    while not list(log.glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, how)
    err = process.communicate(timeout=60)[1]
    folder = run_folder(plugin)
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130 and "stopped: after " in err
    done = json.loads((folder / "count" / "state.json").read_text())
    assert 0 < done < 400
    # The stored configuration counts, so speed the rest up there.
    stored = json.loads((folder / "run.json").read_text())
    del stored["digest"]
    stored["config"] |= {"sleep": 0.0, "steps": done + 2}
    (folder / "run.json").write_text(json.dumps(stored))
    cli.main(["resume", str(folder), "--no-progress"])
    report = json.loads((folder / "report.json").read_text())
    assert report["numbers"]["resumed"]["values"] == [done]
    assert report["numbers"]["value"]["values"] == [done + 2]
    assert report["command"] == "jaxrl-rollouts run toy --preset slow"
    lines = (folder / "sessions.jsonl").read_text().splitlines()
    spent = [json.loads(line)["wall_seconds"] for line in lines]
    # Who is killed cannot write down how long it took.
    assert len(spent) == (1 if how == signal.SIGKILL else 2)
    assert report["wall_seconds"] == pytest.approx(sum(spent))


def test_two_processes_cannot_resume_one_run(plugin: Path, capsys: Any) -> None:
    cli.main(["run", "toy", "--preset", "smoke"])
    folder = run_folder(plugin)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with FolderLock(folder):
        code, err = fails(["resume", str(folder)], capsys)
        assert code == 2 and f"{folder.name}: in use by process {os.getpid()} on " in err
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    cli.main(["resume", str(folder)])


@pytest.mark.parametrize("place", ["count", "sessions.jsonl", "report.json"])
def test_what_the_disk_refuses_is_one_line_and_the_run_goes_on_later(
    plugin: Path, capsys: Any, monkeypatch: Any, place: str
) -> None:
    """The first cause, whatever else cannot be written on the way out."""
    cli.main(["run", "toy", "--preset", "smoke"])
    folder = run_folder(plugin)
    (folder / "count" / "state.json").unlink()

    def full(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_APPEND and place == Path(path).name:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, flags, *args, **options)

    def refused(start: str, end: str) -> None:
        if place in str(end):
            raise OSError(errno.ENOSPC, "No space left on device", str(end))
        replaced(start, end)

    opened, replaced = os.open, os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        patch.setattr(os, "replace", refused)
        capsys.readouterr()
        code, err = fails(["resume", str(folder), "--no-progress"], capsys)
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and "No space left on device" in line and place in line
    assert line.endswith(f"resume with: jaxrl-rollouts resume {folder}")
    cli.main(["resume", str(folder)])
    assert json.loads((folder / "report.json").read_text())["numbers"]["value"]["iqm"] == 1


def test_resume_keeps_the_loggers_unless_told_others(plugin: Path) -> None:
    cli.main(["run", "toy", "--preset", "smoke", "--logger", "csv"])
    folder = run_folder(plugin)
    assert (folder / "metrics.csv").exists() and not (folder / "metrics.jsonl").exists()
    for logger, written in (([], "metrics.csv"), (["--logger", "jsonl"], "metrics.jsonl")):
        for file in ("metrics.csv", "metrics.jsonl", "count/state.json"):
            (folder / file).unlink(missing_ok=True)
        cli.main(["resume", str(folder), *logger])
        assert [p.name for p in folder.glob("metrics.*")] == [written]


def test_resume_imports_nothing_that_was_not_named(plugin: Path, capsys: Any) -> None:
    """A folder may be somebody else's; one's own says how to go on."""
    cli.main(["run", "toy", "--preset", "smoke", "--fail", "envs.mine:make"])
    folder = run_folder(plugin)
    for trust in ([], ["--trust", "envs.other:make"]):
        code, err = fails(["resume", str(folder), *trust], capsys)
        assert code == 2 and "run.json: config: found 'envs.mine:make'" in err
        assert err.endswith(f"resume with: jaxrl-rollouts resume {folder} --trust envs.mine:make\n")
    cli.main(["resume", str(folder), "--trust", "envs.mine:make"])


def test_resume_tells_other_versions(plugin: Path, capsys: Any) -> None:
    cli.main(["run", "toy", "--preset", "smoke"])
    folder = run_folder(plugin)

    def edited(key: str, name: str, value: Any) -> None:
        stored = json.loads((folder / "run.json").read_text())
        stored.pop("digest", None)
        stored[key][name] = value
        (folder / "run.json").write_text(json.dumps(stored))
        capsys.readouterr()

    edited("versions", "jax", "0.0.1")
    cli.main(["resume", str(folder)])
    assert "note: jax was 0.0.1" in capsys.readouterr().err
    edited("config", "agent", {"critics": 2})
    code, err = fails(["resume", str(folder)], capsys)
    assert code == 2 and "run.json: agent.critics: found 'an unknown setting'" in err


def test_resume_says_at_once_where_it_could_not_publish(plugin: Path, capsys: Any) -> None:
    cli.main(["run", "toy", "--preset", "smoke"])
    folder = run_folder(plugin)
    (folder / "report.json").unlink()
    capsys.readouterr()
    code, err = fails(["resume", str(folder), "--publish", "site/toy_plugin.py/x"], capsys)
    assert code == 2 and "error: --publish: " in err and "is a file" in err
    assert not (folder / "report.json").exists(), "before any work"
