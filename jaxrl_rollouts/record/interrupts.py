"""Stopping a run on request: the first Ctrl-C, SIGTERM or SIGHUP asks, the second one insists."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from types import FrameType
from typing import Any

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # there is none outside Unix


def is_interrupt(error: BaseException) -> bool:
    """Whether jax raised `error` because a simulator that it called was interrupted."""
    jax = sys.modules.get("jax")
    return jax is not None and (
        isinstance(error, jax.errors.JaxRuntimeError) and "KeyboardInterrupt" in str(error)
    )


class StopFlag:
    """Context manager that turns signals into a flag a training loop polls between chunks.

    The first SIGINT, SIGTERM or SIGHUP (a closed terminal; under `nohup` it stays ignored) sets
    `requested`; a second SIGINT or SIGTERM raises `KeyboardInterrupt`. The handlers that were
    there before come back on exit. Outside the main thread, where Python allows no handlers, the
    flag can still be set with `request`.
    """

    def __init__(self) -> None:
        self.requested = False
        self._insisted = False
        self._previous: dict[int, Any] = {}

    def request(self) -> None:
        """Ask the run to stop at its next chunk."""
        self.requested = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if number == HANGUP:  # a shell and the kernel each send one
                return
            self._insisted = True
            raise KeyboardInterrupt
        self.requested = True
        name = signal.Signals(number).name
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(
                f"\n{name}: stopping after this chunk, with a checkpoint (again: at once)",
                file=sys.stderr,
                flush=True,
            )

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            for number in {signal.SIGINT, signal.SIGTERM, HANGUP}:
                if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        if self._insisted and isinstance(error, Exception):  # raised inside a simulator, say
            raise KeyboardInterrupt from error
