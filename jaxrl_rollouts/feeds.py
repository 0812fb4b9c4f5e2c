"""Data that do not fit into memory: the next batches are read while the training computes.

A feed stands in the place of `train_loop`'s data. The rows of every update are known ahead,
because random streams depend on keys and not on parameters. It reads just those, one
iteration ahead, on its own thread.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from .errors import DataError
from .foreign import expanded, free_memory
from .record.files import is_sealed, seal_file
from .trees import PyTree

Stream = Literal["auto", "always", "never"]
# Of data in memory: as they are in the file, as float32, and on two devices.
COPIES = 4
BLOCK = 65_536  # rows that are read, or looked at, at a time
# Bytes: rows no further apart are read together, so many at most.
_NEAR, _AT_ONCE = 4096, 1_048_576


@runtime_checkable
class DataStream(Protocol):
    """Data that `train_loop` reads in parts during training.

    Attributes:
        known: argument of `init` in place of the data.
    """

    known: PyTree

    def begin(self, state: PyTree, place: Callable[[PyTree], PyTree]) -> None:
        """Begin to read.

        Args:
            state: leaves `[seeds, ...]`, the initial or resumed state of the training.
            place: puts leaves `[seeds, ...]` on the devices.
        """

    def look(self) -> PyTree:
        """What `take` gives next; waits for it and leaves it there."""

    def take(self) -> PyTree:
        """What the next iteration of every seed sees, placed; waits for it."""

    def close(self) -> None:
        """Nothing more will be taken."""


class Drawn(NamedTuple):
    """An iteration's data where they were drawn before it: leaves `[steps, batch, ...]`."""

    batches: PyTree


class Prefetcher:
    """A `DataStream` of rows in a file, for learners whose state has a `key`.

    Args:
        known: see `DataStream`.
        plan: `keys [seeds] -> (places, keys)`: what an iteration that begins with these keys
            reads, and the keys that it ends with. Runs on the CPU.
        read: `places -> rows`, numpy, leaves `[seeds, ...]`.
    """

    def __init__(
        self,
        known: PyTree,
        plan: Callable[[jax.Array], tuple[PyTree, jax.Array]],
        read: Callable[[PyTree], PyTree],
    ) -> None:
        self.known, self._plan, self._read = known, plan, read
        self._thread: ThreadPoolExecutor | None = None
        self._next: Future | None = None

    def begin(self, state: PyTree, place: Callable[[PyTree], PyTree]) -> None:
        """See `DataStream`."""
        # A copy on the host: the loop gives the state's own buffers to its first iteration.
        data, kind = np.array(jax.random.key_data(state.key)), jax.random.key_impl(state.key)
        self._keys: tuple[Any, Any] = data, kind
        self._place = place
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._next = self._thread.submit(self._ahead)

    def _ahead(self) -> PyTree:
        data, kind = self._keys
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            places, keys = self._plan(jax.random.wrap_key_data(data, impl=kind))
        self._keys = np.asarray(jax.random.key_data(keys)), kind
        return self._place(self._read(jax.tree.map(np.asarray, places)))

    def look(self) -> PyTree:
        """See `DataStream`; what went wrong on the thread is raised here."""
        assert self._next is not None, "begin comes first"
        return self._next.result()

    def take(self) -> PyTree:
        """See `DataStream`."""
        rows, self._next = self.look(), None
        assert self._thread is not None
        self._next = self._thread.submit(self._ahead)
        return rows

    def close(self) -> None:
        """See `DataStream`."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread = self._next = None


def must_stream(stream: Stream, size: int) -> bool:
    """Whether data of `size` bytes (as float32) are left on the disk.

    `auto`: where they and their copies on the devices would not fit into the free memory.
    """
    return stream == "always" or (stream == "auto" and COPIES * size > free_memory())


def cache_folder(kind: str) -> Path:
    """A folder of the user's cache; `$JAXRL_ROLLOUTS_KIND` names another one."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get(f"JAXRL_ROLLOUTS_{kind.upper()}") or f"{base}/jaxrl-rollouts/{kind}"
    return expanded(named)


def on_disk(
    name: str,
    shape: tuple[int, ...],
    fill: Callable[[np.ndarray], None],
    dtype: type[np.floating] = np.float32,
) -> Path:
    """An array in a file (`.npy`) of the user's cache, made once and known by its digest."""
    folder = cache_folder("rows")
    path = folder / f"{name}.npy"
    if is_sealed(path):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.part"
    try:
        array = np.lib.format.open_memmap(temporary, "w+", dtype, shape)
        fill(array)
        array.flush()
        del array
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    seal_file(path)
    return path


def mapped(path: Path) -> np.ndarray:
    """The array of a file without reading it; pages come as they are looked at."""
    return np.load(path, mmap_mode="r")


def scattered(path: Path, index: np.ndarray, axes: int = 1) -> np.ndarray:
    """Rows `[*index.shape, ...]` of the array in a file, in the order in which the disk has them.

    Neighbours are read together. Nothing is mapped, which would count as memory.
    """
    whole: Any = mapped(path)
    offset, whole = whole.offset, whole.reshape(-1, *whole.shape[axes:])
    order = np.argsort(index, axis=None, kind="stable")
    wanted, size = index.ravel()[order].astype(np.int64), whole[:1].nbytes
    ready = np.empty((len(wanted), *whole.shape[1:]), whole.dtype)
    bytes_of = ready.reshape(-1).view(np.uint8).data
    apart = (np.diff(wanted) * size > _NEAR) | (np.diff(wanted * size // _AT_ONCE) > 0)
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(wanted)]
    starts = (offset + wanted * size).tolist()
    with path.open("rb", buffering=0) as file:  # unbuffered: one read of the system for each
        for begin, end in itertools.pairwise(cuts):
            count = (starts[end - 1] - starts[begin]) // size + 1
            alone = count == end - begin == 1
            part = bytes_of[begin * size : end * size] if alone else bytearray(count * size)
            file.seek(starts[begin])
            if (file.readinto(part) or 0) < count * size:
                raise DataError(path, "rows", "an end of the file before them", "all of them")
            if not alone:
                read = np.frombuffer(part, whole.dtype).reshape(-1, *whole.shape[1:])
                ready[begin:end] = read[wanted[begin:end] - wanted[begin]]
    rows = np.empty_like(ready)
    rows[order] = ready
    return rows.reshape(*index.shape, *whole.shape[1:])


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices that cut `count` rows into blocks of `size`, the last one shorter."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


@contextlib.contextmanager
def closing(feed: DataStream | None) -> Iterator[None]:
    """Close a feed at the end, if there is one."""
    try:
        yield
    finally:
        if feed is not None:
            feed.close()
