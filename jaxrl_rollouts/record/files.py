"""Files of a run: opened and written without following links, whole or not at all, with digests.

A run folder is not trusted: a link in it could redirect writes to any place. JSON files
of ours carry the SHA-256 of their content as an entry, others one beside them in the layout of
`sha256sum`, and a checkpoint those of all its files: what was damaged or changed is known.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ..errors import CheckpointError, DataError, StorageError
from ..foreign import check_file, kind_of
from ..strict import load_json

_WITHOUT_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
EXPECTED = "one of the folder itself", "replace it by a copy, or remove it"


def regular(path: str | Path, flags: int) -> int:
    """An `opener` of `open` for what is changed in place."""
    try:
        handle = os.open(path, flags | _WITHOUT_LINKS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise DataError(path, "file", "a link or a pipe", *EXPECTED) from None
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise DataError(path, "file", kind_of(mode), *EXPECTED)
    return handle


def append(path: Path, text: str) -> None:
    """Write `text` at the end of a file, which is made if need be."""
    with open(path, "a", encoding="utf-8", newline="", opener=regular) as file:
        file.write(text)


def drop_torn_line(path: Path) -> None:
    """Cut what follows the last newline of a file: a crash in the middle of a write."""
    if path.exists():
        with open(path, "rb+", opener=regular) as file:
            data = file.read()
            end = data.rfind(b"\n") + 1
            if end != len(data):
                file.truncate(end)


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A new file that takes the place of `path` once it is whole and on disk.

    A link at `path` is replaced and not followed; permissions are those of the umask.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode.replace("w", "x"), encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_contents(folder: Path, below: Path | None = None) -> None:
    """Whether all that lies in a folder is files and folders of its own."""
    root = os.path.realpath(folder)
    inside = [
        os.path.join(place, name)
        for place, folders, files in os.walk(below or folder)
        for name in (*folders, *files)
    ]
    for path in ([str(below)] if below else []) + inside:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # another process replaced it just now
            continue
        if stat.S_ISLNK(mode):
            target = os.path.realpath(path)
            if os.path.commonpath([root, target]) != root:
                raise DataError(path, "file", f"a link to {target}", *EXPECTED)
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(path, "file", kind_of(mode), *EXPECTED)


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


LINE_WIDTH = 100  # of lists and objects that stand on one line in JSON files


def plain(value: Any) -> Any:
    """`value` for JSON: arrays become lists, NaN becomes null, +-inf "Infinity"/"-Infinity".

    JSON has none of the three; other tools read null as "no number", and the strings
    keep an infinity from turning into a missing value.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and jax arrays and their scalars
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return str(value) if isinstance(value, Path) else value


def json_text(data: Any, depth: int = 0) -> str:
    """Readable JSON that diffs well: lists of numbers and short values are on one line."""
    line = json.dumps(data, allow_nan=False)
    if not isinstance(data, dict | list):
        return line
    numbers = isinstance(data, list) and all(isinstance(x, int | float | None) for x in data)
    if numbers or depth + len(line) <= LINE_WIDTH:
        return line
    if isinstance(data, dict):
        items = [f"{json.dumps(key)}: {json_text(x, depth + 1)}" for key, x in data.items()]
    else:
        items = [json_text(x, depth + 1) for x in data]
    margin = "\n" + " " * depth
    return line[0] + f"{margin} " + f",{margin} ".join(items) + margin + line[-1]


def write_json_atomically(path: Path, data: Any, *, seal: bool = False) -> None:
    """Write `data` so that `path` holds either all of it or what it held before."""
    text = json_text(sealed(plain(data)) if seal else plain(data))
    write_atomically(path, text + "\n")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that `path` holds either all of it or what it held before."""
    with replacing(path, "w" if isinstance(content, str) else "wb") as file:
        file.write(content)


def read_json(path: Path, kind: str) -> Any:
    """Parse a file of ours."""
    if path.exists() and not path.is_file():
        check_file(path, f"one in {kind}")
    try:
        return unsealed(path, load_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: found no such file, expected one in {kind}") from None
    except OSError as error:
        raise StorageError(path, error) from error
    except ValueError as error:  # json or unicode
        raise CheckpointError(f"{path}: found no valid JSON ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
