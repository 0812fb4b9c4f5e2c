"""Which layout a file has, by what is in it: names and endings of files say little."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.foreign import check_file
from jaxrl_rollouts.hdf5 import open_hdf5

from ..fieldset import FieldSet
from ..registries import LAYOUTS
from .arrays import read_arrays
from .joined import files_of, joined
from .pdearena import SPLITS
from .stored import listed

KNOWN = (
    f"PDEArena (a group {', '.join(SPLITS)} with an array pde_..., or u, vx and vy), The Well "
    "(groups dimensions and t0_fields), PDEBench (tensor, density, velocity and t, or groups "
    "0000, ...), PDEgym (one array velocity, solution or data) or APEBench (an .npy array and a "
    ".json file beside it), or an .npy or .npz file of plain arrays"
)


def read(paths: str | Path | Sequence[str | Path], axes: int | None = None) -> FieldSet:
    """Look into a file of any known layout; `FieldSet.layout` is its name.

        fields = read("wave.hdf5")
        fields = read("data/train")              # all files of the folder
        fields = read(["nu_1.hdf5", "nu_2.hdf5"])  # or "nu_*.hdf5"

    Args:
        paths: a file; or a folder, a pattern or a list, whose trajectories stand one after the
            other, with the parameters of all.
        axes: of space, of plain arrays whose shape does not say (`from_arrays`).

    Raises:
        DataError: no known layout, one that does not hold what it should, or files that differ.
    """
    return joined([_read(path, axes) for path in files_of(paths)])


def _read(path: Path, axes: int | None) -> FieldSet:
    check_file(path, "a file of fields")
    try:
        with path.open("rb") as opened:
            start = opened.read(16)
    except OSError as error:
        raise DataError(path, "file", one_line(error), "a readable file") from None
    if not h5py.is_hdf5(path):
        layout = _matching(path, None)
        if layout is None:
            raise DataError(path, "layout", f"a file that begins with {start!r}", KNOWN)
        return layout.read(path) if axes is None else read_arrays(path, axes)
    with open_hdf5(path) as file:
        layout = _matching(path, file)
        found = listed(file)
        for split in SPLITS:
            if split in file and hasattr(file[split], "keys"):
                found += f"; in {split}: {listed(file[split])}"  # type: ignore[arg-type]
    if layout is None:
        raise DataError(path, "layout", found, KNOWN)
    return layout.read(path)


def _matching(path: Path, file: h5py.File | None) -> Any:
    """The first layout that a file has, ours before those of other packages; None without one."""
    layouts = (LAYOUTS[name] for name in LAYOUTS)
    return next((layout for layout in layouts if layout.matches(path, file)), None)
