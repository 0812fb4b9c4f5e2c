"""Checks of a foreign file before anything in it is read.

A name may stand for a pipe that never answers, a size for more memory than there is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import ConfigError, DataError, UserError, one_line, printable

# The name of code to import, `package.module:factory` or `FILE.py:Class`, with its options.
# The last part is a name in that module, or a Gymnasium id that it registers, `Tank-v0`.
CODE = re.compile(r"([A-Za-z_][\w.]*|[^:]*\.py):[A-Za-z_][\w.]*(-v\d+)?(\?.*)?", re.DOTALL)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_file(path: Path, expected: str) -> None:
    """Whether `path` is a file at all, without opening it: a pipe or a device may never end."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        raise DataError(path, "file", "nothing", expected) from None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(path, "file", kind_of(found.st_mode), expected)
    if not found.st_size:
        raise DataError(path, "file", "0 bytes", expected)


@contextmanager
def reading(
    path: Path, expected: str, key: str = "file", hint: str = "", broken: Any = Exception
) -> Iterator[None]:
    """What libraries raise of a damaged file becomes one `DataError`; a `UserError` stays."""
    try:
        yield
    except UserError:
        raise
    except PermissionError:
        raise DataError(path, "file", "no permission to read", "a readable file") from None
    except broken as error:
        raise DataError(path, key, one_line(error), expected, hint) from error


def kind_of(mode: int) -> str:
    """What a file is that is no regular one, by its mode: `a pipe`."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def check_room(path: str | Path, key: str, size: int) -> None:
    """`DataError` where `size` bytes, as a file declares them, are more than the free memory."""
    free = free_memory()
    if size > free:
        expected = f"at most the {_gigabytes(free)} of memory that are free"
        raise DataError(path, key, _gigabytes(size), expected)


def check_unicode(setting: str, path: Path) -> None:
    """`ConfigError` for a place whose name is no UTF-8, in which no checkpoint can be written."""
    if any("\ud800" <= letter <= "\udfff" for letter in str(path.absolute())):
        raise not_unicode(setting, str(path))


def not_unicode(setting: str, name: str) -> ConfigError:
    """The error of a name that is no UTF-8, or that the locale cannot encode."""
    hint = "where the locale is C, set PYTHONUTF8=1"
    return ConfigError(setting, name, "a name in UTF-8", hint)


def clean(data: Any) -> Any:
    """Data out of a JSON file or an attribute without control characters, keys included."""
    if isinstance(data, dict):
        return {printable(str(key)): clean(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [clean(value) for value in data]
    return printable(data) if isinstance(data, str) else data


def expanded(path: str | Path) -> Path:
    """`path` with the user's home for `~`: the working directory where a container has none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(*Path(path).parts[1:])


def free_memory() -> int:
    """Bytes that can be had: of the machine and, in a container, of the container.

    Without Linux's counts all of the machine's memory.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, OSError, ValueError):
            return 2**63
    try:
        most, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current")
        )
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return min(free, max(most - used, 0))


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB" if size < 1e15 else f"{size:.3g} bytes"


def code_in(data: Any) -> Iterator[str]:
    """Names of code to import anywhere in JSON data."""
    if isinstance(data, str) and CODE.fullmatch(data):
        yield data
    inside = [*data, *data.values()] if isinstance(data, dict) else data
    for item in inside if isinstance(inside, list) else ():
        yield from code_in(item)
