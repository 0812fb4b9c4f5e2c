"""Datasets larger than memory: read by windows, once, into a file that is mapped.

A row of that file is `observations, actions, reward, next_observations, terminated, truncated`, one
after the other as float32, so that a row drawn at random is one read. `Dataset.transitions` are
views of it: reading them in blocks needs no more memory than a block.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.feeds import BLOCK, blocks, mapped, on_disk
from jaxrl_rollouts.hdf5 import check_written
from jaxrl_rollouts.outside import find_offset, subtract

from .arrays import (
    FILE_KEYS,
    OPTIONAL,
    PARTS,
    REQUIRED,
    Assembled,
    check_kept,
    check_present,
    shifted_facts,
    stored_facts,
    truncations_of,
)
from .bounds import bounded, read_bounds
from .checks import RANKS, as_actions, as_column, as_flags, as_floats, as_reals, validate
from .successors import followed
from .transitions import Transitions

FIELDS = {key: field for field, key in FILE_KEYS.items()}


def columns_of(rows: np.ndarray, width: int) -> Transitions:
    """`[..., W]` rows of the file, `width` observation entries wide, as columns."""
    return Transitions(
        rows[..., :width],
        rows[..., width : -width - 3],
        rows[..., -width - 3],
        rows[..., -width - 2 : -2],
        rows[..., -2] != 0,
        rows[..., -1] != 0,
    )


class _Window(NamedTuple):
    """How windows of a D4RL file become rows; endings are those of all rows."""

    path: Path
    file: Any  # an `h5py.File`
    terminations: np.ndarray
    truncations: np.ndarray
    bounds: tuple[Any, Any]
    action_limit: float | None
    clip: bool
    offset: np.ndarray | None


def streamed_less(offset: np.ndarray | None) -> str:
    """What an offset adds to the name of the file of rows."""
    return "" if offset is None else f" less {offset.tolist()}"


def stream_d4rl(
    path: Path,
    file: h5py.File,
    sha256: str,
    *,
    limit: int | None,
    action_low: Any,
    action_high: Any,
    action_limit: float | None,
    clip: bool,
) -> tuple[Assembled, Path]:
    """What `assemble` makes of a file's arrays, as views of a file beside, and that file."""
    sizes = _sizes(path, file)
    arrays: Any = file
    terminations = as_flags(path, "terminals", arrays["terminals"][()])
    timeouts = {"timeouts": arrays["timeouts"][()]} if "timeouts" in file else {}
    stored = "next_observations" in file
    known = timeouts | ({"next_observations": ()} if stored else {})
    truncations = truncations_of(path, known, terminations, limit)
    kept, cut, facts = np.arange(len(terminations)), truncations, {}
    if not stored:
        kept, cut, dropped = followed(terminations, truncations)
        facts = shifted_facts(terminations, dropped)
        check_kept(path, len(kept))
    bounds = read_bounds(action_low, action_high, sizes[1])
    # Of the first rows: all of them would have to be read once more.
    first = as_reals(path, "observations", arrays["observations"][:BLOCK], 2)
    offset = find_offset(path, "observations", first)
    given = (action_low, action_high), action_limit, clip, offset
    window = _Window(path, file, terminations, truncations, *given)

    def fill(array: np.ndarray) -> None:
        for part in blocks(len(terminations)):
            rows = _read(window, part)
            first, end = np.searchsorted(kept, (part.start, part.stop))
            picked = [column[kept[first:end] - part.start] for column in rows[:5]]
            array[first:end] = _table(Transitions(*picked, truncations=cut[first:end]))

    options = f"{limit} {bounds} {action_limit} {clip}" + " with ends" * (not stored)
    options += streamed_less(offset)
    rows, rows_file = _made(sha256, options, (len(kept), *sizes), fill)
    facts = stored_facts(path, rows) if stored else facts
    low, high = bounds or (None, None)
    return Assembled(rows, kept, low, high, facts, offset), rows_file


