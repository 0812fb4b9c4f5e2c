"""One task of a sweep: the command line in a process of its own, begun, resumed, or left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import CheckpointError, DivergenceError, UserError, printable
from ..record.files import check_contents, read_json, regular, write_json_atomically
from ..record.interrupts import StopFlag
from ..record.lock import FolderLock
from ..reports.report import Report, load_report
from .plan import Task

LOG, STATUS = "log.txt", "task.json"
WAITING, RUNNING, FINISHED = "waiting", "running", "finished"
FAILED, DIVERGED, STOPPED, KILLED = "failed", "diverged", "stopped", "killed"
# Seconds that a process with a stop signal may take to release its folder.
PATIENCE = 600.0
POLL = 0.2  # seconds between two looks at a process
TAIL = 8192  # bytes at the end of a log in which its last line is


class KilledError(Exception):
    """The process of a task was killed; the task can be restarted elsewhere."""


@dataclass(frozen=True)
class Status:
    """How a task goes.

    Attributes:
        state: waiting, running, finished, stopped (on request), killed; failed or diverged, by
            errors of its own, which another attempt would meet again.
        attempts: number of processes started.
        last: the last line of one that did not finish.
    """

    state: str = WAITING
    attempts: int = 0
    last: str = ""


def read_status(folder: Path) -> Status:
    """The status in a task's folder; nothing and a damaged one are a task that waits."""
    try:
        return Status(**read_json(folder / STATUS, "a task's folder"))
    except (UserError, TypeError):
        return Status()


def write_status(folder: Path, status: Status) -> Status:
    """Write `task.json`, atomically; returns the status."""
    write_json_atomically(folder / STATUS, asdict(status), seal=True)
    return status


def run_folder(folder: Path) -> Path | None:
    """The newest run in a task's folder, if there is one."""
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    return runs[-1] if runs else None


def finished_report(folder: Path) -> Report | None:
    """The report of a task's run; None where there is none, or none that can be read."""
    run = run_folder(folder)
    if run is None:
        return None
    try:
        return load_report(run)
    except UserError:
        return None


def last_line(folder: Path, start: int = 0) -> str:
    """The last line that a task printed, from an offset of its log on; its error, if it has one."""
    try:
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error: ", "stopped: "))]
    line = (errors or lines or [""])[-1]
    return printable(line)[:300]


def run_task(
    root: str,
    task: Task,
    trust: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
    stop: StopFlag | None = None,
) -> Status:
    """Start or resume the run of a task; its output goes to `log.txt`.

    Returns:
        How it went; `failed` and `diverged` are errors of its own.
    """
    folder = Path(root) / task.name
    folder.mkdir(parents=True, exist_ok=True)
    check_contents(Path(root), folder)
    with FolderLock(folder):  # the same task twice at once would train twice
        return _run(folder, task, trust, environment or {}, stop)


def _run(
    folder: Path,
    task: Task,
    trust: Collection[str],
    environment: Mapping[str, str],
    stop: StopFlag | None,
) -> Status:
    """`run_task` in a folder that is held."""
    before = read_status(folder)
    arguments = _command(folder, task)
    if not arguments:
        return write_status(folder, replace(before, state=FINISHED, last=""))
    status = write_status(folder, Status(RUNNING, before.attempts + 1))
    # -P: no module is imported from the directory that the plan names.
    program = [sys.executable, "-P", "-m", f"{__package__}.attempt", str(os.getpid())]
    program += [*sorted(trust), "--"]
    with open(folder / LOG, "ab", opener=regular) as log:
        start = log.tell()
        # In a session of its own: a Ctrl-C is passed on once, by the waiting process.
        with subprocess.Popen(
            [*program, *arguments],
            cwd=task.directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                code, asked = _wait(process, stop)
            except BaseException:
                process.terminate()
                process.wait()
                write_status(folder, replace(status, state=STOPPED))
                raise
    last = last_line(folder, start)
    state = _state(code, asked)
    if state == FINISHED and finished_report(folder) is None:
        state, last = FAILED, "the run left no report"
    write_status(folder, replace(status, state=state, last="" if state == FINISHED else last))
    if state == KILLED:
        raise KilledError(f"{task.name}: exit code {code}: {last}")
    return read_status(folder)


def _command(folder: Path, task: Task) -> list[str]:
    """Arguments of the command line that finish a task; none where it is finished."""
    if (run := run_folder(folder)) is None:
        return ["run", *task.arguments, "--out", str(folder)]
    _wait_until_free(run)
    if finished_report(folder) is not None:
        return []
    return ["resume", str(run)]


def _wait_until_free(run: Path) -> None:
    """Wait for the process of a worker that died, which may be writing its last checkpoint."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with FolderLock(run):
                return
        except CheckpointError:
            time.sleep(POLL)


def _wait(process: subprocess.Popen[bytes], stop: StopFlag | None) -> tuple[int, bool]:
    """Exit code, and whether a stop was requested."""
    asked = False
    while True:
        try:
            return process.wait(timeout=POLL), asked
        except subprocess.TimeoutExpired:
            if stop is not None and stop.requested and not asked:
                process.terminate()
                asked = True


def _state(code: int, asked: bool) -> str:
    if code == 0:
        return FINISHED
    if code < 0 or code >= 128:  # a signal, or 128 + its number
        return STOPPED if asked else KILLED
    return DIVERGED if code == DivergenceError.exit_code else FAILED
