"""What a run meets from outside: a second process, a full disk, limits, data that changed."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py

from . import runner, runs
from .tally import Tally

TWICE = 6
ROOM = (0.05, 0.2, 0.4, 0.7)  # shares of what the run takes
LIMITS = {
    "files of at most 1000 bytes": {resource.RLIMIT_FSIZE: 1000},
    "files of at most 4000 bytes": {resource.RLIMIT_FSIZE: 4000},
    "files of at most 20000 bytes": {resource.RLIMIT_FSIZE: 20_000},
    "16 open files": {resource.RLIMIT_NOFILE: 16},
    "24 open files": {resource.RLIMIT_NOFILE: 24},
    "40 open files": {resource.RLIMIT_NOFILE: 40},
}
NAME = "RAVL"
SUITE = """question = "?"
job = "offline"
seeds = 2
last = 1
datasets = ["pendulum-mixed"]

[options]
preset = "smoke"
steps = 40
evaluations = 1
episodes = 2

[methods.bc]
title = "BC"
"""
MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift && cd "$1" && shift && "$@"'


def run(share: float, seed: int) -> Iterator[Tally]:
    """Two resumes at once, little room, limits, other data."""
    draw = random.Random(seed)
    tally = Tally("two resumes at once")
    for _ in range(max(1, round(share * TWICE))):
        _two(draw, tally)
    yield tally
    tally = Tally("a full disk")
    for room in ROOM[: max(1, round(share * len(ROOM)))]:
        _full(room, tally)
        _full_bench(room, tally)
    yield tally
    tally = Tally("limits of the system")
    for what in list(LIMITS)[: max(1, round(share * len(LIMITS)))]:
        _limited(what, tally)
    yield tally
    yield _other_data()


def _copy(name: str) -> Path:
    """A finished run without its agent's checkpoints and report, so that there is work to do."""
    whole = runs.whole(NAME)
    folder = runs.work() / name / whole.folder.name
    shutil.copytree(whole.folder, folder)
    for file in folder.glob("report.*"):
        file.unlink()
    shutil.rmtree(next(folder.glob("*-ravl")))
    return folder


def _judge(tally: Tally, what: str, folder: Path, named: bool) -> None:
    """Resume, and compare with the undisturbed run."""
    done = runner.run(["resume", folder, "--no-progress"])
    if done.crashed:
        tally.tracebacks.append(f"{what}: {done.last}")
    elif done.code != 0:
        tally.lost.append(f"{what}: {done.last}")
    elif difference := runner.difference(runs.whole(NAME).result, runner.result(folder)):
        tally.wrong.append(f"{what}: {difference}")
    elif named:
        tally.named += 1
    else:
        tally.same += 1
    shutil.rmtree(folder.parent)


def _two(draw: random.Random, tally: Tally) -> None:
    folder = _copy(f"two-{draw.getrandbits(40)}")
    first = runner.start(["resume", folder, "--no-progress"])
    time.sleep(draw.uniform(0, 2))
    second = runner.start(["resume", folder, "--no-progress"])
    ends = [first.end(), second.end()]
    refused = [done for done in ends if done.code == 2 and "in use by process" in done.err]
    if any(done.crashed for done in ends):
        tally.tracebacks.append(" and ".join(done.last for done in ends))
    elif len(refused) != 1 or {done.code for done in ends} != {0, 2}:
        tally.wrong.append("both went on: " + " and ".join(done.last for done in ends))
    else:
        return _judge(tally, "two resumes", folder, named=True)
    shutil.rmtree(folder.parent)


def _full(room: float, tally: Tally) -> None:
    """A run on a small disk of its own, whose folder is then taken to a large one."""
    whole, out = runs.whole(NAME), runs.work() / f"full-{room}"
    size = int(room * sum(p.stat().st_size for p in whole.folder.rglob("*") if p.is_file()))
    done = _on_a_disk(size, runs.command(NAME, Path("runs")), out)
    what = f"a disk of {size} bytes"
    if _named(done, what, tally):
        if not (folders := list(out.iterdir())):
            tally.named += 1
        else:
            _judge(tally, what, folders[0], named=done.returncode == 2)


