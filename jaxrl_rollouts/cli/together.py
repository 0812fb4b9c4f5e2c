"""Options of every command for several processes. Loads no jax."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

from ..errors import ConfigError, PeerError

PARENT_DEATH = 1  # of prctl, on Linux: the signal for when the parent ends
OPTIONS = ("--coordinator", "--processes", "--process", "--distributed")


class Wanted(NamedTuple):
    """Arguments of `processes.join`."""

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def taken(arguments: Sequence[str]) -> tuple[list[str], Wanted | None]:
    """A command line without these options, and what they ask for, if anything."""
    words = list(arguments)
    if not any(word.split("=")[0] in OPTIONS for word in words):
        return words, None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    parser.add_argument("--distributed", action="store_true")
    try:
        found, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise ConfigError(str(error.argument_name), error.message, "a value") from None
    wanted = Wanted(found.coordinator, found.processes, found.process)
    missing = [name for name, value in zip(OPTIONS, wanted, strict=False) if value is None]
    if found.distributed and len(missing) == 3:
        return rest, Wanted()
    if missing:
        together = "all of --coordinator HOST:PORT --processes N --process I"
        hint = "or --distributed alone, where SLURM, Open MPI or a TPU pod says it"
        raise ConfigError(missing[0], None, together, hint)
    if not 0 <= found.process < found.processes:
        expected = f"0 to {found.processes - 1}, with {found.processes} processes"
        raise ConfigError("--process", found.process, expected)
    return rest, wanted


def leave_a_parent() -> None:
    """Return in a child process, before jax is loaded; the parent ends as it does.

    jax aborts a process whose first one is gone, from a thread that Python does not hear of: the
    parent can still say so.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # Ctrl-C comes from the parent only
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
        return

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGABRT:
        raise PeerError(
            "another process of this run has ended, or cannot be reached, so that jax ended this "
            "one; restart all to resume"
        )
    sys.exit(code if code >= 0 else 128 - code)
