"""One process at a time writes into a run's folder."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .files import regular

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl: Any = None

NAME = ".lock"


class FolderLock:
    """Context manager that locks a folder; its `.lock` names the process.

    The operating system's own lock goes with its process, so one that died holds nothing. Where
    the file system has none (some network file systems), the file itself is the lock: it is
    taken over from a process of this machine that is no more.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._handle: int | None = None
        self._alone = False  # the file itself is the lock

    def __enter__(self) -> FolderLock:
        handle = regular(self.path, os.O_RDWR | os.O_CREAT)
        try:
            self._alone = not _flock(handle)
            if self._alone and _holds(self._holder()):
                raise BlockingIOError
        except BlockingIOError:
            os.close(handle)
            raise CheckpointError(
                f"{self.path.parent}: in use by {self._holder() or 'another process'}; wait until "
                "it is done, or stop it: kill -TERM has it write a checkpoint first"
                + (f" (if it is no more, remove {self.path})" if self._alone else "")
            ) from None
        self._handle = handle
        with contextlib.suppress(OSError):  # a full disk: held, by an unknown process
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {platform.node()}\n".encode())
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):  # a full disk
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def _holder(self) -> str:
        with contextlib.suppress(OSError):
            return self.path.read_text(encoding="utf-8", errors="replace").strip()
        return ""


def _flock(handle: int) -> bool:
    """Lock an open file; False where the file system cannot. `BlockingIOError` if another has."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _holds(holder: str) -> bool:
    """Whether `process PID on MACHINE` may still be running."""
    words = holder.split()
    if len(words) != 4 or not words[1].isdigit():
        return False
    if words[3] != platform.node():
        return True
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:  # someone else's process
        return True
    return int(words[1]) != os.getpid()
