"""Folders from a stranger: code that they name, changed records, names of files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from . import attacks, changes
from .attacks import (
    CLONE,
    CORRECT,
    EXECUTED,
    LOST,
    WRONG,
    Areas,
    Attack,
    base,
    command,
    outcome,
    some,
)
from .tally import Tally

MODULE = "open({ran!r}, 'w')\ndef make():\n    return 'Pendulum-v1'\n"
RECORDS = {"run.json": 40, "policy.json": 60, "plan.json": 40, "emulator.json": 63}


def copied(folder: Path) -> Path:
    """A copy of the finished run, without its report, so that there is something to do."""
    run = folder / base().name
    shutil.copytree(base(), run)
    (run / "report.json").unlink()
    return run


def planned(words: tuple[str, ...], folder: Path) -> str:
    """A task of a plan whose arguments name code."""
    from jaxrl_rollouts.sweep.plan import Plan, Task, write_plan

    stranger(folder)
    (folder / "sweep").mkdir()
    task = Task("one", {}, ("offline", *CLONE, *words), str(folder))
    write_plan(folder / "sweep", Plan("offline", ("",), (task,)))
    return executed(folder, "sweep", "task", "sweep", 1)


def configured(file: str, folder: Path) -> str:
    """A run whose settings are a stranger's."""
    stranger(folder)
    run = folder / "theirs"
    shutil.copytree(base(), run)
    record = json.loads((run / "run.json").read_text())
    record.pop("digest")
    record["config"]["environment"] = "evil:make"
    (run / "run.json").write_text(json.dumps(record))
    if file == "resume":
        return executed(folder, "resume", "theirs")
    if file == "policy.json":
        for path in run.rglob("policy.json"):
            facts = json.loads(path.read_text())
            facts.pop("digest")
            path.write_text(json.dumps(facts | {"environment": "evil:make"}))
        return executed(folder, "evaluate", "theirs", "--episodes", 1)
    return executed(folder, "run", "offline", *CLONE, "--config", file, "--out", "mine")


def stranger(folder: Path) -> None:
    (folder / "evil.py").write_text(MODULE.format(ran=str(folder / "ran")))
    (folder / "evil.yaml").write_text("environment: evil:make\n")


def executed(folder: Path, *words: object) -> str:
    ended = command(*words, cwd=folder)
    if (folder / "ran").exists():
        return f"{EXECUTED}: {' '.join(map(str, words))}"
    return outcome(ended) if ended.code else f"{WRONG}: a name of code was taken"


def code(share: float, seed: int) -> list[Attack]:
    words = [
        ("--environment", "evil:make"),
        ("--environment=evil:make",),
        ("--config", "evil.yaml"),
    ]
    words += [("--config=evil.yaml",), ("--trust", "evil:make", "--config", "evil.yaml")]
    made = [Attack(f"plan {' '.join(one)}", partial(planned, one)) for one in words]
    files = ("evil.yaml", "theirs", "theirs/run.json", "resume", "policy.json")
    made += [Attack(f"settings {file}", partial(configured, file)) for file in files]
    return some(made, share)


def changed(name: str, number: tuple[int, int], folder: Path) -> str:
    """A record with something else somewhere in it, and no digest."""
    file, read = READERS[name](folder)
    changes.texts(file, np.random.default_rng(number))
    read()
    return CORRECT


def _run(folder: Path) -> tuple[Path, Callable[[], object]]:
    from jaxrl_rollouts.plugins import load_experiment
    from jaxrl_rollouts.record.folder import RunFolder

    run = copied(folder)

    def read() -> None:
        opened = RunFolder.open(run)
        opened.config_as(load_experiment(opened.experiment).config_type)
        assert opened.code is not None and opened.resume and opened.data is not None

    return run / "run.json", read


def _policy(folder: Path) -> tuple[Path, Callable[[], object]]:
    from jaxrl_rollouts.offline.policy import load_policy

    place = next(
        path.parent for path in base().rglob("policy.json") if path.parent.name == "policy"
    )
    shutil.copytree(place, folder / "policy")

    def read() -> None:
        policy = load_policy(folder / "policy")
        assert np.isfinite(policy(np.zeros(policy.observation_size))).all()

    return folder / "policy" / "policy.json", read


def _plan(folder: Path) -> tuple[Path, Callable[[], object]]:
    from jaxrl_rollouts.sweep.collect import collect
    from jaxrl_rollouts.sweep.plan import Plan, Task, read_plan, write_plan

    tasks = [Task(f"t-{i}", {"seed": i}, ("offline", "--x", "1"), "/") for i in range(2)]
    write_plan(folder, Plan("offline", ("a",), tuple(tasks)))

    def read() -> None:
        plan = read_plan(folder)
        assert all(task.command for task in plan.tasks)
        collect(folder, plan)

    return folder / "plan.json", read


