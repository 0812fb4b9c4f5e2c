"""Downloads of `hf://owner/name`: numbers, JSON and tapes only."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ConfigError, MissingExtraError, StorageError
from .tensors import PARAMS

# Also as `Path` writes it, with one slash.
NAME = re.compile(r"hf:/{1,2}(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?", re.ASCII)
TAPE = ".tape"
FETCHED = ["*.json", f"*{PARAMS}", f"*{TAPE}"]


def is_name(place: Any) -> bool:
    """Whether a place is `hf://owner/name`."""
    return isinstance(place, str | Path) and str(place).startswith("hf:/")


def local(place: str | Path, repository: str = "model") -> Path:
    """The folder of `hf://owner/name[@revision]` on this machine, fetched where it is not; any
    other place as it is.

    Args:
        repository: its kind on the hub; `dataset` of tapes.

    Raises:
        ConfigError: a name of another form.
        MissingExtraError: huggingface_hub is not installed.
        StorageError: no such repository, or no connection.
    """
    if not is_name(place):
        return Path(place)
    found = NAME.fullmatch(str(place))
    if found is None:
        raise ConfigError("hub", str(place), "hf://owner/name or hf://owner/name@revision")
    library = library_of(f"reading {place}")
    with refusals(str(place)):
        folder = library.snapshot_download(
            found["repository"],
            repo_type=repository,
            revision=found["revision"],
            allow_patterns=FETCHED,
        )
    return Path(folder)


def the_tape(place: str | Path) -> Path:
    """The tape in a repository, or the path of one."""
    folder = local(place, "dataset")
    if not is_name(place):
        return folder
    tapes = sorted(folder.rglob(f"*{TAPE}"))
    if len(tapes) != 1:
        raise CheckpointError(f"{place}: found {len(tapes)} tapes, expected one")
    return tapes[0]


@contextlib.contextmanager
def refusals(name: str) -> Iterator[None]:
    """What the hub or the network refuse, as one line."""
    try:
        yield
    except Exception as error:
        raise StorageError(f"hub: {name}", error) from error


def library_of(feature: str) -> Any:
    """`huggingface_hub`, or which extra brings it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(feature, "huggingface_hub", "hub") from error
    return huggingface_hub
