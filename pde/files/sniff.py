"""Which layout a file has, by what is in it: names and endings of files say little."""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.foreign import check_file
from jaxrl_rollouts.hdf5 import open_hdf5

from ..fieldset import FieldSet
from .apebench import MAGIC, is_described, read_apebench
from .arrays import read_arrays
from .pdearena import SPLITS, find_group, read_pdearena
from .pdearena_flows import find_flow_group, read_pdearena_flows
from .pdebench import pdebench_kind, read_pdebench
from .pdegym import pdegym_key, read_pdegym
from .stored import listed
from .well import is_well, read_well

KNOWN = (
    f"PDEArena (a group {', '.join(SPLITS)} with an array pde_..., or u, vx and vy), The Well "
    "(groups dimensions and t0_fields), PDEBench (tensor, density, velocity and t, or groups "
    "0000, ...), PDEgym (one array velocity, solution or data) or APEBench (an .npy array and a "
    ".json file beside it), or an .npy or .npz file of plain arrays"
)


def read_fields(path: str | Path) -> FieldSet:
    """Look into a file of any known layout; `FieldSet.layout` says which it is.

    Raises:
        DataError: no known layout, or one that does not hold what it should.
    """
    path = Path(path)
    check_file(path, "a file of fields")
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise DataError(path, "file", one_line(error), "a readable file") from None
    plain = start.startswith(MAGIC) and not is_described(path)
    if plain or path.suffix == ".npz" or zipfile.is_zipfile(path):
        return read_arrays(path)
    if start.startswith(MAGIC):
        return read_apebench(path)
    if not h5py.is_hdf5(path):
        raise DataError(path, "layout", f"a file that begins with {start!r}", KNOWN)
    with open_hdf5(path) as file:
        arena, well, bench = find_group(file), is_well(file), pdebench_kind(file)
        gym, flow = pdegym_key(file), find_flow_group(file)
        found = listed(file)
        for split in SPLITS:
            if split in file and hasattr(file[split], "keys"):
                found += f"; in {split}: {listed(file[split])}"  # type: ignore[arg-type]
    if arena:
        return read_pdearena(path)
    if flow:
        return read_pdearena_flows(path)
    if well:
        return read_well(path)
    if gym:
        return read_pdegym(path)
    if bench:
        return read_pdebench(path)
    raise DataError(path, "layout", found, KNOWN)
