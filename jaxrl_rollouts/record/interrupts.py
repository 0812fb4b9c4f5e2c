"""Stopping a run: at the first Ctrl-C, SIGTERM or SIGHUP after the chunk, at the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

AGAIN = 0.05  # seconds after which an interrupt that Python dropped is raised once more
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # there is none outside Unix


def is_interrupt(error: BaseException) -> bool:
    """Whether jax raised `error` because a simulator that it called was interrupted."""
    jax = sys.modules.get("jax")
    return jax is not None and (
        isinstance(error, jax.errors.JaxRuntimeError) and "KeyboardInterrupt" in str(error)
    )


def end_in_imports() -> None:
    """Have Ctrl-C end the process in one line while modules are imported.

    An interrupt inside of a native module's import makes other errors, or crashes it.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                os.write(2, b"stopped: interrupted\n")
                os._exit(130)
            frame = frame.f_back
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, handle)


def interrupt_again(wanted: Callable[[], bool] = lambda: True) -> None:
    """Interrupt the main thread soon, if it is still `wanted` then."""

    def interrupt() -> None:
        if not wanted():
            return
        if hasattr(signal, "pthread_kill"):  # which wakes what the main thread waits in
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(AGAIN, interrupt)
    timer.daemon = True
    timer.start()


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
        self._hook: Any = None

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

    def _dropped(self, found: Any) -> None:
        """Python only prints what is raised in a destructor or by jax's part of the collector."""
        if found.exc_type is not KeyboardInterrupt:
            self._hook(found)
            return
        interrupt_again(lambda: bool(self._previous))

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            for number in {signal.SIGINT, signal.SIGTERM, HANGUP}:
                if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            sys.unraisablehook = self._hook
        self._previous.clear()
        if self._insisted and isinstance(error, Exception):  # raised inside a simulator, say
            raise KeyboardInterrupt from error
