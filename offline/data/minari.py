"""Minari datasets, from the local store or a folder; nothing is downloaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from jaxrl_rollouts.errors import DataError, MissingExtraError, one_line, printable
from jaxrl_rollouts.feeds import Stream, must_stream
from jaxrl_rollouts.foreign import check_file, expanded
from jaxrl_rollouts.hdf5 import check_inside, open_hdf5
from jaxrl_rollouts.outside import find_offset, subtract

from ..environments.spaces import (
    UnsupportedSpaceError,
    column_names,
    flatten,
    is_flat,
)
from .bounds import bounded, read_bounds
from .checks import as_actions, as_flags, as_floats, as_reals, check_limit, validate
from .references import OWN
from .streamed import stream_episodes, streamed_less
from .transitions import Dataset, Transitions, file_sha256


def is_minari(candidate: Any) -> bool:
    """Whether this is a dataset object of the package `minari` (which need not be there)."""
    return all(hasattr(candidate, name) for name in ("iterate_episodes", "storage", "spec"))


def need_minari() -> Any:
    """The package, or the `MissingExtraError` with the install command."""
    try:
        import minari
    except ImportError:
        raise MissingExtraError("loading a Minari dataset", "minari", "minari") from None
    return minari


def _open(name_or_path: str | Path, *, together: bool) -> Any:
    minari = need_minari()
    path = Path(name_or_path)
    if not path.is_dir():
        path = minari_store() / path
    data = path / "data" if (path / "data").is_dir() else path
    if not data.is_dir():
        hint = f"fetch it with: minari download {name_or_path}"
        expected = "a Minari dataset on this machine"
        raise DataError(name_or_path, "dataset", "nothing", expected, hint)
    _check_folder(data, together)
    try:
        return minari.MinariDataset(str(data))
    except Exception as error:  # minari raises bare asserts, KeyError, ValueError on bad metadata
        expected = "a readable Minari dataset"
        raise DataError(name_or_path, "metadata", one_line(error), expected) from error


def minari_store() -> Path:
    """The folder Minari keeps its datasets in."""
    return expanded(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets")


def _check_folder(data: Path, together: bool) -> None:
    """Refuse what the package would follow, run or wait for, before it sees the folder.

    It makes the environment where a space is not described, by whatever function the file names.
    """
    file = data / "metadata.json"
    check_file(file, "a Minari dataset's metadata")
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(file, "file", one_line(error), "a JSON file") from error
    facts = facts if isinstance(facts, dict) else {}
    if facts.get("data_format") != "hdf5":
        found = facts.get("data_format", "nothing")
        hint = "a dataset that you trust can be opened first: load(minari.load_dataset(id))"
        raise DataError(file, "data_format", found, "hdf5", hint)
    for key in ("observation_space", "action_space"):
        if not isinstance(facts.get(key), str):
            found = type(facts[key]).__name__ if key in facts else "nothing"
            hint = "a dataset that you trust can be opened first: load(minari.load_dataset(...))"
            raise DataError(file, key, found, "a described space", hint)
    path = data / "main_data.hdf5"
    with open_hdf5(path) as stored:
        check_inside(path, stored, whole=True, together=together)
        count = facts.get("total_episodes")
        if not isinstance(count, int) or not 0 <= count <= len(stored):
            expected = f"a number up to the {len(stored)} in {path.name}"
            raise DataError(file, "total_episodes", count, expected)


def _flat(source: str, key: str, space: Any, values: Any) -> np.ndarray:
    """One array of columns, as the space orders them."""
    if is_flat(space):
        return as_reals(source, key, values, 2)
    try:
        return as_reals(source, key, flatten(space, values, rows=True), 2)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        expected = "values of the dataset's observation space"
        raise DataError(source, key, one_line(error), expected) from error


def _rows(source: str, space: Any, episode: Any) -> Transitions:
    """The rows of an episode, numbers of the dtypes that are stored."""
    at = f"episode_{episode.id}"
    states = _flat(source, f"{at}/observations", space, episode.observations)
    rewards = as_reals(source, f"{at}/rewards", episode.rewards, 1)
    count = len(rewards)
    if len(states) != count + 1:
        expected = f"{count + 1} rows, one more than rewards"
        hint = (
            "to leave the episode out: load(minari.load_dataset(id).filter_episodes("
            f"lambda episode: episode.id != {episode.id}))"
        )
        raise DataError(source, f"{at}/observations", f"{len(states)} rows", expected, hint)
    actions = as_reals(source, f"{at}/actions", episode.actions, 2)
    terminations = as_flags(source, f"{at}/terminations", episode.terminations)
    truncations = as_flags(source, f"{at}/truncations", episode.truncations)
    lengths = {"actions": actions, "terminations": terminations, "truncations": truncations}
    for key, values in lengths.items():
        if len(values) != count:
            expected = f"{count} rows, as rewards"
            raise DataError(source, f"{at}/{key}", f"{len(values)} rows", expected)
    return Transitions(states[:-1], actions, rewards, states[1:], terminations, truncations)


class _Episode(NamedTuple):
    """Rows, and whether the end had to be marked."""

    rows: Transitions
    unmarked: bool


def _episodes(source: str, space: Any, dataset: Any) -> Iterator[_Episode]:
    """Episodes that have a row, each ending at its last one, and all as wide."""
    width: Any = None
    try:
        for episode in dataset.iterate_episodes():
            rows = _rows(source, space, episode)
            if not len(rows.rewards):
                continue
            own = rows.observations.shape[1], rows.actions.shape[1]
            if width not in (None, own):
                found = f"widths {sorted((width, own))}"
                raise DataError(source, "episodes", found, "equal columns throughout")
            width, unmarked = own, not (rows.terminations[-1] or rows.truncations[-1])
            # Else the next episode would seem to follow.
            rows.truncations[-1] |= unmarked
            yield _Episode(rows, unmarked)
    except DataError:
        raise
    except Exception as error:  # a broken file shows as KeyError, OSError or AssertionError
        expected = "readable episodes"
        raise DataError(source, "episodes", one_line(error), expected) from error


def _rows_bytes(data: Path) -> int:
    """What the rows in a dataset's folder take as float32; 0 where they are in another format."""
    path, counted = data / "main_data.hdf5", {"observations": 2, "actions": 1, "rewards": 1}
    sizes: list[int] = []

    def count(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            sizes.append(4 * (node.size or 0) * counted.get([*name.split("/"), ""][1], 0))

    if path.is_file():
        with open_hdf5(path) as file:
            file.visititems(count)
    return sum(sizes)


def _metadata(path: Path) -> dict[str, Any]:
    """Metadata of a dataset's folder; empty where it cannot be read."""
    try:
        facts = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _attributes(path: Path, names: Sequence[str], version: str, cut: int) -> dict[str, Any]:
    """What is kept of a recording beside its rows; `cut` of its episodes have no ending."""
    facts = _metadata(path)
    attributes = {"format": "minari", "successors": "stored", "episodes_cut": cut}
    attributes |= {"minari_version": version}
    if names:
        keys = dict.fromkeys(re.split(r"[.\[]", n)[0] for n in names)
        attributes |= {"observation_columns": list(names), "observation_keys": list(keys)}
    return attributes | {k: facts[k] for k in OWN if isinstance(facts.get(k), int | float)}


def check_spaces(source: str, seen: Any, acts: Any) -> tuple[tuple[str, ...], tuple[Any, Any]]:
    """Names of the columns, () of a plain vector; and the bounds of the actions, None where they
    are unbounded, as some recordings are.
    """
    try:
        names = column_names(seen)
    except UnsupportedSpaceError as error:
        hint = "only vectors of real numbers are supported: flatten or encode that part"
        expected = "a Box of one axis, Discrete, or a Dict or Tuple of them"
        raise DataError(source, "observation_space", str(error), expected, hint) from None
    kind = type(acts).__name__
    if not hasattr(acts, "low") or acts.dtype.kind != "f":
        hint = "actions of several parts are not supported, only vectors of real numbers"
        if hasattr(acts, "low") or "Discrete" in kind or kind == "MultiBinary":
            hint = "discrete actions are not supported, only vectors of real numbers"
        found = f"{kind} of {acts.dtype}" if hasattr(acts, "low") else f"a {kind} space"
        raise DataError(source, "action_space", found, "a Box of real numbers", hint)
    unbounded = not (np.isfinite(acts.low).all() and np.isfinite(acts.high).all())
    bounds = (None, None) if unbounded else (acts.low, acts.high)
    return () if is_flat(seen) else names, bounds


def _cast(
    origin: str,
    rows: Transitions,
    offset: np.ndarray | None,
    low: Any,
    high: Any,
    *,
    limit: float | None,
    clip: bool,
) -> Transitions:
    """Rows of stored dtypes as `Transitions` has them, checked."""
    actions = as_actions(origin, "actions", rows.actions)
    rows = Transitions(
        subtract(rows.observations, offset),
        bounded(origin, "actions", actions, low, high, limit=limit, clip=clip)[0],
        as_floats(origin, "rewards", rows.rewards, 1),
        subtract(rows.next_observations, offset),
        *rows[4:],
    )
    validate(rows, origin, action_limit=limit)
    return rows


def load_minari(
    source: str | Path | Any,
    *,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    stream: Stream = "never",
) -> Dataset:
    """Read a local Minari dataset.

    Observations have one row more than actions, so every step has its true successor. The parts of
    a Dict, Tuple or Discrete space become columns with names (`Dataset.columns`), in the order of
    the dataset's own space.
    An episode recorded without an ending counts as truncated at its last row.

    Args:
        source: Minari id (`D4RL/door/human-v2`), the dataset's folder, or a `MinariDataset`.
        action_low, action_high: see `load`; by default those of its action space.
        action_limit: see `validate`.
        clip: clip actions to the limit instead of refusing them.
        stream: leave the rows on the disk (`must_stream`); they are read an episode at a time.

    Raises:
        MissingExtraError: `minari` is not installed.
        DataError: not on this machine, unreadable, discrete or image spaces, or see `validate`.
    """
    check_limit(action_limit)
    together = stream == "never"
    dataset: Any = source if is_minari(source) else _open(source, together=together)
    origin: str = dataset.id if is_minari(source) else str(source)
    path, unmarked = Path(dataset.storage.data_path), []
    space = dataset.observation_space
    names, bounds = check_spaces(origin, space, dataset.action_space)
    if action_low is None and action_high is None:
        action_low, action_high = bounds
    sha256, rows_file, offset = file_sha256(path), None, None
    limits = {"limit": action_limit, "clip": clip}

    def episodes() -> Iterator[Transitions]:
        unmarked.clear()
        for episode in _episodes(origin, space, dataset):
            unmarked.append(episode.unmarked)
            yield episode.rows

    def checked(rows: Transitions) -> Transitions:
        return _cast(origin, rows, offset, action_low, action_high, **limits)

    if must_stream(stream, _rows_bytes(path)):
        # Of the first episode: all of them would have to be read once more.
        first = next(episodes(), None)
        offset = first and find_offset(origin, "observations", first.observations)
        chosen = dataset.episode_indices.tolist()
        options = f"minari {names} {chosen} {action_low} {action_high} {limits}"
        options += streamed_less(offset)
        rows, rows_file = stream_episodes(origin, sha256, options, episodes, checked)
    else:
        columns = list(episodes())
        if not columns:
            raise DataError(origin, "episodes", "0 steps", "at least one step")
        rows = Transitions(*(np.concatenate(column) for column in zip(*columns, strict=True)))
        offset = find_offset(origin, "observations", rows.observations)
        rows = checked(rows)
    low, high = read_bounds(action_low, action_high, rows.actions.shape[1]) or (None, None)
    attributes = _attributes(path, names, dataset.minari_version, sum(unmarked))
    environment = printable(str(dataset.env_spec.id)) if dataset.env_spec is not None else None
    what = printable(dataset.id), rows, environment, path, sha256, attributes
    return Dataset(*what, {}, low, high, rows_file, names, offset)
