"""A run of a program of your own: a folder whose trainings resume, progress, Ctrl-C.

    with Run.open("runs/mine") as run:
        outcome = offline.train("hopper-medium-v2", "ravl", context=run)

Started again, the program resumes: trainings that were finished are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import processes
from .context import RunContext
from .folder import RunFolder
from .interrupts import StopFlag
from .lock import FolderLock
from .loggers import make_loggers


@dataclass(frozen=True)
class Run(RunContext):
    """A `RunContext` that a program opens; see `Run.open`. Pass it as `context`.

    Attributes:
        lock: on the folder, from `with` to its end.
    """

    lock: FolderLock | None = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        name: str = "",
        progress: bool = True,
        loggers: Iterable[str] = ("jsonl",),
    ) -> Run:
        """Open a run's folder, or make it.

        Args:
            folder: output folder; the same folder resumes the same run.
            name: for its reports; the folder's own unless given.
            progress: show progress.
            loggers: loggers of metrics: jsonl, csv, tensorboard, wandb.

        Raises:
            StorageError: the folder cannot be made.
            CheckpointError: it was written by another version.
            ConfigError: an unknown logger.
            MissingExtraError: a logger's package is not installed.
        """
        folder = Path(folder)
        name, folder = name or folder.resolve().name, processes.own(folder)
        opened, progress = RunFolder.at(folder, name), progress and processes.first()
        loggers = loggers if processes.first() else ()
        made, lock = make_loggers(loggers, folder), FolderLock(folder)
        return cls(opened, progress, made, opened.command, StopFlag(), lock)

    def __enter__(self) -> Run:
        """From here on no other process may write there, and the first Ctrl-C stops at the next
        checkpoint; `CheckpointError` while another process is at it."""
        assert self.stop is not None and self.lock is not None
        self.lock.__enter__()
        self.folder.tidy()
        self.stop.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        assert self.stop is not None and self.lock is not None
        with ExitStack() as closing:  # also where an interrupt is passed on
            closing.callback(self.lock.__exit__, kind, error, traceback)
            for logger in self.loggers:
                closing.callback(logger.close)
            self.stop.__exit__(kind, error, traceback)
