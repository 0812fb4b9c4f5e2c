"""Fields larger than memory: copied once into a file, of which training reads windows."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.descent import iteration_keys
from jaxrl_rollouts.feeds import (
    Drawn,
    Prefetcher,
    Stream,
    blocks,
    mapped,
    must_stream,
    on_disk,
    scattered,
)

from .fieldset import FieldSet, PickedWindows, window_places
from .frames import check_written, loses, narrowed
from .training import Training

_AT_ONCE = 67_108_864  # bytes


def all_fields(fields: FieldSet, stream: Stream) -> np.ndarray:
    """All of a set, `[N, T, C, *space]`, in memory or mapped from a file.

    It is float32, or float64 where that loses the changes.
    """
    if not must_stream(stream, 4 * math.prod(fields.shape)):
        values = narrowed(fields.read(slice(None), slice(None)))
        check_written(fields.path, values)
        return values
    dtype = np.float64 if loses(values for _, values in _read(fields)) else np.float32
    digest = hashlib.sha256(repr(fields.shape).encode())
    for _, values in _read(fields):
        digest.update(np.ascontiguousarray(values, dtype).data)

    def fill(array: np.ndarray) -> None:
        for part, values in _read(fields):
            array[part] = values

    return mapped(on_disk(digest.hexdigest()[:32], fields.shape, fill, dtype))


def _read(fields: FieldSet) -> Iterator[tuple[slice, np.ndarray]]:
    for part in trajectories(fields.shape):
        values = fields.read(part, slice(None))
        check_written(fields.path, values, part.start)
        yield part, values


def trajectories(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of as many trajectories as are looked at at a time."""
    return blocks(shape[0], max(1, _AT_ONCE // (4 * math.prod(shape[1:]))))


def deviation(parts: Iterable[np.ndarray], axes: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and standard deviation over `axes` of all parts, float64 (Chan et al. 1979)."""
    count, mean, squares = 0, np.float64(0), np.float64(0)
    for part in parts:
        own = part.mean(axes, np.float64, keepdims=True)
        apart = np.square(part - own).sum(axes)
        own, new = own.squeeze(axes), math.prod(part.shape[axis] for axis in axes)
        change, count = own - mean, count + new
        squares = squares + apart + np.square(change) * (count - new) * new / count
        mean = mean + change * new / count
    return mean, np.sqrt(squares / max(count, 1))


def windows_feed(
    fields: np.ndarray,
    conditions: Any,
    scale: Callable[[np.ndarray], np.ndarray],
    frames: int,
    config: Training,
) -> Prefetcher:
    """The data of a `make_training` update, read from the file of `all_fields`.

    Args:
        fields: `[N, T, C, *space]`, mapped.
        conditions: `[N, P]` as networks see them; `Conditioning` where there are constant
            channels, in memory.
    """
    path, shape = Path(fields.filename), fields.shape  # type: ignore[attr-defined]
    steps = config.stride * np.arange(frames)

    def read(places: tuple[np.ndarray, np.ndarray]) -> Drawn:
        row, begin = places
        index = row[..., None].astype(np.int64) * shape[1] + begin[..., None] + steps
        seen = jax.tree.map(lambda x: x[row], conditions)
        windows: Any = scale(scattered(path, index, axes=2))
        return Drawn(PickedWindows(windows, seen))

    return Prefetcher((), make_plan(config, frames, *shape[:2]), read)


@functools.lru_cache(maxsize=32)
def make_plan(config: Training, frames: int, rows: int, length: int) -> Callable[[jax.Array], Any]:
    """Which windows an iteration draws: `keys [seeds]` of the states before it to trajectories and
    first frames, `[seeds, updates, batch]` each, and the keys after it."""
    span = (frames - 1) * config.stride + 1

    def plan(key: jax.Array) -> Any:
        keys, key = iteration_keys(config, key)
        places = jax.vmap(lambda k: window_places(k, rows, length, config.batch, span))
        return places(keys[:, 0]), key

    return jax.jit(jax.vmap(plan))
