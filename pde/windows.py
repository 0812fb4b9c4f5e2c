"""Random windows of sets that do not fit on a device: only what they cover is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.errors import DataError

from .fieldset import FieldSet


class Windows(NamedTuple):
    """One batch, on the host.

    Attributes:
        fields: `[batch, frames, C, *space]`.
        rows: `[batch]` trajectories they are of; picks from `condition_table` and `parameters`.
        begins: `[batch]` their first frames.
    """

    fields: np.ndarray
    rows: np.ndarray
    begins: np.ndarray


def iterate_windows(
    found: FieldSet,
    generator: np.random.Generator,
    batch: int,
    frames: int,
    *,
    every: int = 1,
    dtype: str = "float32",
) -> Iterator[Windows]:
    """Yield windows without end; each is uniform over trajectories and over beginnings.

    Args:
        found: the trajectories, in their file.
        generator: decides everything; one of the same seed gives the same windows.
        batch: windows at a time.
        frames: frames in each.
        every: frames of the file per frame of a window.
        dtype: of the fields.

    Raises:
        DataError: trajectories shorter than a window, or a file that cannot be read.
        ValueError: `batch`, `frames` or `every` below 1.
    """
    if min(batch, frames, every) < 1:
        raise ValueError(f"batch, frames, every: found {batch, frames, every}, expected 1 or more")
    rows, length = found.shape[:2]
    span = (frames - 1) * every + 1
    if length < span:
        raise DataError(found.path, "frames", length, f"at least {span} for a window")
    starts = length - span + 1

    def forever() -> Iterator[Windows]:
        while True:
            row = generator.integers(rows, size=batch)
            begin = generator.integers(starts, size=batch)
            parts = [
                found.read(int(r), slice(int(b), int(b) + span, every))
                for r, b in zip(row, begin, strict=True)
            ]
            yield Windows(np.concatenate(parts).astype(dtype, copy=False), row, begin)

    return forever()  # a function of its own, so that errors come now and not at the first batch
