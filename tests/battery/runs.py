"""The runs that are attacked: their smoke presets, and what they come to when left alone."""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from . import runner

RUNS = {
    "RAVL": ("run", "offline", "--method", "ravl"),
    "NEUBAY": ("run", "offline", "--method", "neubay"),
    "PGD": ("run", "offline", "--method", "pgd"),
    "PDE-Refiner": ("pde", "train", "FIELDS", "--objective", "refiner"),
}
FIELDS = ("--trajectories", 16, "--points", 32, "--frames", 24, "--burn-in", 40, "--no-progress")
PLAYED = ("--episodes", 2, "--training-seed", 0)


class Whole(NamedTuple):
    """A run that nobody disturbed.

    Attributes:
        folder: of the run.
        result: of `runner.result`.
        seconds: that it took.
        played: what `evaluate` says of its last and its best policy; empty where it has none.
        shown: what `report` says.
    """

    folder: Path
    result: dict[str, Any]
    seconds: float
    played: dict[str, str]
    shown: str


def command(name: str, out: Path) -> list[object]:
    """The command line of a run, with the folder it writes to."""
    words = [str(fields()) if word == "FIELDS" else word for word in RUNS[name]]
    return [*words, "--preset", "smoke", "--no-progress", "--out", out]


@functools.cache
def work() -> Path:
    """Where everything of this session lies."""
    return Path(tempfile.mkdtemp(prefix="battery-runs-"))


@functools.cache
def fields() -> Path:
    """A file of trajectories to train emulators on."""
    path = work() / "fields.h5"
    done = runner.run(["pde", "generate", "--out", path, *FIELDS])
    assert done.code == 0, done.err
    return path


@functools.cache
def whole(name: str) -> Whole:
    """The undisturbed run; the second of two, which compiles nothing."""
    for attempt in ("first", "second"):
        out, begin = work() / f"{name}-{attempt}", time.monotonic()
        done = runner.run(command(name, out))
        assert done.code == 0, done.err
    seconds = time.monotonic() - begin
    (folder,) = out.iterdir()
    (other,) = (work() / f"{name}-first").iterdir()
    result = runner.result(folder)
    assert not runner.difference(result, runner.result(other)), "runs do not repeat"
    policies = sorted(path.parent.name for path in folder.rglob("policy.json"))
    played = {policy: play(folder, policy).out for policy in policies}
    return Whole(folder, result, seconds, played, shown(folder))


def play(folder: Path, policy: str) -> runner.Ended:
    """`evaluate` of a run's `policy` or `policy-best`."""
    best = ["--best"] if policy == "policy-best" else []
    return runner.run(["evaluate", folder, *PLAYED, *best])


def shown(folder: Path) -> str:
    """What `report` prints, without the folder's own name."""
    return runner.run(["report", folder]).out.replace(str(folder), "RUN")
