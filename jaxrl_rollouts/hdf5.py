"""HDF5 files from outside: opened, read and written with errors a user can act on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import DataError, one_line


def open_hdf5(path: Path) -> h5py.File:
    """Open for reading; `DataError` for a folder, a missing, foreign or broken file."""
    if not path.exists():
        raise DataError(path, "file", "nothing", "an HDF5 file")
    if path.is_dir():
        raise DataError(path, "file", "a folder", "an HDF5 file")
    if path.stat().st_size == 0:
        raise DataError(path, "file", "0 bytes", "an HDF5 file")
    try:
        return h5py.File(path, "r")
    except PermissionError:
        raise DataError(path, "file", "no permission to read", "a readable file") from None
    except OSError as error:
        expected, hint = "a whole HDF5 file", "copy or download it again"
        raise DataError(path, "file", one_line(error), expected, hint) from error


def read_array(path: Path, file: h5py.File, key: str) -> np.ndarray:
    """One array of the file; `DataError` where it is missing, a group or unreadable."""
    try:
        node = file[key]
    except (KeyError, OSError):
        found = f"only {', '.join(sorted(file)) or 'nothing'}"
        raise DataError(path, key, found, f"an array {key}") from None
    if not isinstance(node, h5py.Dataset):
        raise DataError(path, key, "a group", "an array")
    try:
        return np.asarray(node[()])
    except (OSError, TypeError, ValueError, MemoryError) as error:
        raise DataError(path, key, one_line(error), "a readable array") from error


def plain_attributes(file: h5py.File) -> dict[str, Any]:
    """File attributes as plain Python values."""
    plain = {}
    for key in file.attrs:
        try:
            value = file.attrs[key]
        except (OSError, TypeError):  # an attribute type h5py cannot read; not worth failing for
            continue
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        plain[key] = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return plain


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """A file that appears whole or not at all (a hidden neighbour, then a rename).

    Raises:
        DataError: the folder is missing or not writable, the disk is full, or something was
            given that HDF5 cannot hold.
    """
    if not path.parent.is_dir():
        raise DataError(path, "folder", "nothing", f"the folder {path.parent}")
    if path.is_dir():
        raise DataError(path, "file", "a folder", "a file name")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with h5py.File(temporary, "x") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise DataError(path, "file", one_line(error), "a place to write to") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> None:
    """Write a file of arrays and attributes; see `new_hdf5`."""
    with new_hdf5(path) as file:
        key = ""
        try:
            for key, values in arrays.items():
                file.create_dataset(key, data=values, compression="gzip" if values.ndim else None)
            for name, value in attributes.items():
                key = f"attribute {name}"
                file.attrs[name] = value
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(path, key, one_line(error), "something HDF5 can hold") from error
