"""Other people's programs, timed in interpreters of their own: their dependencies pin old ones.

A peer is a script in `peers/` that imports nothing of ours. It reads one JSON object per line from
its standard input and answers each with one line `RESULT {...}`; anything else it prints is passed
over. It stays alive between questions, so that what it compiled stays compiled while ours and
theirs take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.reports.report import Report

PEERS = Path(__file__).parent / "peers"
ANSWER = "RESULT "
SAME = 1e-3  # largest difference of two float32 implementations of a network, relative
Timer = Callable[[str], float]  # what is done ("train", say) -> seconds


class Peer:
    """A running peer; use as a context manager.

    Args:
        python: its interpreter.
        script: file in `peers/`, or any path.
        option: the setting that named the interpreter, for the error.
        needs: what the interpreter must have.

    Raises:
        ConfigError: from `ask`, when the peer ends without an answer; with its last line.
    """

    def __init__(self, python: str, script: str | Path, *, option: str, needs: str) -> None:
        self._python, self._option, self._needs = python, option, needs
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (a pipe could fill)
        self._process = subprocess.Popen(
            [python, str(PEERS / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True,
        )  # fmt: skip

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        # Killed, not asked: a peer in the middle of something would not listen.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask and wait for the answer."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None and pipe_out is not None
        try:
            pipe_in.write(json.dumps(question) + "\n")
            pipe_in.flush()
        except BrokenPipeError:
            raise self._gone() from None
        for line in pipe_out:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise self._gone()

    def _gone(self) -> ConfigError:
        self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["no output"])[-1]
        return ConfigError(self._option, self._python, f"{self._needs} to run there ({last})")


def check_interpreter(setting: str, python: str, needs: str) -> None:
    """The interpreter exists, where one is given.

    Raises:
        ConfigError: it does not.
    """
    if python and not Path(python).exists():
        raise ConfigError(setting, python, f"an interpreter that has {needs}")


def check_parameters(who: str, found: int, ours: int, what: str = "parameters") -> None:
    """A peer's network is as large as ours.

    Raises:
        DataError: it is not.
    """
    if found != ours:
        raise DataError(who, what, found, f"{ours}, as ours")


def check_outputs(who: str, said: np.ndarray, ours: np.ndarray) -> float:
    """Largest difference between a peer's network and ours on our weights, relative to ours.

    Raises:
        DataError: they are not the same network.
    """
    apart = float(np.abs(said - ours).max() / np.abs(ours).max())
    if not apart < SAME:
        raise DataError(who, "network on our weights", apart, f"below {SAME} from ours")
    return apart


def torch_timers(
    peer: Peer, question: Mapping[str, Any], kinds: Iterable[str], report: Report, *,
    compiling: str | None,
) -> dict[str, Timer]:  # fmt: skip
    """Ways to time a torch peer, each warmed up: eager, on one thread, and compiled.

    Args:
        peer: has been started.
        question: what is asked of it besides `kind`, `compiled` and `threads`.
        kinds: of work that will be timed.
        report: gets a note about `torch.compile`.
        compiling: what is compiled, for the note; None leaves that out.
    """

    def timer(compiled: bool, threads: int) -> Timer:
        asked = {**question, "compiled": compiled, "threads": threads}
        return lambda kind: peer.ask({"kind": kind, **asked})["seconds"]

    cores = os.cpu_count() or 1
    timers = {"torch": timer(False, cores)}
    if cores > 1:  # where somebody else works too, threads that wait for each other lose
        timers["torch, 1 thread"] = timer(False, 1)
    if compiling is not None:
        said = peer.ask({"kind": "compile"})
        if said["works"]:
            timers["torch compiled"] = timer(True, cores)
            report.note(f"torch.compile {compiling} took {said['seconds']:.0f} s.")
        else:
            report.note(f"torch.compile does not work here: {said['why']}")
    for each in timers.values():
        for kind in kinds:
            each(kind)
    return timers
