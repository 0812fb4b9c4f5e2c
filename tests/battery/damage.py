"""Files of finished runs with a flipped bit or a lost end; then what reads them, and a resume.

Every file but `run.json` can be made again, so that a resume has to end with the result of the
undisturbed run; `run.json` says what is run, and without it there is a named error.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import runner, runs
from .tally import Tally

FLIPS, CUTS = 60, 30  # of each run
ATTACKED = ("RAVL", "PDE-Refiner")
SIDE_BY_SIDE = 2
# What kinds of files are hit equally often, by a part of their path.
KINDS = ("run.json", "report.json", "policy/", "policy-best/", "worlds/", "emulator/", ".npz")
KINDS += ("history.jsonl", "metrics.jsonl", "sessions.jsonl", "/d/", "digests.json", "")


def run(share: float, seed: int) -> Iterator[Tally]:
    """Flips and then cuts, of a run without and a run with world models and policies."""
    for name in ATTACKED:
        whole = runs.whole(name)
        for what, count in (("a flipped bit", FLIPS), ("a lost end", CUTS)):
            draw, tally = random.Random(f"{seed} {name} {what}"), Tally(f"{name}: {what}")
            asked = max(1, round(share * count))
            attacks = [(_pick(whole.folder, i, draw), draw.random()) for i in range(asked)]
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                jobs = [pool.submit(_attack, whole, what, *attack) for attack in attacks]
                for job in jobs:
                    kind, text = job.result()
                    if isinstance(count_of := getattr(tally, kind), int):
                        setattr(tally, kind, count_of + 1)
                    else:
                        count_of.append(text)
            yield tally


def _pick(folder: Path, number: int, draw: random.Random) -> Path:
    """A file, of one kind after the other; large ones of a kind more often."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.stat().st_size]
    names = {path: path.relative_to(folder).as_posix() for path in files}
    kinds = [k for k in KINDS if any(k in name for name in names.values())]
    kind = kinds[number % len(kinds)]
    chosen = [path for path, name in names.items() if kind in name]
    path = draw.choices(chosen, [p.stat().st_size for p in chosen])[0]
    return path.relative_to(folder)


def _attack(whole: runs.Whole, what: str, file: Path, where: float) -> tuple[str, str]:
    """What came of one attack, a field of `Tally`, and what repeats it."""
    folder = runs.work() / f"damaged-{abs(hash((file, where))):x}" / whole.folder.name
    shutil.copytree(whole.folder, folder)
    data = bytearray((folder / file).read_bytes())
    at = int(where * len(data))
    if what == "a lost end":
        data = data[:at]
    else:
        data[at] ^= 1 << int(where * 8e6) % 8
    (folder / file).write_bytes(data)
    kind, text = _read(whole, folder, file)
    shutil.rmtree(folder.parent)
    return kind, f"{file} at byte {at}: {text}"


def _read(whole: runs.Whole, folder: Path, file: Path) -> tuple[str, str]:
    named = False
    for policy in set(whole.played) & set(file.parts):
        done = runs.play(folder, policy)
        if done.crashed:
            return "tracebacks", f"evaluate: {done.last}"
        named = done.code != 0
        if not named and done.out != whole.played[policy]:
            return "wrong", "evaluate says something else"
    if file.name == "report.json":
        done = runner.run(["report", folder])
        if done.crashed:
            return "tracebacks", f"report: {done.last}"
        named = done.code != 0
        if not named and done.out.replace(str(folder), "RUN") != whole.shown:
            return "wrong", "report says something else"
    done = runner.run(["resume", folder, "--no-progress"])
    if done.crashed:
        return "tracebacks", f"resume: {done.last}"
    if done.code != 0:
        return ("named" if file.name == "run.json" else "lost"), done.last
    if difference := _difference(whole.result, folder):
        return "wrong", difference
    return ("named" if named else "same"), ""


def _difference(result: dict[str, Any], folder: Path) -> str:
    return runner.difference(result, runner.result(folder))
