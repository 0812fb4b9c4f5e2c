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
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .runner import IMPORTED, Ended
from .tally import Tally

NAMED, CORRECT, WRONG, TRACEBACK = "named error", "correct", "silently wrong", "traceback"
LOST, EXECUTED, HANG = "lost", "executed", "hang"
PATIENCE = 240  # seconds after which an attack hangs; a family may say otherwise
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


def printed(text: str) -> bool:
    """Whether a terminal obeys nothing in a text."""
    from jaxrl_rollouts.errors import printable

    plain = text.replace("\r", "")
    return plain == printable(plain)


def outcome(ended: Ended) -> str:
    """Of a command that may work or be refused."""
    if ended.code is None:
        return f"{HANG}: {ended.last}"
    if ended.crashed:
        return f"{TRACEBACK}: code {ended.code}: {ended.last}"
    if not printed(ended.out + ended.err):
        return f"{WRONG}: control characters were printed"
    if ended.code == 0:
        return CORRECT
    line = ended.last.startswith(("error: ", "stopped: "))
    return NAMED if line else f"{TRACEBACK}: no line says why: {ended.last}"


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


def run(family: str, areas: Areas, share: float, seed: int, based: bool = True) -> Iterator[Tally]:
    """A tally for every area; each in an interpreter that has started no backend of jax.

    `based`: attacks are on the finished run, `base`.
    """
    environment = os.environ | ({BASE: made_base()} if based else {})
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


def in_a_process(
    work: Callable[[], str], folder: Path, seconds: int = PATIENCE, memory: int | None = None
) -> str:
    """The outcome of work in a child: crashes, hangs and what it ran are told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(folder)
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        signal.alarm(seconds)
        try:
            outcome = work()
        except BaseException as error:
            outcome = f"{TRACEBACK}: {type(error).__name__} {error}"[:500]
        os.write(writing, outcome.encode(errors="replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        outcome = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if not outcome:
        outcome = f"{TRACEBACK}: ended by signal {os.WTERMSIG(status)}"
    return f"{WRONG}: code was run" if (folder / "ran").exists() else outcome


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
            limits = (getattr(module, name, None) for name in ("PATIENCE", "MEMORY"))
            work = functools.partial(judged, attack.work, folder)
            seconds, memory = limits
            found = in_a_process(work, folder, seconds or PATIENCE, memory)
            print(json.dumps((f"{area}: {attack.name}", found)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main(*sys.argv[1:])
