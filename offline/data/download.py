"""Fetch one file over HTTP: beside its place first, then a rename."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from tqdm import tqdm

from jaxrl_rollouts.errors import DataError, one_line

TIMEOUT = 10.0  # seconds without an answer
_MAGIC = b"\x89HDF\r\n\x1a\n"
_CHUNK = 1 << 20


def download(url: str, path: Path, *, name: str, progress: bool = True) -> Path:
    """Fetch an HDF5 file to `path`, making its folder.

    Raises:
        DataError: no connection, a transfer cut short, an answer that is not HDF5 (a login page),
            or a place that cannot be written to. Says what to fetch and where to put it; nothing
            is left at `path`.
    """
    hint = f"fetch {url} and put it at {path}"
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, temporary.open("xb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            with tqdm(
                total=total, unit="B", unit_scale=True, desc=name, disable=not progress
            ) as bar:
                while chunk := answer.read(_CHUNK):
                    bar.update(file.write(chunk))
        size = temporary.stat().st_size
        if total is not None and size != total:
            raise DataError(name, "download", f"{size} of {total} bytes", "the whole file", hint)
        with temporary.open("rb") as file:
            start = file.read(len(_MAGIC))
        if start != _MAGIC:
            raise DataError(name, "download", f"{size} bytes, not HDF5", "an HDF5 file", hint)
        temporary.replace(path)
    except (OSError, http.client.HTTPException, urllib.error.URLError, ValueError) as error:
        raise DataError(name, "download", one_line(error), "a connection", hint) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path
