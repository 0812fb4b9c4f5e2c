"""Machines as they are: no home, poor terminals, impatient users, little memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import attacks
from .attacks import (
    CLONE,
    CORRECT,
    LOST,
    NAMED,
    ROOT,
    TRACEBACK,
    WRONG,
    Areas,
    Attack,
    base,
    command,
    outcome,
    some,
)
from .tally import Tally

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "ASCII": {"env": {"PYTHONIOENCODING": "ascii"}},
    "C locale": {"env": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}},
    "-OO": {"flags": ["-OO"]},
    "-W error": {"flags": ["-W", "error::RuntimeWarning"]},
    "narrow": {"env": {"COLUMNS": "5"}},
    "dumb terminal": {"env": {"TERM": "dumb", "NO_COLOR": "1"}},
    "no TMPDIR": {"env": {"TMPDIR": "/nowhere"}},
    "no HOME": {"env": {"HOME": "/nowhere"}},
    "HOME is a file": {"env": {"HOME": "/etc/passwd"}},
    "empty HOME": {"env": {"HOME": ""}},
    "cache is a file": {"env": {"JAXRL_ROLLOUTS_CACHE": "/etc/passwd"}},
    "cache off": {"env": {"JAXRL_ROLLOUTS_CACHE": "off"}},
    "no stdin": {"stdin": subprocess.DEVNULL},
    "umask 077": {"umask": 0o077},
    "umask 0": {"umask": 0},
    "a second time zone": {"env": {"TZ": "Pacific/Kiritimati"}},
}


def in_environment(options: dict[str, Any], folder: Path) -> str:
    """A run from its beginning, whose report is that of any other."""
    ended = command("run", "offline", *CLONE, "--out", "runs", cwd=folder, **options)
    if ended.code != 0:
        return outcome(ended)
    (run,) = (folder / "runs").iterdir()
    if "umask" in options:
        modes = {path.stat().st_mode & 0o777 & options["umask"] for path in run.rglob("*")}
        if modes != {0}:
            return f"{WRONG}: files for others than the umask says"
    return CORRECT if numbers(run) == numbers(base()) else f"{WRONG}: another result"


def numbers(run: Path) -> Any:
    return json.loads((run / "report.json").read_text())["numbers"]


def output(what: str, folder: Path) -> str:
    """A report that is printed where nothing can be."""
    line = [sys.executable, "-m", "jaxrl_rollouts", "report", str(base())]
    shell = {
        "closed stdout": ">&-", "closed stderr": "2>&-", "closed stdin": "<&-",
        "/dev/full": ">/dev/full", "head": "| head -1",
    }[what]  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", f'"$@" {shell}', "bash", *line],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    if "Traceback" in done.stderr or done.returncode not in (0, 2):
        return f"{TRACEBACK}: {done.returncode} {done.stderr[-200:]}"
    return NAMED if done.returncode else CORRECT


SIMULATOR = """
import time, gymnasium
class Slow(gymnasium.Wrapper):
    def step(self, action):
        time.sleep(0.05)
        return super().step(action)
def make():
    open("begun", "w").close()
    return Slow(gymnasium.make("Pendulum-v1"))
