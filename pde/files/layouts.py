"""Detection of a file's layout by its content, not by its name.

Another package's layout is an object with the same two functions, announced in the entry-point
group `jaxrl_rollouts.layouts`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from jaxrl_rollouts.errors import ConfigError, DataError, one_line
from jaxrl_rollouts.foreign import check_file
from jaxrl_rollouts.hdf5 import open_hdf5

from ..constant import named
from ..fieldset import FieldSet, take_frames
from ..registries import LAYOUTS
from .apebench import MAGIC, is_described, read_apebench
from .arrays import read_arrays
from .joined import files_of, joined
from .pdearena import SPLITS, find_group, read_pdearena
from .pdearena_flows import find_flow_group, read_pdearena_flows
from .pdebench import pdebench_kind, read_pdebench
from .pdegym import pdegym_key, read_pdegym
from .problems import PROBLEMS, read_problem
from .stored import listed
from .well import is_well, read_well

KNOWN = (
    f"PDEArena (a group {', '.join(SPLITS)} with an array pde_..., or u, vx and vy), The Well "
    "(groups dimensions and t0_fields), PDEBench (tensor, density, velocity and t, or groups "
    "0000, ...), PDEgym (one array velocity, solution or data) or APEBench (an .npy array and a "
    ".json file beside it), or an .npy or .npz file of plain arrays"
)


class Layout(NamedTuple):
    """How trajectories lie in a file.

    Attributes:
        matches: `(path, file) -> bool`, whether a file is of this layout, sound or not; `file` is
            it opened where it is HDF5, else None.
        read: reads the file; `DataError` where something is missing or misshapen.
    """

    matches: Callable[[Path, h5py.File | None], bool]
    read: Callable[[Path], FieldSet]


def _numpy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _plain(path: Path, file: h5py.File | None) -> bool:
    """A `.npy` array with no description beside it, or an `.npz` archive."""
    if file is not None:
        return False
    plain = _numpy(path) and not is_described(path)
    return plain or path.suffix == ".npz" or zipfile.is_zipfile(path)


def _hdf5(known: Callable[[h5py.File], Any], read: Callable[[Path], FieldSet]) -> Layout:
    return Layout(lambda path, file: file is not None and bool(known(file)), read)


ARRAYS = Layout(_plain, read_arrays)
APEBENCH = Layout(lambda path, file: file is None and _numpy(path), read_apebench)
PDEARENA = _hdf5(find_group, read_pdearena)
PDEARENA_FLOWS = _hdf5(find_flow_group, read_pdearena_flows)
WELL = _hdf5(is_well, read_well)
PDEGYM = _hdf5(pdegym_key, read_pdegym)
PDEBENCH = _hdf5(pdebench_kind, read_pdebench)


def read(
    paths: str | Path | Sequence[str | Path],
    axes: int | None = None,
    *,
    every: int = 1,
    channels: Sequence[str] = (),
) -> FieldSet:
    """Read a file of any known layout; `FieldSet.layout` is its name.

        fields = read("wave.hdf5")
        fields = read("data/train")              # all files of the folder
        fields = read("datasets/NAME")           # of data/train, valid and test the first
        fields = read(["nu_1.hdf5", "nu_2.hdf5"])  # or "nu_*.hdf5", or "nu_1.hdf5,nu_2.hdf5"
        fields = read("ks22")                    # a set of the package (`problems.PROBLEMS`)

    Args:
        paths: a file; or a folder, a pattern or a list, whose trajectories stand one after the
            other, with the parameters of all.
        axes: number of spatial axes, for plain arrays with an ambiguous shape (`from_arrays`).
        every: keep every so many frames, the first included; `dt` is as many times longer.
        channels: names of those to keep, in this order; none keeps all.

    Raises:
        ConfigError: no such channel, or `every` below 1.
        DataError: no known layout, one that does not hold what it should, or files that differ.
    """
    if every < 1:
        raise ConfigError("every", every, "at least 1")
    several = [paths] if isinstance(paths, str | Path) else paths
    sets = [one for path in several for one in _sets(path, axes)]
    if not sets:
        raise ConfigError("paths", paths, "a file, or several")
    found = joined(sets)
    found = take_frames(found, slice(None, None, every)) if every > 1 else found
    return named(found, channels) if channels else found


def _sets(path: str | Path, axes: int | None) -> list[FieldSet]:
    if path in PROBLEMS and not Path(path).exists():
        return [read_problem(str(path))]
    return [_read(file, axes) for file in files_of(path)]


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
