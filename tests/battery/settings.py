"""Files with settings: what is ambiguous, endless, damaged or of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import attacks
from .attacks import Areas, Attack, some
from .hostile import CORRECT, WRONG
from .tally import Tally

REFUSED: Any = object()


def bomb() -> str:
    lines = ["a0: &a [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    return "\n".join(lines).replace("a0: &a ", "a0: &a0 ")


# Text of a file, and the setting `seed` that it makes; REFUSED where it must make none.
YAML: dict[str, Any] = {
    "seed: 7": 7, "seed: 010": 10, "seed: 0o17": 15, "seed: 0x1f": 31, "seed: +3": 3,
    "'seed': 7": 7, "{seed: 7}": 7, "--- \nseed: 7\n...": 7, "\ufeffseed: 7": 7,
    "seed: 7 # text": 7, "? seed\n: 7": 7, "%YAML 1.2\n---\nseed: 7": 7,
    "seed: 1:30": REFUSED, "seed: 1_0": REFUSED, "seed: yes": REFUSED, "seed: 1.5": REFUSED,
    "seed: 7\nseed: 8": REFUSED, "{seed: 7, seed: 7}": REFUSED, "seed: .nan": REFUSED,
    "seed: -1": REFUSED, "seed: 99999999999": REFUSED, f"seed: {'9' * 5000}": REFUSED,
    "seed: &a 7\nother: *a": REFUSED, "seed: &a [*a]": REFUSED, bomb(): REFUSED,
    "seed: !!python/name:os.system": REFUSED, "seed: !!python/object/apply:os.abort []": REFUSED,
    "seed: !!int x": REFUSED, "seed: !!binary x": REFUSED, "seed: !!timestamp x": REFUSED,
    "<<: {seed: 7}": REFUSED, "[" * 10**5: REFUSED, "{a: " * 5000: REFUSED,
    "\n".join(" " * i + "a:" for i in range(2000)): REFUSED, "seed": REFUSED, "- seed": REFUSED,
    "seed: [": REFUSED, "seed: \x07": REFUSED, "seed: 7\n--- \nseed: 8": REFUSED,
    "sed: 7": REFUSED, "{[1]: 2}": REFUSED, "a" + ".a" * 20_000 + ": 1": REFUSED, "": None,
}  # fmt: skip
JSON: dict[str, Any] = {
    '{"seed": 7}': 7, ' {"seed":7}\n': 7, '{"seed": 7, "seed": 8}': REFUSED,
    '{"seed": NaN}': REFUSED, '{"seed": 1e400}': REFUSED, '{"seed": 07}': REFUSED,
    '{"a":' * 10**5: REFUSED, "[" * 10**5 + "]" * 10**5: REFUSED, "7": REFUSED, "": REFUSED,
    '{"experiment": "offline", "config": 3}': REFUSED,
    '{"experiment": "offline", "preset": ["x"], "config": {"a": {"b": []}}}': REFUSED,
    '{"experiment": "other", "config": {}}': REFUSED,
    f'{{"seed": {"9" * 5000}}}': REFUSED,
}  # fmt: skip


def read(suffix: str, text: str, expected: Any, folder: Path) -> str:
    """The setting that `run offline` makes of a file, beside the one that it should be."""
    from jaxrl_rollouts.cli.options import check_options, parse_run
    from jaxrl_rollouts.configs import settings
    from jaxrl_rollouts.plugins import load_experiment

    path = folder / f"a.{suffix}"
    path.write_bytes(text.encode())
    experiment = load_experiment("offline")
    start = settings(experiment.preset("smoke"))
    (name,) = [name for name in start if name.rpartition(".")[2] == "seed" and "." not in name] or [
        min((n for n in start if n.endswith(".seed")), key=len)
    ]
    path.write_bytes(text.replace("seed", name).encode())
    _, config, _ = parse_run(experiment, ["--preset", "smoke", "--config", str(path)])
    check_options(config)
    found = settings(config)[name]
    if expected is REFUSED:
        return f"{WRONG}: taken as {found!r}"
    expected = start[name] if expected is None else expected
    return CORRECT if found == expected else f"{WRONG}: {found!r} and not {expected!r}"


def texts(share: float, seed: int) -> list[Attack]:
    named = [("yaml", *item) for item in YAML.items()] + [("json", *item) for item in JSON.items()]
    return some(
        [Attack(f"{suffix} {text[:40]!r}", partial(read, suffix, text, expected))
         for suffix, text, expected in named],
        share,
    )  # fmt: skip


AREAS: Areas = {"texts": texts}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("settings", AREAS, share, seed)