"""


def impatient(pause: float, folder: Path) -> str:
    """Ctrl-C twice, where most of the time is a simulator's; then the run is finished."""
    (folder / "slow.py").write_text(SIMULATOR)
    words = ["run", "offline", *CLONE, "--environment", "slow:make", "--out", "runs"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    line = [sys.executable, "-m", "jaxrl_rollouts", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=folder, env=environment, **quiet) as process:
        while not list(folder.glob("runs/*/*/history.jsonl")) and process.poll() is None:
            time.sleep(0.05)
        time.sleep(pause)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        err = process.communicate(timeout=120)[1].decode(errors="replace")
    # A shell shows 130 as well where the second one comes after the last line.
    late = process.returncode == -signal.SIGINT and "\nstopped: " in err
    if "Traceback (most recent" in err or not (late or process.returncode in (0, 130)):
        return f"{TRACEBACK}: code {process.returncode}: {err[-200:]}"
    (run,) = (folder / "runs").iterdir()
    ended = command(
        "resume", run, "--no-progress", "--trust", "slow:make", cwd=folder, patience=200
    )
    return CORRECT if ended.code == 0 else f"{LOST}: {ended.err[-200:]}"


def twice(pause: float, folder: Path) -> str:
    """The same task of a sweep, started twice."""
    from jaxrl_rollouts.sweep.plan import Plan, Task, write_plan

    (folder / "sweep").mkdir()
    task = Task("one", {}, ("offline", *CLONE), str(folder))
    write_plan(folder / "sweep", Plan("offline", ("",), (task,)))
    line = [sys.executable, "-m", "jaxrl_rollouts", "sweep", "task", "sweep", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = []
    for _ in range(2):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(line, cwd=folder, env=environment, **quiet))
        time.sleep(pause)
    errors = [process.communicate()[1] for process in started]
    runs = list((folder / "sweep" / "one").glob("*/run.json"))
    if any("Traceback" in text for text in errors):
        return f"{TRACEBACK}: {errors}"[:300]
    if len(runs) != 1 or 0 not in [process.returncode for process in started]:
        return f"{WRONG}: {len(runs)} runs, {[p.returncode for p in started]}"
    return NAMED if any("in use by" in text for text in errors) else CORRECT


def too_large(what: str, folder: Path) -> str:
    """More than there is memory for, asked or declared."""
    from jaxrl_rollouts.errors import UserError

    from .folders import READERS

    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    if what == "roll":
        import numpy as np

        from jaxrl_rollouts.pde.saved import load_emulator

        READERS["emulator.json"](folder)
        load_emulator(folder / "emulator").roll(np.zeros((8, 1, 8)), 2_000_000_000)
        return f"{WRONG}: rolled"
    file, read = READERS[what.split()[0]](folder)
    data = json.loads(file.read_text())
    data.pop("digest")
    if what.startswith("policy.json"):
        data["agent"]["hidden_dims"] = [10**6, 10**6]
    else:
        data["network"]["width"] = 10**6
    if "seeds" in what:
        data["seeds"] = 10**9
    file.write_text(json.dumps(data))
    try:
        read()
    except UserError:
        return NAMED
    return f"{WRONG}: read"


def environments(share: float, seed: int) -> list[Attack]:
    made = [Attack(name, partial(in_environment, given)) for name, given in ENVIRONMENTS.items()]
    names = ("closed stdout", "closed stderr", "closed stdin", "/dev/full", "head")
    return some(made + [Attack(name, partial(output, name)) for name in names], share)


DAMAGE: dict[str, Any] = {
    "cut in half": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "emptied": lambda p: p.write_bytes(b""),
    "one byte": lambda p: p.write_bytes(b"x"),
    "other text": lambda p: p.write_text("no program " * 20),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "the head flipped": lambda p: p.write_bytes(b"\xff" + p.read_bytes()[1:]),
    "a folder": lambda p: (p.unlink(), p.mkdir()),
    "removed": lambda p: p.unlink(),
    "not to be read": lambda p: p.chmod(0),
}


def cached(what: str, share: int, folder: Path) -> str:
    """Compiled programs that are damaged, one of `share`: the same result, then good ones."""
    cache = folder / "cache"
    words = ("run", "offline", *CLONE, "--out")
    for number in range(3):
        ended = command(
            *words, f"runs-{number}", cwd=folder, env={"JAXRL_ROLLOUTS_CACHE": str(cache)}
        )
        if ended.code != 0:
            return outcome(ended)
        (run,) = (folder / f"runs-{number}").iterdir()
        if numbers(run) != numbers(base()):
            return f"{WRONG}: another result in run {number}"
        if number == 2 and "damaged" in ended.err and what != "a folder":
            return f"{LOST}: the programs are still damaged"
        for file in sorted(cache.rglob("*-cache"))[::share] if number == 0 else ():
            DAMAGE[what](file)
    return CORRECT


def caches(share: float, seed: int) -> list[Attack]:
    every = [(what, each) for what in DAMAGE for each in (1, 5)]
    return some([Attack(f"{w}, one of {n}", partial(cached, w, n)) for w, n in every], share)


def users(share: float, seed: int) -> list[Attack]:
    made = [Attack(f"Ctrl-C twice after {t} s", partial(impatient, t)) for t in (0.5, 2.0, 5.0)]
    return some(
        made + [Attack(f"a task twice, {t} s", partial(twice, t)) for t in (0, 3, 9)], share
    )


def sizes(share: float, seed: int) -> list[Attack]:
    every = ("roll", "policy.json", "policy.json seeds", "emulator.json", "emulator.json seeds")
    return some([Attack(what, partial(too_large, what)) for what in every], share)


AREAS: Areas = {"environments": environments, "caches": caches, "users": users, "sizes": sizes}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("machines", AREAS, share, seed)
