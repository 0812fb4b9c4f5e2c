"""How a run's own files are opened for writing: never through a link, never anything but a file.

A run folder may be anybody's: a link in it would have us write wherever its owner chose.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import DataError
from ..foreign import kind_of

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
        except FileNotFoundError:  # somebody else's, replaced just now
            continue
        if stat.S_ISLNK(mode):
            target = os.path.realpath(path)
            if os.path.commonpath([root, target]) != root:
                raise DataError(path, "file", f"a link to {target}", *EXPECTED)
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(path, "file", kind_of(mode), *EXPECTED)
