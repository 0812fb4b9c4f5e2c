"""The tasks of a sweep on this machine without Ray: a process each, as many as have cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ..cores import cores
from ..record.interrupts import StopFlag
from .on_ray import Resources, environment
from .plan import Task
from .tasks import KilledError, Status, run_task

POLL = 1.0  # seconds between two looks at the tasks


def side_by_side(cpus: float) -> int:
    """How many tasks of so many cores run at once on this machine; at least one."""
    return max(1, int(cores() // max(cpus, 1e-9)))


def run_here(
    folder: Path,
    tasks: Sequence[Task],
    trust: Sequence[str],
    resources: Resources,
    show: Callable[[], None],
) -> bool:
    """As `run_on_ray`. A task whose process died is started again up to `retries` times."""
    variables = environment(resources)
    with StopFlag() as stop, ThreadPoolExecutor(side_by_side(resources.cpus)) as pool:

        def run(task: Task) -> Status | None:
            for _ in range(resources.retries + 1):
                if stop.requested:  # it has not begun
                    return None
                with suppress(KilledError):
                    return run_task(str(folder), task, trust, variables, stop)
            return None

        waiting: list[Future[Status | None]] = [pool.submit(run, task) for task in tasks]
        while not all(future.done() for future in waiting):
            show()
            time.sleep(POLL)
        show()
        for future in waiting:
            future.result()  # an error of the file system is raised here
        return stop.requested