def _full_bench(room: float, tally: Tally) -> None:
    """A benchmark whose folder lies on a small disk, gone on with on a large one."""
    place = runs.work() / f"bench-{room}"
    place.mkdir()
    suite = place / "small.toml"
    suite.write_text(SUITE)
    words = ["bench", "run", suite, "--out"]
    done = runner.run([*words, place / "calm", "--table", place / "calm.csv"])
    assert done.code == 0, done.err
    files = [path for path in (place / "calm").rglob("*") if path.is_file()]
    size = int(room * sum(path.stat().st_size for path in files))
    words = [*words, "runs", "--table", place / "full.csv"]
    full = _on_a_disk(size, words, place / "runs")
    what = f"bench on a disk of {size} bytes"
    if not _named(full, what, tally, "did not finish"):
        return
    again = runner.run([*words[:4], place / "runs", *words[5:]])
    tables = [(place / f"{name}.csv").read_text().splitlines() for name in ("calm", "full")]
    # All columns but the seconds.
    rows = [[line.split(",")[:8] for line in table] for table in tables]
    if again.crashed or full.returncode == 0:
        tally.tracebacks.append(f"{what}: {full.returncode}, then {again.last}")
    elif again.code != 0:
        tally.lost.append(f"{what}: {again.last}")
    elif rows[0] != rows[1]:
        tally.wrong.append(f"{what}: another table")
    else:
        tally.named += 1
    shutil.rmtree(place)


def _on_a_disk(size: int, words: list[Any], out: Path) -> subprocess.CompletedProcess[str]:
    """A command in a small file system of its own, whose folder `runs` is then copied to `out`."""
    disk = runs.work() / "disk"
    for path in (disk, out):
        path.mkdir(exist_ok=True)
    code = (
        "import os, shutil, sys\n"
        "from jaxrl_rollouts.cli.main import main\n"
        "code = 0\n"
        "try: main(sys.argv[2:])\n"
        "except SystemExit as error: code = error.code\n"
        "finally: shutil.copytree('runs', sys.argv[1], dirs_exist_ok=True)\n"
        "sys.exit(code)\n"
    )
    shell = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(max(size, 65536)), str(disk)]
    return subprocess.run(
        [*shell, sys.executable, "-c", code, str(out), *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAXRL_ROLLOUTS_CACHE": "off"},
    )


def _named(
    done: subprocess.CompletedProcess[str], what: str, tally: Tally, other: str = ""
) -> bool:
    """Whether a command on a full disk worked or named the cause; else it is counted."""
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode not in (0, 2) or "Traceback (most recent" in done.stderr:
        tally.tracebacks.append(f"{what}: {last}")
    elif done.returncode == 2 and not ("No space left" in last or (other and other in last)):
        tally.wrong.append(f"{what}: the first cause is not named: {last}")
    else:
        return True
    return False


def _limited(what: str, tally: Tally) -> None:
    folder = _copy(f"limited-{what.replace(' ', '-')}")
    done = runner.run(["resume", folder, "--no-progress"], LIMITS[what])
    if done.crashed:
        tally.tracebacks.append(f"{what}: {done.last}")
        shutil.rmtree(folder.parent)
    else:
        _judge(tally, what, folder, named=done.code != 0)


def _other_data() -> Tally:
    """Rewards of the data are negated between a run and its resume."""
    tally, file = Tally("other data than the run began with"), runs.work() / "plane.hdf5"
    done = runner.run(["data", "collect", "--out", file, "--env", "plane", "--steps", 2000])
    assert done.code == 0, done.err
    out = runs.work() / "data"
    words = ["run", "offline", "--preset", "smoke", "--dataset", file, "--method", "bc"]
    done = runner.run([*words, "--no-progress", "--out", out])
    assert done.code == 0, done.err
    with h5py.File(file, "r+") as data:
        data["rewards"][...] = -data["rewards"][...]
    (folder,) = out.iterdir()
    done = runner.run(["resume", folder, "--no-progress"])
    if done.crashed:
        tally.tracebacks.append(done.last)
    elif done.code == 2 and "sha256" in done.err:
        tally.named += 1
    else:
        tally.wrong.append("resumed on other data")
    return tally
