"""One task, begun, resumed or left alone, also by the number of a SLURM job array."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError, StorageError
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag
from jaxrl_rollouts.record.lock import FolderLock
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.sweep import attempt, here, tasks
from jaxrl_rollouts.sweep.here import run_here, side_by_side
from jaxrl_rollouts.sweep.on_ray import Resources
from jaxrl_rollouts.sweep.plan import Plan, Task
from jaxrl_rollouts.sweep.slurm import ranges, write_slurm
from jaxrl_rollouts.sweep.tasks import KilledError, Status, last_line, read_status, run_task

NAME = "swing-0"


@dataclass(frozen=True)
class Config:
    seed: int = 0


def begin(root: Path, *, finish: bool = False) -> Path:
    """A run in the task's folder, as the command line leaves it."""
    run = RunFolder.create(root / NAME, "swept", "cpu", Config(), "").path
    if finish:
        Report("swept", "cpu", {}, "", 1, versions={}).save(run)
    return run


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(NAME, {"seed": 0}, ("swept", "--study.seed", "0"), str(tmp_path))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: Any) -> Any:
    """A shell script in place of Python: what it is called with goes into `called`."""

    def make(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f'#!/bin/bash\nshift 4\necho "$@" >> {tmp_path}/called\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setattr(tasks.sys, "executable", str(path))

    return make


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has asked for its exit code does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def called(tmp_path: Path) -> list[str]:
    path = tmp_path / "called"
    return path.read_text().splitlines() if path.exists() else []


def test_a_task_is_begun_then_resumed_then_left_alone(
    tmp_path: Path, task: Task, stand_in: Any
) -> None:
    stand_in("echo note: slow; echo error: no such file >&2; exit 2")
    status = run_task(str(tmp_path), task)
    assert status == Status("failed", 1, "error: no such file")
    run = begin(tmp_path)
    run_task(str(tmp_path), task, ["my.envs:make"], {"COLOUR": "red"})
    begun = f"-- run swept --study.seed 0 --out {tmp_path / NAME}"
    resumed = f"my.envs:make -- resume {run}"
    assert called(tmp_path) == [begun, resumed]
    begin(tmp_path, finish=True)
    assert run_task(str(tmp_path), task) == Status("finished", 2) == read_status(tmp_path / NAME)
    assert len(called(tmp_path)) == 2


@pytest.mark.parametrize(
    ("script", "state", "last"),
    [
        ("echo error: metric loss is nan; exit 3", "diverged", "error: metric loss is nan"),
        ("echo Traceback; echo 'KeyError: 3'; exit 1", "failed", "KeyError: 3"),
        ("printf 'error: a\\e[31mb\\n'; echo goodbye; exit 2", "failed", "error: a[31mb"),
        ("exit 0", "failed", "the run left no report"),
    ],
)
def test_errors_of_its_own_end_a_task(
    tmp_path: Path, task: Task, stand_in: Any, script: str, state: str, last: str
) -> None:
    stand_in(script)
    assert run_task(str(tmp_path), task) == Status(state, 1, last)


@pytest.mark.parametrize("script", ["kill -9 $$", "exit 130"])
def test_a_killed_process_is_told_from_one_that_failed(
    tmp_path: Path, task: Task, stand_in: Any, script: str
) -> None:
    stand_in(f"echo at 3 of 4; {script}")
    with pytest.raises(KilledError, match=f"{NAME}: exit code .*at 3 of 4"):
        run_task(str(tmp_path), task)
    assert read_status(tmp_path / NAME) == Status("killed", 1, "at 3 of 4")


def test_a_request_to_stop_is_passed_on(tmp_path: Path, task: Task, stand_in: Any) -> None:
    stand_in("trap 'echo stopped: at 2; exit 130' TERM; echo begun; sleep 30 & wait")
    stop = StopFlag()
    threading.Timer(0.1, stop.request).start()
    status = run_task(str(tmp_path), task, stop=stop)
    assert status == Status("stopped", 1, "stopped: at 2")


def test_the_process_of_a_dead_worker_is_waited_for(
    tmp_path: Path, task: Task, stand_in: Any, monkeypatch: Any
) -> None:
    stand_in("exit 2")
    run = begin(tmp_path)
    lock = FolderLock(run)
    lock.__enter__()
    threading.Timer(0.3, lock.__exit__, (None, None, None)).start()
    start = time.monotonic()
    run_task(str(tmp_path), task)
    assert time.monotonic() - start > 0.3
    monkeypatch.setattr(tasks, "PATIENCE", 0.0)
    with FolderLock(run):  # not for ever: the command line then says who has it
        run_task(str(tmp_path), task)


def test_a_damaged_status_is_a_task_that_waits(tmp_path: Path) -> None:
    assert read_status(tmp_path) == Status("waiting", 0, "")
    (tmp_path / "task.json").write_text(json.dumps({"state": "finished", "more": 1}))
    assert read_status(tmp_path) == Status()


def test_the_last_line_is_looked_for_at_the_end_of_a_log(tmp_path: Path) -> None:
    assert last_line(tmp_path) == ""
    (tmp_path / "log.txt").write_text("error: old\n" + "x" * 20_000 + "\n 10%\r 20%\n\n")
    assert last_line(tmp_path) == "20%"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_the_process_of_a_task_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        f"import os, runpy, time\nmodule = runpy.run_path({attempt.__file__!r})\n"
        "module['die_with_parent'](os.getppid())\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write('x')\ntime.sleep(60)"
    )
    shell = f'{sys.executable} -S -c "$CODE" & echo $!; wait'
    environment = {**os.environ, "CODE": code}
    parent = subprocess.Popen(
        ["bash", "-c", shell], stdout=subprocess.PIPE, text=True, env=environment
    )
    pid = int(parent.stdout.readline())
    while not (tmp_path / "pid").exists():
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pid)


