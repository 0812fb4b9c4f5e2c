"""Other people's programs, timed in interpreters of their own: their dependencies pin old ones.

A peer is a script in `peers/` that imports nothing of ours. It reads one JSON object per line from
its standard input and answers each with one line `RESULT {...}`; anything else it prints is passed
over. It stays alive between questions, so that what it compiled stays compiled while ours and
theirs take turns.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxrl_rollouts.errors import ConfigError

PEERS = Path(__file__).parent / "peers"
ANSWER = "RESULT "


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
