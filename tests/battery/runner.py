"""The command line, again and again, each time in a process of its own.

Processes are forked from one that has imported everything and computed nothing, which saves each
of them its five seconds; what they compile they share.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

IMPORTED = (
    "jaxrl_rollouts.cli.main",
    "jaxrl_rollouts.offline.main_job",
    "jaxrl_rollouts.pde.train_command",
    "jaxrl_rollouts.offline.acting_commands",
    "jaxrl_rollouts.reports.text",
    "jaxrl_rollouts.reports.pictures",
)
PATIENCE = 300  # seconds after which a command hangs
Limits = Mapping[int, int]


class Ended(NamedTuple):
    """A command that has ended; a negative code is the signal that ended it, None a hang."""

    code: int | None
    out: str
    err: str

    @property
    def crashed(self) -> bool:
        """A traceback, a signal nobody sent, or no end."""
        return self.code not in (0, 2, 3, 130) or "Traceback (most recent" in self.err

    @property
    def last(self) -> str:
        """The last line of the errors."""
        return (self.err.strip().splitlines() or [""])[-1][-300:]


class Started(NamedTuple):
    """A command that may still be running."""

    process: BaseProcess
    folder: Path

    def end(self, patience: float = PATIENCE) -> Ended:
        """Wait for it; kill it when it takes too long."""
        self.process.join(patience)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        shutil.rmtree(self.folder, ignore_errors=True)
        return Ended(code, out, err)


def start(arguments: Sequence[object], limits: Limits | None = None) -> Started:
    """Begin `jaxrl-rollouts ARGUMENTS`.

    Args:
        arguments: of the command line.
        limits: of `resource.setrlimit`, from before the command is run.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["COLUMNS"] = "200"
    # Killed processes may leave torn programs there: not where others look for theirs.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), "battery-cache")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    folder = Path(tempfile.mkdtemp(prefix="battery-"))
    for name in ("out", "err"):
        (folder / name).touch()
    words = [str(word) for word in arguments]
    process = context.Process(target=_child, args=(words, folder, dict(limits or {})))
    process.start()
    return Started(process, folder)


def run(arguments: Sequence[object], limits: Limits | None = None) -> Ended:
    """`jaxrl-rollouts ARGUMENTS`, to its end."""
    return start(arguments, limits).end()


def _child(arguments: list[str], folder: Path, limits: dict[int, int]) -> None:
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
    code: Any = 1
    try:
        _save_always()
        for limit, value in limits.items():
            resource.setrlimit(limit, (value, value))
        from jaxrl_rollouts.cli.main import main

        main(arguments)
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)


def _save_always() -> None:
    """A checkpoint after every chunk, so that there are several to go back to."""
    from jaxrl_rollouts import loop
    from jaxrl_rollouts.offline import job, training

    for function in (loop.train_loop, training.train_learner):
        assert function.__kwdefaults__["save_every_seconds"] > 0
        function.__kwdefaults__["save_every_seconds"] = 0.0
    # Methods name a time of their own.
    train_learner: Any = job.train_learner
    job.train_learner = lambda *given, **more: train_learner(
        *given, **more | {"save_every_seconds": 0.0}
    )


def result(folder: Path) -> dict[str, Any]:
    """What a finished run says, without how long it took: report, histories and metrics."""
    report = json.loads((folder / "report.json").read_text())
    kept = {name: _timeless(report[name]) for name in ("numbers", "tables", "claims")}
    files = sorted(folder.rglob("history.jsonl"))
    files = [file for file in files if not file.parent.name.isdigit()]
    kept |= {str(f.relative_to(folder)): f.read_text() for f in files}
    # A stage that is made again stands behind those that were not: what counts is each stage's own.
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = sorted(({**json.loads(x), "time": 0} for x in lines), key=lambda row: row["stage"])
    return kept | {"metrics.jsonl": rows}


def _timeless(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _timeless(v) for k, v in data.items() if "second" not in k and k != "command"}
    return [_timeless(item) for item in data] if isinstance(data, list) else data


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Where two results differ, in a few words; empty where they do not."""
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return ", ".join(names)