def test_the_same_task_runs_once_at_a_time(tmp_path: Path, task: Task, stand_in: Any) -> None:
    stand_in("sleep 30")
    stop = StopFlag()
    first = threading.Thread(target=run_task, args=(str(tmp_path), task), kwargs={"stop": stop})
    first.start()
    while not called(tmp_path):
        time.sleep(0.02)
    with pytest.raises(CheckpointError, match=f"{NAME}: in use by process {os.getpid()}"):
        run_task(str(tmp_path), task)
    stop.request()
    first.join()
    assert len(called(tmp_path)) == 1 and read_status(tmp_path / NAME).attempts == 1


TASKS = tuple(Task(f"t-{n}", {"seed": n}, ("toy",), "/") for n in range(4))
PLAN = Plan("toy", ("sweep toy",), TASKS)


def test_the_script_runs_the_line_of_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", "/bin/echo")
    folder = tmp_path / "a sweep"
    script = tmp_path / "my job.sh"
    lines = write_slurm(script, folder, PLAN, [1, 2, 4], ["my.envs:make"], cpus=1.5, gpus=1)
    text = script.read_text()
    for option in ("--array=1-2,4", "--cpus-per-task=2", "--gres=gpu:1", "--requeue"):
        assert f"#SBATCH {option}\n" in text
    assert len(lines.read_text().splitlines()) == len(TASKS)
    done = subprocess.run(
        ["bash", script], env={"SLURM_ARRAY_TASK_ID": "4"}, capture_output=True, text=True
    )
    said = ["-m", "jaxrl_rollouts", "sweep", "task", str(folder), "4", "--trust", "my.envs:make"]
    assert done.stdout.split() == " ".join(said).split() and not done.stderr
    assert shlex.split(lines.read_text().splitlines()[3])[1:] == said


def test_without_gpus_none_are_asked_for_and_shares_are_refused(tmp_path: Path) -> None:
    write_slurm(tmp_path / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0)
    assert "gres" not in (tmp_path / "job.sh").read_text()
    with pytest.raises(ConfigError, match="--gpus: found 0.5, expected a whole number"):
        write_slurm(tmp_path / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0.5)
    with pytest.raises(StorageError, match="No such file"):
        write_slurm(tmp_path / "no" / "job.sh", tmp_path, PLAN, [1], [], cpus=1, gpus=0)


def test_ranges() -> None:
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3,5,7-8" and ranges([4]) == "4"


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_tasks_run_here_and_start_again_when_killed(
    tmp_path: Path, stand_in: Any, monkeypatch: Any, retries: int, attempts: int
) -> None:
    monkeypatch.setattr(here, "POLL", 0.05)
    names = ("swing-0", "swing-1", "killed-0")
    several = [Task(n, {}, ("swept", "--name", n), str(tmp_path)) for n in names]
    stand_in('case "$*" in *killed*) kill -9 $$;; esac; echo error: none; exit 2')
    seen: list[int] = []
    stopped = run_here(tmp_path, several, (), Resources(retries=retries), lambda: seen.append(1))
    assert not stopped and seen
    states = [read_status(tmp_path / task.name) for task in several]
    assert [status.state for status in states] == ["failed", "failed", "killed"]
    assert [status.attempts for status in states] == [1, 1, attempts]


def test_tasks_run_on_the_cores_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    # A container's or SLURM's share is less than the machine's cores.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert [side_by_side(cpus) for cpus in (1, 1.5, 2, 4)] == [3, 2, 1, 1]
