"""Our text files: JSON that people can read, written whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, StorageError
from ..foreign import check_file
from ..strict import load_json
from .opening import replacing
from .sealed import sealed, unsealed

LINE_WIDTH = 100  # of lists and objects that stand on one line in JSON files


def plain(value: Any) -> Any:
    """`value` for JSON: arrays become lists, NaN becomes null, +-inf "Infinity"/"-Infinity".

    JSON knows none of the three; null is what other tools read as "no number", and the strings
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
    """JSON for people and for diffs: what is a list of numbers or short stands on one line."""
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
