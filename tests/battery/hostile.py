"""Hostile files: good ones damaged in 200 ways, per reader family, each read in its own process.

    python -m tests.battery hostile
    python -m tests.battery.attacks hostile "The Well" 1 0    # one family: a line for each file

A file that is taken has to hold the numbers that h5py or numpy find in it; one that leads elsewhere
has to give what was in the good one, or be refused. Whatever is refused is one line without control
characters. A file that runs code makes the file `ran`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from . import attacks
from .attacks import CORRECT, WRONG, Areas, Attack, in_a_process, printed
from .changes import BYTES, INSIDE, texts
from .files import FAMILIES, Family, quietly
from .tally import Tally

FILES = 200
PATIENCE = 20  # seconds for a file
MEMORY = 12 * 2**30


def damage(family: Family, folder: Path, rng: np.random.Generator) -> str:
    """Damage a file of a good folder; says how."""
    changes = [(change, family.file) for change in BYTES + INSIDE[Path(family.file).suffix]]
    if family.text:
        changes += [(texts, family.text)] * (3 if family.text != family.file else 12)
    change, file = changes[rng.integers(len(changes))]
    change(folder / file, rng)
    return change.__name__


def read(name: str, number: tuple[int, int], folder: Path) -> str:
    """What the library makes of a damaged file, as an outcome."""
    family = FAMILIES[name]
    place = family.make(folder)
    good = family.truth(place)
    change = damage(family, folder, np.random.default_rng(number))
    values, text = quietly(family.read, place)
    if not printed(text):
        return f"{WRONG}: {change}: control characters were printed"
    try:
        truth = good if change in ("elsewhere", "endless") else family.truth(place)
    except Exception:
        truth = good
    for key, found in values.items():
        known = np.asarray(truth[key]).astype(np.float32)
        if not np.isfinite(found).all():
            return f"{WRONG}: {change}: {key} is not finite"
        if not np.isin(found.astype(np.float32), known).all() or not found.size:
            return f"{WRONG}: {change}: {key} is not what is in the file"
        if key == "fields" and found.size != known.size:
            return f"{WRONG}: {change}: {key} is not all that is in the file"
    return CORRECT


def taken(name: str, folder: Path) -> str:
    """Whether a family's good file is read as what it is."""
    family = FAMILIES[name]
    place = family.make(folder)
    (values, _), good = quietly(family.read, place), family.truth(place)
    same = all(np.isin(values[key], good[key].astype(np.float32)).all() for key in values)
    return CORRECT if same else WRONG


def files(name: str, share: float, seed: int) -> list[Attack]:
    """Attacks on a family, whose good file is taken for what it is."""
    with tempfile.TemporaryDirectory() as folder:
        # In a child: reading may start a backend of jax, which does not survive a fork.
        found = in_a_process(partial(taken, name, Path(folder)), Path(folder))
    assert found == CORRECT, f"{name}: {found}"
    return [
        Attack(f"{number} of seed {seed}", partial(read, name, (seed, number)))
        for number in range(max(1, round(FILES * share)))
    ]


AREAS: Areas = {name: partial(files, name) for name in FAMILIES}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("hostile", AREAS, share, seed, based=False)
