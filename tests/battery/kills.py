"""Runs that are killed or told to stop at random moments, again and again, and resumed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from . import runner, runs
from .tally import Tally

KILLS = 13  # of each run
TOLD = 4  # signals that ask, of each run
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(share: float, seed: int) -> Iterator[Tally]:
    """Kills first, then signals; what is counted are blows."""
    for name in runs.RUNS:
        draw = random.Random(f"{seed} {name}")
        for what, count in (("kill -9", KILLS), ("INT, TERM, HUP", TOLD)):
            tally = Tally(f"{name}: {what}")
            while tally.tried < max(1, round(share * count)):
                left = max(1, round(share * count)) - tally.tried
                disturbed(name, what == "kill -9", left, draw, tally)
            yield tally


def disturbed(name: str, kill: bool, most: int, draw: random.Random, tally: Tally) -> None:
    """One run, struck up to `most` times, to its end."""
    whole = runs.whole(name)
    out = runs.work() / f"struck-{draw.getrandbits(40)}"
    started, blows = runner.start(runs.command(name, out)), []
    while len(blows) < most:
        folder = _begun(started, out)
        time.sleep(draw.uniform(0, whole.seconds))
        if not started.process.is_alive():
            break
        number = signal.SIGKILL if kill else ASKING[draw.randrange(3)]
        assert started.process.pid
        os.kill(started.process.pid, number)
        done = started.end()
        blows.append(number.name)
        if done.code not in (-number, 0, 130) or "Traceback (most recent" in done.err:
            tally.tracebacks.append(f"{number.name}: code {done.code}: {done.last}")
            return
        if not folder or not (folder / "run.json").is_file():  # nothing to keep yet, or no more
            tally.same += len(blows)
            return
        started = runner.start(["resume", folder, "--no-progress"])
    done = started.end()
    folders = list(out.iterdir())
    if done.crashed:
        tally.tracebacks += [f"{blows}: {done.last}"]
    elif done.code != 0 or len(folders) != 1:
        tally.lost += [f"{blows}: {done.last}"]
    elif difference := runner.difference(whole.result, runner.result(folders[0])):
        tally.wrong += [f"{blows}: {difference}"]
    else:
        tally.same += len(blows)


def _begun(started: runner.Started, out: Path) -> Path | None:
    """The run's folder, as soon as there is one."""
    while started.process.is_alive():
        if out.is_dir() and (found := list(out.iterdir())):
            return found[0]
        time.sleep(0.01)
    return next(out.iterdir(), None) if out.is_dir() else None
