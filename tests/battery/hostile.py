"""Hostile files: good ones damaged in 200 ways, per reader family, each read in its own process.

    python -m tests.battery hostile
    python -m tests.battery.hostile "The Well" 200 0      # one family: a line for each file

A file that is taken has to hold the numbers that h5py or numpy find in it; one that leads elsewhere
has to give what was in the good one, or be refused. Whatever is refused is one line without control
characters. A file that runs code makes the file `ran`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from .changes import BYTES, INSIDE, texts
from .files import FAMILIES, Family, quietly
from .tally import Tally

FILES, SECONDS, MEMORY = 200, 20, 12 * 2**30
NAMED, CORRECT, WRONG, TRACEBACK = "named error", "correct", "silently wrong", "traceback"


def damaged(family: Family, folder: Path, good: Path, rng: np.random.Generator) -> str:
    """Copy the good folder and damage a file in it; says how."""
    shutil.copytree(good, folder, dirs_exist_ok=True)
    changes = [(change, family.file) for change in BYTES + INSIDE[Path(family.file).suffix]]
    if family.text:
        changes += [(texts, family.text)] * (3 if family.text != family.file else 12)
    change, file = changes[rng.integers(len(changes))]
    change(folder / file, rng)
    return change.__name__


def judged(family: Family, place: Path, good: dict[str, np.ndarray], change: str) -> str:
    """What the library makes of a damaged file, as an outcome."""
    from jaxrl_rollouts.errors import UserError, printable

    try:
        values, printed = quietly(family.read, place)
    except UserError as error:
        message = str(error)
        clean = "\n" not in message and message == printable(message)
        return NAMED if clean else f"{TRACEBACK}: {message[:200]!r}"
    if printed != printable(printed).replace("\r", ""):
        return f"{WRONG}: control characters were printed"
    try:
        truth = good if change in ("elsewhere", "endless") else family.truth(place)
    except Exception:
        truth = good
    for name, found in values.items():
        known = np.asarray(truth[name]).astype(np.float32)
        if not np.isfinite(found).all():
            return f"{WRONG}: {name} is not finite"
        if not np.isin(found.astype(np.float32), known).all() or not found.size:
            return f"{WRONG}: {name} is not what is in the file"
        if name == "fields" and found.size != known.size:
            return f"{WRONG}: {name} is not all that is in the file"
    return CORRECT


def attack(folder: Path, name: str, count: int = FILES, seed: int = 0) -> list[tuple[str, str]]:
    """Outcomes of so many damaged files: (how and from which seed, outcome)."""
    family = FAMILIES[name]
    (folder / "good").mkdir(parents=True)
    place = family.make(folder / "good").relative_to(folder / "good")
    good = family.truth(folder / "good" / place)
    taken, _ = quietly(family.read, folder / "good" / place)
    assert all(np.isin(taken[key], good[key].astype(np.float32)).all() for key in taken), name
    outcomes = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        here = folder / str(number)
        change = damaged(family, here, folder / "good", rng)
        outcome = in_a_process(lambda: judged(family, here / place, good, change), here)  # noqa: B023
        outcomes.append((f"{name} {number} of seed {seed}: {change}", outcome))
        if outcome in (NAMED, CORRECT):
            shutil.rmtree(here)
    return outcomes


def in_a_process(work: Callable[[], str], folder: Path, seconds: int = SECONDS) -> str:
    """The outcome of work in a child: crashes, hangs and what it ran are told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
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


def run(share: float, seed: int) -> Iterator[Tally]:
    """A tally for every family; each in an interpreter that has started no backend of jax."""
    count = max(1, round(FILES * share))
    for name in FAMILIES:
        command = [sys.executable, "-m", "tests.battery.hostile", name, str(count), str(seed)]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
        tally = Tally(f"{name}: hostile files")
        for line in done.stdout.splitlines():
            case, outcome = json.loads(line)
            if outcome in (NAMED, CORRECT):
                tally.named += outcome == NAMED
                tally.same += outcome == CORRECT
            else:
                bad = tally.wrong if outcome.startswith(WRONG) else tally.tracebacks
                bad.append(f"{case}: {outcome}")
        if tally.tried != count:
            tally.lost.append(
                f"{count - tally.tried} files without an outcome: {done.stderr[-500:]}"
            )
        yield tally


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with tempfile.TemporaryDirectory() as place:
        for one in attack(Path(place), sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):
            print(json.dumps(one))
