"""Several files of fields as one set: a list, a folder or a pattern."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError

from ..fieldset import FieldSet
from .pdearena import SPLITS
from .stored import positions

ENDINGS = (".h5", ".hdf5", ".nc", ".npy", ".npz")


def files_of(name: str | Path) -> list[Path]:
    """The files of a name, a folder, a pattern (`runs/*.hdf5`, `**/*.h5`) or several of those
    with commas between, in order. Of a folder that is split (`part_of`), those to train on."""
    path = Path(name)
    # os.path: a Path raises where the names of many files are too long for one.
    if "," in str(name) and not os.path.exists(path):
        return [file for one in str(name).split(",") for file in files_of(one)]
    if os.path.isdir(path):
        found = part_of(path, "train") or _inside(path)
        if not found:
            expected = f"a file that ends in {', '.join(ENDINGS)}"
            raise DataError(path, "folder", "no file of fields", expected)
        return found
    if glob.has_magic(str(name)) and not os.path.exists(path):
        found = sorted(map(Path, glob.glob(str(name), recursive=True)))
        if not found:
            raise DataError(path, "pattern", "no file", "files of fields that match it")
        return found
    return [path]


def _inside(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in ENDINGS)


def part_of(name: str | Path, split: str) -> list[Path]:
    """The files of a split: `train`, `valid` or `test`; none of a name that is not split.

    Split are folders with `data/train`, `valid` and `test` (The Well), with these alone, or of
    files that are all named by them, as PDEArena's `NavierStokes2D_train_1.h5`.
    """
    for folder in (Path(name) / "data", Path(name)):
        if os.path.isdir(folder / "train") and os.path.isdir(folder / split):
            return files_of(folder / split)
    found = _inside(Path(name)) if os.path.isdir(name) else []
    parts = [{*re.split("[_.-]", file.stem)} & {*SPLITS} for file in found]
    if {"train"} not in parts or not all(len(part) == 1 for part in parts):
        return []
    return [file for file, part in zip(found, parts, strict=True) if split in part]


def in_short(name: str) -> str:
    """A name as of `files_of`, in messages: of several with commas between the first."""
    several = name.split(",")
    more = f" and {len(several) - 1} more" if len(several) > 1 else ""
    return name if os.path.exists(name) else several[0] + more


def joined(sets: Sequence[FieldSet]) -> FieldSet:
    """Trajectories of several sets, one set after the other; nothing is read before it is needed.

    Parameters are those of all. Where sets differ in a parameter it varies between trajectories.

    Args:
        sets: sets of the same frames, channels, points and boundaries.
    """
    first, *others = sets
    if not others:
        return first
    for one in others:
        _check(first, one)
    names = list(dict.fromkeys(name for one in sets for name in one.parameters))
    for one in sets:
        if missing := [name for name in names if name not in one.parameters]:
            has = ", ".join(one.parameters) or "none"
            raise DataError(one.path, "parameters", has, f"{', '.join(missing)}, as other files")
    begins = np.cumsum([0, *(one.shape[0] for one in sets)])

    def read(rows: Any, frames: Any) -> np.ndarray:
        picked = positions(first.path, "trajectories", rows, int(begins[-1]))
        which = np.searchsorted(begins, picked, "right") - 1
        values: Any = None
        for number in np.unique(which):
            at = np.flatnonzero(which == number)
            part = sets[number].read(picked[at] - begins[number], frames)
            if values is None:
                values = np.empty((len(picked), *part.shape[1:]), part.dtype)
            values[at] = part
        return first.read(slice(0, 0), frames) if values is None else values

    def together(parts: Iterable[np.ndarray]) -> np.ndarray:
        return np.concatenate(list(parts))

    return first._replace(
        shape=(int(begins[-1]), *first.shape[1:]),
        read=read,
        dt=together(one.dt for one in sets),
        extent=together(one.extent for one in sets),
        parameters={name: together(one.parameters[name] for one in sets) for name in names},
        parts=tuple(one.shape[0] for one in sets),
    )


def _check(first: FieldSet, one: FieldSet) -> None:
    """`DataError` where a set is of other fields than the first."""
    for key in ("shape", "channels", "boundaries", "equation", "constant"):
        theirs, ours = getattr(one, key), getattr(first, key)
        if key == "shape":
            theirs, ours, key = theirs[1:], ours[1:], "frames, channels, points"
        if theirs != ours:
            listed = [list(x) if isinstance(x, tuple) else x for x in (theirs, ours)]
            raise DataError(one.path, key, listed[0], f"those of {first.path.name}, {listed[1]}")
