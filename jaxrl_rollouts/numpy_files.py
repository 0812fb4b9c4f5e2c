"""NumPy's own files from outside: nothing is unpickled, and headers are checked against the file.

NumPy makes an array as large as a header declares before it reads; here the header has to agree
with the bytes there are, and those with the memory.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from .errors import DataError, printable
from .foreign import check_file, check_room, reading

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


class Header(NamedTuple):
    """Header of an .npy file, whose array begins after `offset` bytes."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    check_file(path, "an npz file")
    with reading(path, "an npz file"), zipfile.ZipFile(path) as archive:
        arrays = {}
        for entry in archive.infolist():
            key = printable(entry.filename).removesuffix(".npy")
            with reading(path, "a whole npz file of plain arrays", key), archive.open(entry) as f:
                arrays[key] = _read(path, key, f, entry.file_size)
        return arrays


def read_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, whole; `DataError` as `read_npz`."""
    check_file(path, "an .npy file")
    with reading(path, "a whole .npy file of numbers", "array"), path.open("rb") as file:
        return _read(path, "array", file, path.stat().st_size)


def map_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, mapped into memory and read when used; `DataError` likewise."""
    check_file(path, "an .npy file")
    with reading(path, "a whole .npy array of numbers", "array"), path.open("rb") as file:
        head = _header(path, "array", file, path.stat().st_size)
        order = "F" if head.fortran else "C"
        return np.memmap(path, head.dtype, "r", head.offset, head.shape, order)


def _header(path: Path, key: str, file: IO[bytes], size: int) -> Header:
    """The header, if it fits the `size` of the file; stops where the array begins."""
    version = npy.read_magic(file)
    if version not in _READERS:
        raise DataError(path, key, f"version {version} of the format", "plain arrays")
    shape, fortran, dtype = _READERS[version](file)
    if dtype.hasobject:
        raise DataError(path, key, "Python objects, which are never loaded", "plain arrays")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise DataError(path, key, f"shape {shape}", "sizes from 0")
    declared, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if declared != there:
        found = f"{there:,} bytes for an array {list(shape)} of {dtype}"
        raise DataError(path, key, found, f"{declared:,} bytes", "it was cut off or damaged")
    return Header(shape, fortran, dtype, file.tell())


def _read(path: Path, key: str, file: IO[bytes], size: int) -> np.ndarray:
    head = _header(path, key, file, size)
    # Twice, as the bytes are there before the array is.
    check_room(path, key, 2 * math.prod(head.shape) * head.dtype.itemsize)
    values = np.frombuffer(file.read(), head.dtype)
    return values.reshape(head.shape, order="F" if head.fortran else "C").copy()
