"""Several files of fields as one set: a list, a folder or a pattern."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError

from ..fieldset import FieldSet
from .stored import positions

ENDINGS = (".h5", ".hdf5", ".nc", ".npy", ".npz")


def files_of(name: str | Path) -> list[Path]:
    """The files of a name, a folder, a pattern (`runs/*.hdf5`, `**/*.h5`) or several of those
    with commas between, in order. Of a folder that is split (`part_of`), those to train on."""
    path = Path(name)
    if "," in str(name) and not path.exists():
        return [file for one in str(name).split(",") for file in files_of(one)]
    if path.is_dir():
        path = Path(part_of(path, "train") or path)
        found = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
        if not found:
            expected = f"a file that ends in {', '.join(ENDINGS)}"
            raise DataError(path, "folder", "no file of fields", expected)
        return found
    if glob.has_magic(str(name)) and not path.exists():
        found = sorted(map(Path, glob.glob(str(name), recursive=True)))
        if not found:
            raise DataError(path, "pattern", "no file", "files of fields that match it")
        return found
    return [path]


def part_of(name: str | Path, split: str) -> str:
    """A split's folder in one of The Well, with `data/train`, `valid` and `test`, or these alone;
    "" where there is none."""
    for folder in (Path(name) / "data", Path(name)):
        if (folder / "train").is_dir() and (folder / split).is_dir():
            return str(folder / split)
    return ""


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
