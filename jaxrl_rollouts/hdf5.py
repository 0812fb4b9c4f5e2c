"""HDF5 files from outside: opened, read and written with errors a user can act on.

A file may send its reader elsewhere: soft and external links, virtual datasets, raw data in other
files. What is there is not what was sent, checked or hashed (a text file reads as rewards, a source
that is missing as zeros, a dataset that maps to itself ends the interpreter), so all of them are
refused by name before anything is read.
"""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import h5py.h5d as h5d
import h5py.h5l as h5l
import h5py.h5o as h5o
import numpy as np

from .errors import DataError, one_line, printable
from .foreign import check_file, check_room, clean, reading

# h5py has no error of its own: a broken file shows as any of these.
BROKEN = (OSError, LookupError, RuntimeError, TypeError, ValueError, MemoryError, OverflowError)
WHOLE = "a whole HDF5 file"
_LINKS = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "a link to another file"}


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """A file to read from, all of whose datasets are in it."""
    check_file(path, "an HDF5 file")
    with reading(path, WHOLE, hint="copy or download it again", broken=BROKEN):
        stat = path.stat()
        _check_once(path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        with h5py.File(path, "r") as file:
            yield file


@functools.lru_cache(maxsize=128)
def _check_once(path: Path, *version: int) -> None:
    """`check_inside` for a file as it is now; windows are read by opening it again and again."""
    with h5py.File(path, "r") as file:
        check_inside(path, file)


def check_inside(
    path: Path, file: h5py.File, *, whole: bool = False, together: bool = True
) -> None:
    """Whether every link and dataset of a file is one of its own."""

    links: list[tuple[bytes, int]] = []
    size = 0
    # Exceptions do not get out of this callback, so what it finds is looked at afterwards.
    file.id.links.visit(lambda name, info: links.append((name, info.type)), info=True)
    for name, link in links:
        key = name.decode(errors="replace")
        if link != h5l.TYPE_HARD:
            kind = _LINKS.get(link, "a link of an unknown kind")
            hint = "copy what it means to its place"
            raise DataError(path, key, kind, "an array or a group of this file", hint)
        found = h5o.open(file.id, name)
        if isinstance(found, h5d.DatasetID):
            _check_own(path, key, found)
            if whole:
                array = h5py.Dataset(found)
                check_written(path, key, array)
                size = size * together + (array.size or 0) * array.dtype.itemsize
                check_room(path, key, size)


def _check_own(path: Path, key: str, array: h5d.DatasetID) -> None:
    made = array.get_create_plist()
    if made.get_layout() == h5d.VIRTUAL:
        found = "a virtual dataset, which is a view of others"
        raise DataError(path, key, found, "numbers in this file", "copy them into it")
    if made.get_external_count():
        other = made.get_external(0)[0].decode(errors="replace")
        raise DataError(path, key, f"its numbers in the file {other}", "them in this one")


def check_written(path: Path, key: str, array: h5py.Dataset) -> None:
    """`DataError` where a dataset declares more than was ever written: the rest reads as zeros."""
    shape = array.shape or ()
    if not array.size:
        return
    chunks, found, expected = array.chunks, array.id.get_storage_size(), 1
    if chunks:
        found = array.id.get_num_chunks()
        expected = math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    if found < expected:
        parts = f"{found:,} of {expected:,} parts" if chunks else "nothing"
        found = f"{parts} written of an array {list(shape)}"
        raise DataError(path, key, found, "all of it, as the rest reads as zeros")


def read_array(path: Path, file: h5py.File, key: str) -> np.ndarray:
    """One array of the file, whole."""
    try:
        node = file[key]
    except BROKEN:
        found = f"only {', '.join(sorted(file)) or 'nothing'}"
        raise DataError(path, key, found, f"an array {key}") from None
    if not isinstance(node, h5py.Dataset):
        raise DataError(path, key, "a group", "an array")
    with reading(path, "a readable array", key, broken=BROKEN):
        check_written(path, key, node)
        check_room(path, key, (node.size or 0) * node.dtype.itemsize)
        return np.asarray(node[()])


def plain_attributes(file: h5py.File) -> dict[str, Any]:
    """File attributes as plain Python values, texts without control characters."""
    plain = {}
    for key in file.attrs:
        try:
            value = file.attrs[key]
        except BROKEN:  # an attribute type h5py cannot read; not worth failing for
            continue
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        plain[printable(str(key))] = clean(value)
    return plain


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """A file that appears whole or not at all (a hidden neighbour, then a rename)."""
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
                # The checksum: what a disk damages is an error, and not other numbers.
                options = {"compression": "gzip", "fletcher32": True} if values.ndim else {}
                file.create_dataset(key, data=values, **options)
            for name, value in attributes.items():
                key = f"attribute {name}"
                file.attrs[name] = value
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(path, key, one_line(error), "something HDF5 can hold") from error
