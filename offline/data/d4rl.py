"""D4RL's HDF5 layout, read and written without the `d4rl` package.

Keys: `observations` [N, S], `actions` [N, A], `rewards` [N], `terminals` [N], and where present
`timeouts` [N], `next_observations` [N, S], `infos/qpos`, `infos/qvel`. Fu et al. 2020,
"D4RL: Datasets for Deep Data-Driven Reinforcement Learning".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import open_hdf5, plain_attributes, read_array, write_hdf5

from .catalogue import BY_STEM, CATALOGUE
from .checks import as_flags, as_floats, check_limit, validate
from .successors import cut_by_length, is_frozen, mismatches, shift
from .transitions import Dataset, Transitions, clip_actions, file_sha256, take_rows

_INFOS = ("qpos", "qvel")
_FILE_KEYS = {"terminations": "terminals", "truncations": "timeouts"}


def label(path: Path, attributes: Mapping[str, Any]) -> str:
    """Dataset name for a file given by path.

    A stem that only D4RL uses (`hopper_medium-v2`) names that dataset. A file that says which
    environment it is from and is called after it is one of ours, `jr/...`: same layout, other
    data, so it must not pass for D4RL's.
    """
    if path.stem in CATALOGUE:
        return path.stem
    if path.stem in BY_STEM:
        return BY_STEM[path.stem]
    family = str(attributes.get("env_id", "")).split("-")[0].lower()
    if family and path.stem.split("_")[0] == family:
        return f"jr/{path.stem.replace('_', '-')}"
    return path.stem


def _steps_limit(path: Path, argument: int | None, attributes: Mapping[str, Any]) -> int | None:
    if argument is not None:
        if argument < 1:
            raise ConfigError("max_episode_steps", argument, "at least 1")
        return argument
    stored = attributes.get("max_episode_steps")
    if stored is None:
        return None
    if isinstance(stored, bool) or not isinstance(stored, int) or stored < 1:
        raise DataError(path, "attribute max_episode_steps", repr(stored), "an integer from 1")
    return stored


def _truncations(
    path: Path, file: h5py.File, terminations: np.ndarray, limit: int | None
) -> np.ndarray:
    if "timeouts" in file:
        return as_flags(path, "timeouts", read_array(path, file, "timeouts"))
    if limit is not None:
        return cut_by_length(terminations, limit)
    if terminations.any() and "next_observations" in file:
        return np.zeros_like(terminations)
    # Shifting across an unmarked time limit would invent transitions, so terminals do not suffice.
    expected = "episode ends that can be told"
    raise DataError(path, "timeouts", "no such key", expected, "give max_episode_steps")


def _count_mismatches(path: Path, rows: Transitions) -> int:
    ending = np.asarray(rows.terminations | rows.truncations)
    here, there = np.asarray(rows.next_observations), np.asarray(rows.observations)
    count = len(mismatches(there, here, ending))
    inner = int((~ending[:-1]).sum())
    # A few are a collector's seams; most of them mean that one of the two columns is wrong.
    if 2 * count > inner:
        warnings.warn(
            f"{path}: next_observations: found {count} of {inner} rows inside episodes that differ "
            "from the row that follows; observations or next_observations may be wrong",
            stacklevel=3,
        )
    return count


def _info(path: Path, file: h5py.File, key: str, rows: int) -> np.ndarray:
    values = as_floats(path, f"infos/{key}", read_array(path, file, f"infos/{key}"), 2)
    if len(values) != rows:
        raise DataError(path, f"infos/{key}", f"{len(values)} rows", f"{rows} rows")
    return values


def load_d4rl(
    path: str | Path,
    *,
    name: str | None = None,
    max_episode_steps: int | None = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    infos: bool = False,
) -> Dataset:
    """Read a file in D4RL's layout.

    Args:
        path: the HDF5 file.
        name: label; by default from the file's name (see `label`).
        max_episode_steps: time limit that cuts episodes where the file has no `timeouts`;
            by default the file's attribute of that name, else D4RL's for D4RL's names.
        action_limit: see `validate`.
        clip: clip actions to the limit instead of refusing them.
        infos: also read `infos/qpos` and `infos/qvel`.

    Returns:
        A dataset whose `next_observations` are valid on every row. Without that key in the file
        they are the following rows and every row at an ending is dropped (`successors`).

    Warns:
        UserWarning: most stored successors differ from the row that follows; their number is
            `attributes["successor_mismatches"]`.

    Raises:
        DataError: see `validate`; a file that is missing, not HDF5, cut off, or lacks a key; and
            observations that never move inside an episode although their successors do.
        ConfigError: an argument out of range.
    """
    path = Path(path)
    check_limit(action_limit)
    with open_hdf5(path) as file:
        attributes = plain_attributes(file)
        name = name or label(path, attributes)
        limit = _steps_limit(path, max_episode_steps, attributes)
        if limit is None and name in CATALOGUE:
            limit = CATALOGUE[name].max_episode_steps
        observations = as_floats(path, "observations", read_array(path, file, "observations"), 2)
        actions = as_floats(path, "actions", read_array(path, file, "actions"), 2)
        rewards = as_floats(path, "rewards", read_array(path, file, "rewards"), 1)
        terminations = as_flags(path, "terminals", read_array(path, file, "terminals"))
        truncations = _truncations(path, file, terminations, limit)
        stored = "next_observations" in file
        following = observations
        if stored:
            raw = read_array(path, file, "next_observations")
            following = as_floats(path, "next_observations", raw, 2)
        extra = {key: _info(path, file, key, len(observations)) for key in _INFOS if infos}
        rows = Transitions(observations, actions, rewards, following, terminations, truncations)
        if clip and action_limit is not None:
            rows = clip_actions(rows, action_limit)
        validate(rows, path, action_limit=action_limit, keys=_FILE_KEYS)
        if stored and is_frozen(rows):  # compares columns, so they must be checked by now
            expected = "observations that move as next_observations do"
            hint = "the collector must store copies of its environment's observations, not views"
            raise DataError(path, "observations", "one and the same all episode", expected, hint)
    attributes |= {"format": "d4rl", "successors": "stored" if stored else "shifted"}
    if not stored:
        shifted = shift(observations, terminations, truncations)
        if not len(shifted.rows):
            expected = "a row whose successor is known"
            raise DataError(path, "next_observations", "no such key", expected)
        rows = take_rows(rows, shifted.rows)
        rows = rows._replace(
            next_observations=shifted.next_observations, truncations=shifted.truncations
        )
        extra = {key: values[shifted.rows] for key, values in extra.items()}
        attributes |= {f"dropped_{key}": n for key, n in shifted.dropped._asdict().items()}
    if stored:
        attributes |= {"successor_mismatches": _count_mismatches(path, rows)}
    known = CATALOGUE[name].environment if name in CATALOGUE else None
    environment = str(attributes["env_id"]) if "env_id" in attributes else known
    return Dataset(name, rows, environment, path, file_sha256(path), attributes, extra)


def write_d4rl(
    path: str | Path,
    transitions: Transitions,
    attributes: Mapping[str, Any] | None = None,
    infos: Mapping[str, np.ndarray] | None = None,
    *,
    action_limit: float | None = 1.0,
) -> None:
    """Write rows in D4RL's layout; `load_d4rl` gives the same bits back.

    The file appears whole or not at all: it is written beside its place and renamed. The same
    arguments give the same bytes.

    Args:
        path: the HDF5 file to make or replace; its folder must exist.
        transitions: rows that pass `validate`.
        attributes: file attributes: numbers, strings and lists of them.
        infos: `[N, ...]` arrays stored as `infos/<key>`.
        action_limit: see `validate`.

    Raises:
        DataError: rows, infos or attributes that cannot be stored, or a place that cannot be
            written to.
    """
    path = Path(path)
    validate(transitions, path, action_limit=action_limit, keys=_FILE_KEYS)
    arrays = {
        _FILE_KEYS.get(key, key): np.asarray(values)
        for key, values in transitions._asdict().items()
    }
    for key, values in (infos or {}).items():
        arrays[f"infos/{key}"] = np.asarray(values)
        shape = arrays[f"infos/{key}"].shape
        if shape[:1] != arrays["rewards"].shape:
            expected = f"{len(arrays['rewards'])} rows, as observations"
            raise DataError(path, f"infos/{key}", f"shape {shape}", expected)
    write_hdf5(path, arrays, attributes or {})
