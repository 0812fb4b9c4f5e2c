"""The layouts that are known: how a file of each is recognised, and its reader.

Another package's layout is a class of the same two functions, announced in the entry-point group
`jaxrl_rollouts.layouts`; `matches` is given the file opened where it is HDF5, else None.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Protocol

import h5py

from ..fieldset import FieldSet
from .apebench import MAGIC, is_described, read_apebench
from .arrays import read_arrays
from .pdearena import find_group, read_pdearena
from .pdearena_flows import find_flow_group, read_pdearena_flows
from .pdebench import pdebench_kind, read_pdebench
from .pdegym import pdegym_key, read_pdegym
from .well import is_well, read_well


class Layout(Protocol):
    """How trajectories lie in a file."""

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        """Whether a file is of this layout, sound or not; `file` is it opened, where it is HDF5."""
        ...

    @staticmethod
    def read(path: Path) -> FieldSet:
        """Look into the file; `DataError` where something is missing or misshapen."""
        ...


def _numpy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class Arrays:
    """A plain `.npy` array or an `.npz` archive."""

    read = staticmethod(read_arrays)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        if file is not None:
            return False
        plain = _numpy(path) and not is_described(path)
        return plain or path.suffix == ".npz" or zipfile.is_zipfile(path)


class ApeBench:
    """An `.npy` array with a `.json` file beside it."""

    read = staticmethod(read_apebench)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is None and _numpy(path)


class PdeArena:
    """PDEArena's on one axis."""

    read = staticmethod(read_pdearena)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is not None and bool(find_group(file))


class PdeArenaFlows:
    """PDEArena's NavierStokes2D."""

    read = staticmethod(read_pdearena_flows)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is not None and bool(find_flow_group(file))


class Well:
    """The Well's."""

    read = staticmethod(read_well)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is not None and is_well(file)


class PdeGym:
    """PDEgym's."""

    read = staticmethod(read_pdegym)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is not None and bool(pdegym_key(file))


class PdeBench:
    """PDEBench's."""

    read = staticmethod(read_pdebench)

    @staticmethod
    def matches(path: Path, file: h5py.File | None) -> bool:
        return file is not None and bool(pdebench_kind(file))
