"""How far a sweep is: a table on a terminal, a line per change in a log file."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .plan import Task
from .tasks import (
    DIVERGED,
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    STOPPED,
    WAITING,
    last_line,
    read_status,
)

if TYPE_CHECKING:
    from rich.table import Table

NAME = 40  # letters of a task's name that a narrow terminal shows
ORDER = (FINISHED, RUNNING, WAITING, STOPPED, FAILED, DIVERGED, KILLED)


class Watch:
    """Context manager that shows the tasks of a sweep; call it now and then.

    Args:
        folder: folder of the sweep.
        tasks: tasks of its plan.
        enabled: False shows nothing.
        stream: output stream; standard error by default.
    """

    def __init__(
        self,
        folder: Path,
        tasks: Sequence[Task],
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._folder, self._tasks, self._enabled = folder, tasks, enabled
        self._stream = stream if stream is not None else sys.stderr
        self._status = {task.name: read_status(folder / task.name) for task in tasks}
        self._live = None
        self._begin = time.monotonic()

    def __enter__(self) -> Watch:
        if self._enabled and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(self.table(), console=console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def __call__(self) -> None:
        """Look at the tasks and show what has changed."""
        changed = []
        for task in self._tasks:
            before = self._status[task.name]
            if before.state == FINISHED:
                continue
            now = read_status(self._folder / task.name)
            self._status[task.name] = now
            if now != before:
                changed.append(task)
        with contextlib.suppress(OSError):  # a terminal that was closed stops no sweep
            if self._live is not None:
                self._live.update(self.table(), refresh=True)
            elif self._enabled:
                for task in changed:
                    print(self._line(task), file=self._stream, flush=True)

    def _line(self, task: Task) -> str:
        status = self._status[task.name]
        again = f" (attempt {status.attempts})" if status.attempts > 1 else ""
        last = f": {status.last}" if status.last else ""
        return f"{self.counted()}  {task.name}: {status.state}{again}{last}"

    def counted(self) -> str:
        """`3 of 8 finished, 2 running, 3 waiting`."""
        counts = Counter(status.state for status in self._status.values())
        rest = [f"{counts[state]} {state}" for state in ORDER[1:] if counts[state]]
        return ", ".join([f"{counts[FINISHED]} of {len(self._tasks)} finished", *rest])

    def table(self) -> Table:
        """The tasks that run or went wrong, each with its last line."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        minutes, seconds = divmod(int(time.monotonic() - self._begin), 60)
        title = f"{self.counted()}, {minutes}:{seconds:02d}"
        grid = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        rows = [self._row(task) for task in self._tasks if self._shown(task)]
        for place, column in enumerate(("task", "state", "attempt", "last line")):
            needs = max((len(row[place]) for row in rows), default=0)
            keep = None if column == "last line" else min(needs, NAME)  # that one is cut first
            grid.add_column(column, no_wrap=True, overflow="ellipsis", min_width=keep)
        for row in rows:
            grid.add_row(*map(escape, row))
        return grid

    def _shown(self, task: Task) -> bool:
        return self._status[task.name].state not in (FINISHED, WAITING)

    def _row(self, task: Task) -> tuple[str, str, str, str]:
        status = self._status[task.name]
        last = last_line(self._folder / task.name) if status.state == RUNNING else status.last
        return task.name, status.state, str(status.attempts), last
