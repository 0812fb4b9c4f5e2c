"""Fetch one file over HTTPS, else HTTP: beside its place first, looked into, then a rename."""

from __future__ import annotations

import http.client
import shutil
import time
import urllib.error
import urllib.request
import uuid
import warnings
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.hdf5 import open_hdf5

TIMEOUT = 10.0  # seconds without an answer
FORGOTTEN = 3600.0  # seconds since anything was written to what a killed download left behind
_CHUNK = 1 << 20


def download(
    url: str, path: Path, *, name: str, size: int | None = None, progress: bool = True
) -> Path:
    """Fetch an HDF5 file to `path`, making its folder.

    Args:
        url: source.
        path: destination.
        name: its name in messages.
        size: bytes it is known to have; None where it is unknown.
        progress: show progress.

    Warns:
        UserWarning: there is no HTTPS, so that the file is not authenticated.

    Raises:
        DataError: no connection, an answer of unknown or another length or too large for the disk,
            a transfer cut short, an answer that is not HDF5 (a login page), or a place that cannot
            be written to. Says what to fetch and where to put it; nothing is left at `path` or
            beside it.
    """
    hint = f"fetch {url} and put it at {path}"
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        with _answer(url, name) as answer, temporary.open("xb") as file:
            total, came = _length(answer, size, path.parent, name, hint), 0
            with tqdm(
                total=total, unit="B", unit_scale=True, desc=name, disable=not progress
            ) as bar:
                while came <= total and (chunk := answer.read(_CHUNK)):  # it may never end
                    came += file.write(chunk)
                    bar.update(len(chunk))
        if came != total:
            raise DataError(name, "download", f"{came} of {total} bytes", "the whole file", hint)
        _look_into(temporary, name, hint)
        temporary.replace(path)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(name, "download", one_line(error), "a connection", hint) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _answer(url: str, name: str) -> Any:
    """The answer over HTTPS, and where there is none over HTTP."""
    rest = url.partition("://")[2]
    try:
        return urllib.request.urlopen(f"https://{rest}", timeout=TIMEOUT)
    except OSError as error:  # of which those of TLS and of HTTP are kinds
        answer = urllib.request.urlopen(f"http://{rest}", timeout=TIMEOUT)
        warnings.warn(
            f"{name}: fetched over http, which does not protect it from changes, as https failed: "
            f"{one_line(error)}",
            stacklevel=3,
        )
        return answer


def _length(answer: Any, size: int | None, folder: Path, name: str, hint: str) -> int:
    """How many bytes will come; without that a transfer that was cut would look whole."""
    length = answer.headers.get("Content-Length") or str(size or "")
    if not length.isdigit():
        raise DataError(name, "download", "an answer of unknown length", "Content-Length", hint)
    if size is not None and int(length) != size:
        raise DataError(
            name, "download", f"{length} bytes", f"the {size} it is known to have", hint
        )
    free = shutil.disk_usage(folder).free
    if int(length) > free:
        expected = f"at most the {free / 1e9:.3g} GB that are free in {folder}"
        raise DataError(name, "download", f"{int(length) / 1e9:.3g} GB", expected, hint)
    return int(length)


def _look_into(temporary: Path, name: str, hint: str) -> None:
    size = temporary.stat().st_size
    try:
        with open_hdf5(temporary) as file:
            if "observations" in file:
                return
            found = f"keys {', '.join(sorted(file)) or 'none'}"
    except DataError as error:
        found = str(error.found)
    raise DataError(name, "download", f"{size} bytes, {found}", "an HDF5 file of D4RL's", hint)


def _sweep(path: Path) -> None:
    """Remove remains of killed downloads of this file; a running one is never that old."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        if time.time() - part.stat().st_mtime > FORGOTTEN:
            part.unlink(missing_ok=True)
