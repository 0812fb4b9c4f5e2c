"""The fields that an emulator is trained on: opened, split by channel, and fixed for a run."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.context import RunContext

from .constant import changing, check_changing, constant_fields, never_changing, others
from .fieldset import FieldSet
from .files import from_arrays, read
from .frames import warn_of_frames
from .streaming import all_fields, trajectories


def parted(fields: FieldSet, stream: Stream) -> tuple[FieldSet, np.ndarray]:
    """The set with all its constant channels named, and `all_fields` of those that change.

    A channel with every frame in the file that never changes becomes one, with a warning.
    """
    moving = changing(fields)
    u = all_fields(moving, stream)
    warn_of_frames(fields.path, u, moving.channels)
    still = never_changing(u, trajectories(u.shape))
    if not still:
        return fields, u
    numbers = np.asarray(others(fields.shape[2], fields.constant))[list(still)]
    fields = fields._replace(constant=tuple(sorted({*fields.constant, *numbers.tolist()})))
    check_changing(fields)
    names = ", ".join(moving.channels[i] for i in still) or "a channel"
    warnings.warn(
        f"{fields.path.name}: {names}: the same in every frame: held constant, seen at every step "
        "and not predicted",
        stacklevel=3,
    )
    return fields, all_fields(changing(fields), stream)


def hold_fields(fields: FieldSet, u: np.ndarray, part: str, context: RunContext | None) -> None:
    """`DataError` where a resumed run would be trained on other fields than before."""
    if context:
        digest = hashlib.sha256(np.ascontiguousarray(u).data)
        if fields.constant:
            digest.update(np.ascontiguousarray(constant_fields(fields, fields.constant)).data)
        sha256 = digest.hexdigest()
        context.folder.hold(f"{fields.path.name} ({part})", sha256=sha256, shape=list(u.shape))


FieldsLike = FieldSet | ArrayLike | str | Path | Sequence[str | Path]


def fieldset_of(given: FieldsLike) -> FieldSet:
    """A set of fields, of files or an array."""
    if isinstance(given, FieldSet):
        return given
    if hasattr(given, "transitions"):
        raise ConfigError("fields", type(given).__name__, "fields: pde.read or pde.from_arrays")
    listed: Any = given if isinstance(given, list | tuple) and given else [given]
    if all(isinstance(path, str | Path) for path in listed):
        return read(listed)
    values: Any = given
    return from_arrays(values)