def stream_episodes(
    source: str,
    sha256: str,
    options: str,
    episodes: Callable[[], Iterator[Transitions]],
    checked: Callable[[Transitions], Transitions],
) -> tuple[Transitions, Path]:
    """Rows of episodes one after the other, as views of a file, and that file.

    Args:
        episodes: walks through them, each with at least one row and all as wide. Walked through
            twice, since a file's length comes before its rows.
    """
    count = observations = actions = 0
    for rows in episodes():
        count += len(rows.rewards)
        observations, actions = rows.observations.shape[1], rows.actions.shape[1]
    if not count:
        raise DataError(source, "episodes", "0 steps", "at least one step")

    def fill(array: np.ndarray) -> None:
        first = 0
        for rows in episodes():
            with _counted_from(source, first):
                rows = checked(rows)
            array[first : first + len(rows.rewards)] = _table(rows)
            first += len(rows.rewards)

    return _made(sha256, options, (count, observations, actions), fill)


def _made(
    sha256: str, options: str, sizes: tuple[int, int, int], fill: Callable[[np.ndarray], None]
) -> tuple[Transitions, Path]:
    """Rows, observation and action entries: `fill` makes the file, where there is none yet."""
    name = f"{sha256[:32]}-{hashlib.sha256(options.encode()).hexdigest()[:8]}"
    rows_file = on_disk(name, (sizes[0], 2 * sizes[1] + sizes[2] + 3), fill)
    return columns_of(mapped(rows_file), sizes[1]), rows_file


def _table(rows: Transitions) -> np.ndarray:
    """The inverse of `columns_of`, `[N, W]` float32."""
    columns = [column if column.ndim == 2 else column[:, None] for column in rows]
    return np.concatenate(columns, 1, dtype=np.float32)


@contextlib.contextmanager
def _counted_from(source: str | Path, first: int) -> Iterator[None]:
    """Say in a `DataError` from which row its rows are counted."""
    try:
        yield
    except DataError as error:
        found = f"{error.found} (counted from row {first:,})" if first else error.found
        raise DataError(source, error.key, found, error.expected) from error


def rows_bytes(file: h5py.File) -> int:
    """What the rows of a D4RL file take as float32; 0 where it is none."""
    found = [file.get(key) for key in ("observations", "observations", "actions", "rewards")]
    arrays = [array for array in found if isinstance(array, h5py.Dataset)]
    return 4 * sum(array.size or 0 for array in arrays)


def _sizes(path: Path, file: Any) -> tuple[int, int]:
    """Observation and action entries; `DataError` unless all arrays are there and as long."""
    keys = [*REQUIRED, *(key for key in OPTIONAL if key in file)]
    check_present(path, file)
    for key in keys:
        if not isinstance(file[key], h5py.Dataset):
            raise DataError(path, key, "a group", "one array", PARTS)
        check_written(path, key, file[key])
        as_column(path, key, file[key], RANKS[FIELDS.get(key, key)])
    count = len(file["observations"])
    for key in keys:
        if len(file[key]) != count:
            raise DataError(path, key, f"{len(file[key])} rows", f"{count} rows, as observations")
    return file["observations"].shape[1], file["actions"].shape[1]


def _read(window: _Window, part: slice) -> Transitions:
    """Checked rows of the file; the last of a file without successors has itself as one."""
    path, file = window.path, window.file
    stored = "next_observations" in file
    with _counted_from(path, part.start):
        seen = as_reals(path, "observations", file["observations"][part.start : part.stop + 1], 2)
        seen = subtract(seen, window.offset)
        now = seen[: part.stop - part.start]
        if stored:
            after = as_reals(path, "next_observations", file["next_observations"][part], 2)
            after = subtract(after, window.offset)
        else:
            after = np.concatenate([seen[1:], seen[-1:]])[: len(now)]
            after = np.where(window.terminations[part][:, None], now, after)
        actions = as_actions(path, "actions", file["actions"][part])
        limits = {"limit": window.action_limit, "clip": window.clip}
        actions = bounded(path, "actions", actions, *window.bounds, **limits)[0]
        rewards = as_floats(path, "rewards", file["rewards"][part], 1)
        endings = window.terminations[part], window.truncations[part]
        rows = Transitions(now, actions, rewards, after, *endings)
        validate(rows, path, action_limit=window.action_limit, keys=FILE_KEYS)
    return rows