def _emulator(folder: Path) -> tuple[Path, Callable[[], object]]:
    import dataclasses

    import jax

    from jaxrl_rollouts.pde.objectives import Mse
    from jaxrl_rollouts.pde.operators import Resnet
    from jaxrl_rollouts.pde.saved import load_emulator
    from jaxrl_rollouts.pde.trained import TrainedEmulator

    network = Resnet(width=4, blocks=1, dilations=(1,), embedding=4)
    empty = TrainedEmulator(network, Mse(), 0.5, None, 1, 8)
    params = jax.vmap(empty.emulator.init)(jax.random.split(jax.random.key(0), 2))
    dataclasses.replace(empty, params=params).save(folder / "emulator")

    def read() -> None:
        load_emulator(folder / "emulator").roll(np.zeros((1, 8)), 2)

    return folder / "emulator" / "emulator.json", read


READERS = {
    "run.json": _run, "policy.json": _policy, "plan.json": _plan, "emulator.json": _emulator,
}  # fmt: skip


def records(share: float, seed: int) -> list[Attack]:
    return [
        Attack(f"{name} {number} of seed {seed}", partial(changed, name, (seed, number)))
        for name, count in RECORDS.items()
        for number in range(max(1, round(share * count)))
    ]


NAMES = (
    "\x1b]0;pwn\x07.hdf5", "\x9b2J.hdf5", "a\nb.hdf5", "a\rb.hdf5", "![t](http:evil).hdf5",
    "[t](javascript:alert).hdf5", "<script>x<.hdf5", "a&b.hdf5", "a'b\"c.hdf5",
    "$(touch ran).hdf5", "`touch ran`.hdf5", "; touch ran.hdf5", "a|b.hdf5", "a:b.hdf5",
    "\udcff.hdf5", "\u202egnp.hdf5", "x" * 200 + ".hdf5", "-x.hdf5",
)  # fmt: skip


def named(name: str, folder: Path) -> str:
    """A dataset whose file has a name that a shell, a terminal or a browser would obey."""
    from .files import FAMILIES

    file = FAMILIES["D4RL"].make(folder)
    os.rename(file, folder / name)
    words = ["run", "offline", *CLONE, "--environment", "none", "--out", "runs"]
    ended = command(*words, f"--dataset=./{name}", cwd=folder)
    pages = [p.read_text(errors="replace") for p in folder.glob("runs/*/report.html")]
    sources = [s for page in pages for s in re.findall(r"<img[^>]*src=\"([^\"]{0,11})", page)]
    if any(source != "data:image/" for source in sources) or any("<script" in p for p in pages):
        return f"{WRONG}: the page fetches or runs something"
    return outcome(ended)


def names(share: float, seed: int) -> list[Attack]:
    return some([Attack(repr(name)[:40], partial(named, name)) for name in NAMES], share)


# What a resumed run writes in place, or replaces; `stage` is the folder of a training.
LINKED = (
    ".lock", "sessions.jsonl", "metrics.jsonl", "report.json", "report.html", "report.md",
    "run.json", "stage/history.jsonl", "stage", "stage/policy", "stage/policy/policy.json",
)  # fmt: skip


def linked(name: str, folder: Path) -> str:
    """A link in a run's folder to a file, or a folder, that is none of the run's."""
    run, precious = copied(folder), folder / "precious"
    (stage,) = {path.parent for path in run.glob("*/history.jsonl")}
    place = run / name.replace("stage", stage.name)
    kept = place.read_bytes() if place.is_file() else b"kept\n" * 3
    if place.is_dir():
        shutil.copytree(place, precious)
        shutil.rmtree(place)
    else:
        precious.write_bytes(kept)
        place.unlink(missing_ok=True)
    before = {p: p.read_bytes() for p in (precious, *precious.rglob("*")) if p.is_file()}
    place.symlink_to(precious)
    ended = command("resume", run, cwd=folder)
    if {p: p.read_bytes() for p in (precious, *precious.rglob("*")) if p.is_file()} != before:
        return f"{LOST}: a file outside of the run was written to"
    return outcome(ended)


def links(share: float, seed: int) -> list[Attack]:
    return some([Attack(name, partial(linked, name)) for name in LINKED], share)


AREAS: Areas = {
    "links in a run's folder": links,
    "code that a folder names": code,
    "records that were changed": records,
    "names of data files": names,
}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("folders", AREAS, share, seed)
