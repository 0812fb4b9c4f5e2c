"""Digests by which a file that was damaged, or changed by hand, is known.

JSON files of ours carry the SHA-256 of their content as an entry, others one beside them in the
layout of `sha256sum`, and a checkpoint those of all its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .opening import replacing

KEY = "digest"


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON data with the digest of all of it as a last entry."""
    return {**data, KEY: _digest(data)}


def unsealed(path: Path, data: Any) -> Any:
    """What `sealed` was given; data without a digest are taken as they are."""
    if not isinstance(data, dict) or KEY not in data:
        return data
    rest = {key: value for key, value in data.items() if key != KEY}
    if data[KEY] != (here := _digest(rest)):
        raise CheckpointError(
            f"{path}: {KEY}: found {data[KEY]!r}, expected {here}, that of the content; the file "
            f"was damaged, or changed by hand (without the entry {KEY} it is taken as it is)"
        )
    return rest


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file, or of the names and contents of all files below a folder."""
    if path.is_dir():
        digest = hashlib.sha256()
        for name, own in file_digests(path).items():
            digest.update(f"{name}\0{own}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """Hex SHA-256 of every file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}


def seal_file(path: Path) -> None:
    """Put a file's digest beside it, for `is_sealed`; the file is whole on disk afterwards."""
    sync(path)
    beside = path.with_name(f"{path.name}.sha256")
    with replacing(beside) as file:
        file.write(f"{file_sha256(path)}  {path.name}\n")


def is_sealed(path: Path) -> bool:
    """Whether a file is there and is the one that `seal_file` saw."""
    beside = path.with_name(f"{path.name}.sha256")
    if not (path.is_file() and beside.is_file()):
        return False
    return beside.read_bytes() == f"{file_sha256(path)}  {path.name}\n".encode()


def sync(path: Path) -> None:
    """Have the operating system write a file, or the names in a folder, to the disk.

    Not every file system can do the latter.
    """
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
