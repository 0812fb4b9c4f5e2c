"""Sweeps on Ray: a worker killed, a run killed, a sweep stopped; the numbers are the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.sweep.tasks import Status, read_status, run_folder

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TASK = "pendulum-mixed-td3_bc-{}"
SETTINGS = "--preset smoke --steps 12000 --evaluations 6 --cpus 1"
SWEEP = ["sweep", "offline", "--methods", "td3_bc", *SETTINGS.split()]


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jaxrl_rollouts", *SWEEP, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=900)
    return process.returncode, said


def swept(arguments: Sequence[str]) -> tuple[int, str]:
    return end(start(arguments))


def in_the_middle(folder: Path, task: str, sweep: subprocess.Popen[str]) -> int:
    """The process of a task that trains, and has for a while."""
    while sweep.poll() is None:
        run = run_folder(folder / task)
        metrics = run / "metrics.jsonl" if run is not None else None
        if metrics is not None and metrics.exists() and metrics.read_bytes().count(b"\n") > 20:
            words = (run / ".lock").read_text().split()
            assert words[0] == "process"
            return int(words[1])
        time.sleep(0.05)
    raise AssertionError(sweep.communicate()[0])


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def results(report: Report) -> list:
    return report.tables["result"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
def test_killed_workers_and_runs_change_no_number_and_nothing_is_computed_twice(
    tmp_path: Path,
) -> None:
    data = ["--datasets", "pendulum-mixed", "--seeds", "0", "1", "2", "--out"]
    code, said = swept([*data, str(tmp_path / "calm")])
    assert code == 0, said
    calm = load_report(tmp_path / "calm")
    assert results(calm)[0]["finished"] == "3 of 3" and results(calm)[0]["return"].seeds == 3

    folder = tmp_path / "killed"
    sweep = start([*data, str(folder)])
    run = in_the_middle(folder, TASK.format(0), sweep)
    worker = parent(run)
    assert b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
    os.kill(worker, signal.SIGKILL)
    os.kill(in_the_middle(folder, TASK.format(1), sweep), signal.SIGKILL)
    code, said = end(sweep)
    assert code == 0, said
    assert results(load_report(folder)) == results(calm)
    done = {n: read_status(folder / TASK.format(n)) for n in (0, 1, 2)}
    assert done == {n: Status("finished", 1 + (n < 2)) for n in done}
    log = (folder / TASK.format(0) / "log.txt").read_text()
    stopped = re.search(r"stopped: in stage \S+ after (\d+) of (\d+) iterations", log)
    assert stopped and 0 < int(stopped[1]) < int(stopped[2]) and log.count("run folder: ") == 2

    written = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/**/*")}
    code, said = swept([*data, str(folder)])
    assert code == 0 and "0 of 3 tasks are to be run" in said
    assert written == {path: path.stat().st_mtime_ns for path in folder.glob("*/*/**/*")}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
def test_a_sweep_that_is_stopped_goes_on_and_failures_are_named_not_repeated(
    tmp_path: Path,
) -> None:
    folder, task = tmp_path / "stopped", TASK.format(0)
    data = ["--datasets", "pendulum-mixed", "no-such.hdf5", "--seeds", "0", "--out", str(folder)]
    sweep = start(data)
    run = in_the_middle(folder, task, sweep)
    os.kill(sweep.pid, signal.SIGINT)
    code, said = end(sweep)
    begins = "stopped: with 0 of 2 tasks finished; resume with: jaxrl-rollouts sweep offline"
    assert code == 130 and said.splitlines()[-1].startswith(begins)
    assert not Path(f"/proc/{run}").exists()
    assert read_status(folder / task).state == "stopped"
    code, said = swept(data)
    assert code == 2, said
    last = said.splitlines()[-1]
    assert last.startswith("error: 1 of 2 tasks did not finish, no-such.hdf5-td3_bc-0 among them")
    rows = {row["task"]: row for row in load_report(folder).tables["tasks"]}
    failed = rows["no-such.hdf5-td3_bc-0"]
    assert failed["state"] == "failed" and "no-such.hdf5" in failed["last line"]
    assert failed["attempts"] == read_status(folder / "no-such.hdf5-td3_bc-0").attempts <= 2
    assert rows[task]["state"] == "finished" and rows[task]["attempts"] == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
def test_a_sweep_whose_driver_was_killed_goes_on(tmp_path: Path) -> None:
    data = ["--datasets", "pendulum-mixed", "--seeds", "0", "1", "--out"]
    code, said = swept([*data, str(tmp_path / "calm")])
    assert code == 0, said
    folder = tmp_path / "killed"
    sweep = start([*data, str(folder)])
    run = in_the_middle(folder, TASK.format(0), sweep)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    for _ in range(600):  # its workers end with it: each has its run write a checkpoint
        if not Path(f"/proc/{run}").exists():
            break
        time.sleep(0.1)
    code, said = swept([*data, str(folder)])
    assert code == 0, said
    assert results(load_report(folder)) == results(load_report(tmp_path / "calm"))
