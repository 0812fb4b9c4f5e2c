"""Minari datasets, from the local store or a folder; nothing is downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError, MissingExtraError, one_line, printable
from jaxrl_rollouts.foreign import check_file
from jaxrl_rollouts.hdf5 import check_inside, open_hdf5

from .bounds import bounded
from .checks import as_flags, as_floats, check_limit, validate
from .transitions import Dataset, Transitions, file_sha256


def is_minari(candidate: Any) -> bool:
    """Whether this is a dataset object of the package `minari` (which need not be there)."""
    return all(hasattr(candidate, name) for name in ("iterate_episodes", "storage", "spec"))


def need_minari() -> Any:
    """The package, or the `MissingExtraError` that says how to get it."""
    try:
        import minari
    except ImportError:
        raise MissingExtraError("loading a Minari dataset", "minari", "minari") from None
    return minari


def _open(name_or_path: str | Path) -> Any:
    minari = need_minari()
    path = Path(name_or_path)
    if not path.is_dir():
        path = minari_store() / path
    data = path / "data" if (path / "data").is_dir() else path
    if not data.is_dir():
        hint = f"fetch it with: minari download {name_or_path}"
        expected = "a Minari dataset on this machine"
        raise DataError(name_or_path, "dataset", "nothing", expected, hint)
    _check_folder(data)
    try:
        return minari.MinariDataset(str(data))
    except Exception as error:  # minari raises bare asserts, KeyError, ValueError on bad metadata
        expected = "a readable Minari dataset"
        raise DataError(name_or_path, "metadata", one_line(error), expected) from error


def minari_store() -> Path:
    """The folder Minari keeps its datasets in."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def _check_folder(data: Path) -> None:
    """Refuse what the package would follow, run or wait for, before it sees the folder.

    It makes the environment where a space is not described, by whatever function the file names.

    Raises:
        DataError: no such file, another format, no spaces, or an HDF5 file that is not whole.
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
        raise DataError(file, "data_format", found, "hdf5")
    for key in ("observation_space", "action_space"):
        if not isinstance(facts.get(key), str):
            found = type(facts[key]).__name__ if key in facts else "nothing"
            hint = "a dataset that you trust can be opened first: load(minari.load_dataset(...))"
            raise DataError(file, key, found, "a described space", hint)
    path = data / "main_data.hdf5"
    with open_hdf5(path) as stored:
        check_inside(path, stored, whole=True)
        count = facts.get("total_episodes")
        if not isinstance(count, int) or not 0 <= count <= len(stored):
            expected = f"a number up to the {len(stored)} in {path.name}"
            raise DataError(file, "total_episodes", count, expected)


def _flat(source: str, key: str, values: Any) -> tuple[np.ndarray, list[str]]:
    """One array of columns, and the names of the parts of a dict observation in their order."""
    if not isinstance(values, dict):
        return as_floats(source, key, values, 2), []
    names = sorted(values)  # Gymnasium's own order of Dict spaces
    parts = [as_floats(source, f"{key}.{name}", values[name], 2) for name in names]
    return np.concatenate(parts, axis=1), names


def _rows(source: str, episode: Any) -> tuple[Transitions, list[str]]:
    at = f"episode_{episode.id}"
    states, names = _flat(source, f"{at}/observations", episode.observations)
    rewards = as_floats(source, f"{at}/rewards", episode.rewards, 1)
    count = len(rewards)
    if len(states) != count + 1:
        expected = f"{count + 1} rows, one more than rewards"
        raise DataError(source, f"{at}/observations", f"{len(states)} rows", expected)
    actions = as_floats(source, f"{at}/actions", episode.actions, 2)
    terminations = as_flags(source, f"{at}/terminations", episode.terminations)
    truncations = as_flags(source, f"{at}/truncations", episode.truncations)
    lengths = {"actions": actions, "terminations": terminations, "truncations": truncations}
    for key, values in lengths.items():
        if len(values) != count:
            expected = f"{count} rows, as rewards"
            raise DataError(source, f"{at}/{key}", f"{len(values)} rows", expected)
    return (
        Transitions(states[:-1], actions, rewards, states[1:], terminations, truncations),
        names,
    )


def _episodes(source: str, dataset: Any) -> Iterator[Any]:
    try:
        yield from dataset.iterate_episodes()
    except DataError:
        raise
    except Exception as error:  # a broken file shows as KeyError, OSError or AssertionError
        expected = "readable episodes"
        raise DataError(source, "episodes", one_line(error), expected) from error


def _bounds(source: str, dataset: Any) -> tuple[Any, Any]:
    """Bounds of the action space; None where it is unbounded, as some recordings are.

    Raises:
        DataError: actions are not vectors of real numbers, or observations are images.
    """
    space, seen = dataset.action_space, dataset.observation_space
    found = type(space).__name__
    if not hasattr(space, "low") or space.dtype.kind != "f":
        hint = "discrete actions are not supported, only vectors of real numbers"
        raise DataError(source, "action_space", found, "a Box of real numbers", hint)
    if len(getattr(seen, "shape", None) or ()) > 1:
        hint = "images are not supported, only vectors of real numbers"
        raise DataError(source, "observation_space", f"shape {seen.shape}", "[S]", hint)
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return None, None
    return space.low, space.high


def load_minari(
    source: str | Path | Any,
    *,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
) -> Dataset:
    """Read a local Minari dataset.

    Observations have one row more than actions, so every step has its true successor. Dict
    observations are concatenated in sorted order of their names (`attributes["observation_keys"]`).
    An episode recorded without an ending counts as truncated at its last row.

    Args:
        source: Minari id (`D4RL/door/human-v2`), the dataset's folder, or a `MinariDataset`.
        action_low, action_high: see `load`; by default those of its action space.
        action_limit: see `validate`.
        clip: clip actions to the limit instead of refusing them.

    Raises:
        MissingExtraError: `minari` is not installed.
        DataError: not on this machine, unreadable, discrete or image spaces, or see `validate`.
    """
    check_limit(action_limit)
    dataset = source if is_minari(source) else _open(source)
    source, columns, names = dataset.id if is_minari(source) else str(source), [], []
    if action_low is None and action_high is None:
        action_low, action_high = _bounds(source, dataset)
    unmarked = 0
    for episode in _episodes(source, dataset):
        rows, names = _rows(source, episode)
        if not len(rows.rewards):
            continue
        if not (rows.terminations[-1] or rows.truncations[-1]):
            rows.truncations[-1] = True  # else the next episode would seem to follow
            unmarked += 1
        columns.append(rows)
    if not columns:
        raise DataError(source, "episodes", "0 steps", "at least one step")
    widths = {(c.observations.shape[1], c.actions.shape[1]) for c in columns}
    if len(widths) > 1:
        raise DataError(source, "episodes", f"widths {sorted(widths)}", "equal columns throughout")
    rows = Transitions(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    actions, low, high = bounded(
        source, "actions", rows.actions, action_low, action_high, limit=action_limit, clip=clip
    )
    rows = rows._replace(actions=actions)
    validate(rows, source, action_limit=action_limit)
    attributes = {"format": "minari", "successors": "stored", "episodes_cut": unmarked}
    attributes |= {"minari_version": dataset.minari_version}
    attributes |= {"observation_keys": names} if names else {}
    environment = printable(str(dataset.env_spec.id)) if dataset.env_spec is not None else None
    path = Path(dataset.storage.data_path)
    sha256 = file_sha256(path)
    return Dataset(
        printable(dataset.id),
        rows,
        environment,
        path,
        sha256,
        attributes,
        action_low=low,
        action_high=high,
    )
