"""Files of settings: what is ambiguous, expands without end, or has another value than it seems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from . import attacks, changes
from .attacks import CORRECT, TRACEBACK, WRONG, Areas, Attack, some
from .tally import Tally

CHANGED = 60
ALIASES = "a0: &a0 [1, 1]\n"
ALIASES += "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
# Text of a file: the seed and the steps that it says, or None where it has to be refused.
CASES: dict[str, tuple[int, int] | None] = {
    "seed: 7\nmethod: {mopo: {steps: 40}}\n": (7, 40),
    "seed: 010\nmethod.mopo.steps: 40\n": (10, 40),
    "seed: 0o10\nmethod.mopo.steps: 0x28\n": (8, 40),
    "seed: 1_000\nmethod.mopo.steps: 40\n": None,
    "seed: 1:30\n": None,
    "seed: 1e1\n": None,
    "seed: 3.0\n": None,
    "seed: .nan\n": None,
    "seed: yes\n": None,
    "seed: '7'\n": None,
    "seed: -1\n": None,
    "seed: 99999999999999999999999999\n": None,
    "seed: 1\nseed: 2\n": None,
    "method: {mopo: {steps: 40}}\nmethod: {mopo: {penalty: 1.0}}\n": None,
    "method.mopo.steps: 40\nmethod: {mopo: {steps: 50}}\n": None,
    "method.mopo.steps: 40\nmethod.mopo-steps: 50\n": None,
    "a: &x 3\nseed: *x\n": None,
    ALIASES: None,
    "x: &x {y: *x}\n": None,
    "seed: !!python/object/apply:os.system ['touch ran']\n": None,
    "seed: !!int '3'\n": None,
    "<<: {seed: 3}\n": None,
    "- seed\n": None,
    "seed\n": None,
    "seed: {a: 1}\n": None,
    "sed: 3\n": None,
    "method: nothing\n": None,
    "method: {mopo: {penalty: .inf}}\n": None,
    "method: {mopo: {penalty: -1}}\n": None,
    "method: {mopo: {}, iql: {}}\n": None,
    "? [a, b]\n: 3\n": None,
    "\tseed: 3\n": None,
    "seed: 3\n---\nseed: 4\n": None,
    "\x00": None,
    "seed: \x1b[31m\n": None,
    "[" * 10_000: None,
    "a: " * 60 + "1": None,
    ".".join("a" * 200) + ": 1\n": None,
    "": (0, 0),
}
JSON: dict[str, tuple[int, int] | None] = {
    '{"seed": 7, "method": {"mopo": {"steps": 40}}}': (7, 40),
    '{"seed": 1, "seed": 2}': None,
    '{"seed": NaN}': None,
    '{"seed": 1e400}': None,
    '{"seed": 010}': None,
    "[" * 100_000: None,
    '{"experiment": "pde_train", "config": {}}': None,
    '{"experiment": "offline", "config": 3}': None,
    '{"experiment": "offline", "config": {"seed": 7, "method": {"mopo": {"steps": 40}}}}': (7, 40),
}


def taken(name: str, text: str, want: tuple[int, int] | None, folder: Path) -> str:
    """The configuration that a file gives, against what it says."""
    from jaxrl_rollouts.cli.options import check_options, parse_run
    from jaxrl_rollouts.plugins import load_experiment

    (folder / name).write_text(text, encoding="utf-8")
    words = ["--preset", "smoke", "--config", str(folder / name)]
    _, config, _ = parse_run(load_experiment("offline"), words)
    check_options(config)
    if want is None:
        return f"{WRONG}: taken"
    steps = want[1] or parse_run(load_experiment("offline"), words[:2])[1].method.steps
    found = config.seed, config.method.steps
    return CORRECT if found == (want[0], steps) else f"{WRONG}: {found}"


def changed(number: tuple[int, int], folder: Path) -> str:
    """A record of a run with something else somewhere: read, and to be read again as it was."""
    from jaxrl_rollouts.cli.options import check_options, parse_run
    from jaxrl_rollouts.config_json import from_json, to_json
    from jaxrl_rollouts.plugins import load_experiment

    experiment = load_experiment("offline")
    file = folder / "run.json"
    record = {"experiment": "offline", "preset": "smoke"}
    record["config"] = to_json(experiment.preset("smoke"))
    file.write_text(json.dumps(record))
    changes.texts(file, np.random.default_rng(number))
    _, config, _ = parse_run(experiment, ["--config", str(file)])
    check_options(config)
    again = from_json(experiment.config_type, json.loads(json.dumps(to_json(config))), "again")
    return CORRECT if again == config else f"{TRACEBACK}: it does not come back"


def texts(share: float, seed: int) -> list[Attack]:
    made = [
        Attack(repr(text[:60]), partial(taken, name, text, want))
        for name, cases in (("s.yaml", CASES), ("s.json", JSON))
        for text, want in cases.items()
    ]
    return some(made, share)


def records(share: float, seed: int) -> list[Attack]:
    made = [Attack(f"{n} of seed {seed}", partial(changed, (seed, n))) for n in range(CHANGED)]
    return some(made, share)


AREAS: Areas = {"texts": texts, "records": records}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("settings", AREAS, share, seed, based=False)
