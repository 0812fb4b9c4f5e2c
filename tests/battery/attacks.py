"""Attacks one by one, each in a process and a folder of its own.

    python -m tests.battery.attacks folders "links in a run's folder" 1 0    # a line for each

A family is a module with `AREAS`: attacks by their kind, made from a share and a seed.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .hostile import CORRECT, NAMED, TRACEBACK, WRONG, in_a_process
from .runner import IMPORTED
from .tally import Tally

LOST, EXECUTED, HANG = "lost", "executed", "hang"
PATIENCE = 240  # seconds after which an attack hangs
ROOT = Path(__file__).parents[2]
BASE = "BATTERY_BASE"  # variable that names the finished run


class Attack(NamedTuple):
    """One attack.

    Attributes:
        name: what repeats it, in a few words.
        work: called in a process of its own, with an empty folder; gives the outcome. A `UserError`
            that it raises is a named error, a file `ran` in the folder means that code was run.
    """

    name: str
    work: Callable[[Path], str]


Areas = Mapping[str, Callable[[float, int], Iterable[Attack]]]


class Ended(NamedTuple):
    """A command that has ended; code None is a hang."""

    code: int | None
    out: str
    err: str

    @property
    def outcome(self) -> str:
        """Of a command that may work or be refused."""
        lines = self.err.strip().splitlines() or [""]
        if self.code is None:
            return f"{HANG}: {lines[-1]}"
        if "Traceback (most recent" in self.err or self.code not in (0, 2, 3, 130):
            return f"{TRACEBACK}: code {self.code}: {lines[-1]}"[:300]
        if not printed(self.out + self.err):
            return f"{WRONG}: control characters were printed"
        if self.code == 0:
            return CORRECT
        line = lines[-1].startswith(("error: ", "stopped: "))
        return NAMED if line else f"{TRACEBACK}: no line says why: {lines[-1]}"[:300]


def printed(text: str) -> bool:
    """Whether a terminal obeys nothing in a text."""
    from jaxrl_rollouts.errors import printable

    plain = text.replace("\r", "")
    return plain == printable(plain)


def command(*words: object, cwd: Path, patience: float = PATIENCE / 2, **options: Any) -> Ended:
    """`jaxrl-rollouts WORDS`, in a process that inherits nothing but variables."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{cwd}"} | options.pop("env", {})
    line = [sys.executable, *options.pop("flags", ()), "-m", "jaxrl_rollouts", *map(str, words)]
    try:
        done = subprocess.run(
            line, cwd=cwd, env=environment, capture_output=True, timeout=patience, **options
        )
    except subprocess.TimeoutExpired as error:
        return Ended(None, "", (error.stderr or b"").decode(errors="replace"))
    texts = [(text or b"").decode(errors="replace") for text in (done.stdout, done.stderr)]
    return Ended(done.returncode, *texts)


def base() -> Path:
    """A finished run of a cloned policy, made once for all attacks."""
    return Path(os.environ[BASE])


@functools.cache
def made_base() -> str:
    """Make it, in the process that starts all areas."""
    out = Path(tempfile.mkdtemp(prefix="battery-base-"))
    done = command("run", "offline", *CLONE, "--out", "runs", cwd=out, patience=1200)
    assert done.code == 0, done.err
    (folder,) = (out / "runs").iterdir()
    return str(folder)


CLONE = ("--preset", "smoke", "--method", "bc", "--no-progress")


def some(attacks: Sequence[Attack], share: float) -> list[Attack]:
    """A share of the attacks, evenly spread, at least one."""
    count = max(1, math.ceil(share * len(attacks)))
    return [attacks[i * len(attacks) // count] for i in range(count)]


def run(family: str, areas: Areas, share: float, seed: int) -> Iterator[Tally]:
    """A tally for every area; each in an interpreter that has started no backend of jax."""
    environment = os.environ | {BASE: made_base()}
    for name in areas:
        words = [sys.executable, "-m", "tests.battery.attacks", family, name, str(share), str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment)
        tally = Tally(f"{family}: {name}")
        for line in done.stdout.splitlines():
            add(tally, *json.loads(line))
        if done.returncode or not tally.tried:
            tally.lost.append(f"attacks without an outcome: {done.stderr[-500:]}")
        yield tally


def add(tally: Tally, case: str, outcome: str) -> None:
    """Count an outcome."""
    if outcome == NAMED:
        tally.named += 1
    elif outcome == CORRECT:
        tally.same += 1
    elif outcome.startswith(EXECUTED) or "code was run" in outcome:
        tally.executed.append(f"{case}: {outcome}")
    elif outcome.startswith(HANG) or outcome.endswith("ended by signal 14"):
        tally.hangs.append(f"{case}: {outcome}")
    elif outcome.startswith(LOST):
        tally.lost.append(f"{case}: {outcome}")
    else:
        bad = tally.wrong if outcome.startswith(WRONG) else tally.tracebacks
        bad.append(f"{case}: {outcome}")


def judged(work: Callable[[Path], str], folder: Path) -> str:
    """The outcome of an attack; an error of ours is named where it is one clean line."""
    from jaxrl_rollouts.errors import UserError

    try:
        return work(folder)
    except UserError as error:
        text = str(error)
        return NAMED if printed(text) and "\n" not in text else f"{TRACEBACK}: {text[:200]!r}"


def main(family: str, area: str, share: str, seed: str) -> None:
    module = importlib.import_module(f"tests.battery.{family}")
    for name in IMPORTED:  # once for all, as no backend of jax is started by it
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as place:
        for number, attack in enumerate(module.AREAS[area](float(share), int(seed))):
            folder = Path(place) / str(number)
            folder.mkdir()
            outcome = in_a_process(lambda: judged(attack.work, folder), folder, PATIENCE)  # noqa: B023
            print(json.dumps((f"{area}: {attack.name}", outcome)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main(*sys.argv[1:])
