"""D4RL's HDF5 layout, read and written without the `d4rl` package.

The arrays of `arrays`, and where present `infos/qpos`, `infos/qvel`. Attributes that mean
something: `env_id`, `max_episode_steps`, and `action_low`, `action_high` where the actions are
not in [-1, 1]. Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import Stream, must_stream
from jaxrl_rollouts.hdf5 import open_hdf5, plain_attributes, read_array, write_hdf5

from .arrays import FILE_KEYS, OPTIONAL, PARTS, REQUIRED, assemble, steps_limit
from .bounds import from_unit, read_bounds
from .catalogue import BY_STEM, CATALOGUE
from .checks import as_floats, check_limit, validate
from .keys import Renamed, View, check_present, find_names, naming, rename
from .streamed import rows_bytes, stream_d4rl
from .transitions import Dataset, Transitions, file_sha256

_INFOS = ("qpos", "qvel")


def label(path: Path) -> str:
    """Dataset name for a file given by path: a stem that only D4RL uses (`hopper_medium-v2`) names
    that dataset."""
    return path.stem if path.stem in CATALOGUE else BY_STEM.get(path.stem, path.stem)


def _read(path: Path, file: h5py.File, key: str) -> np.ndarray:
    if isinstance(file.get(key), h5py.Group):
        raise DataError(path, key, "a group", "one array", PARTS)
    return read_array(path, file, key)


def _arrays(
    path: Path, file: h5py.File, names: Renamed, limit: int | None
) -> tuple[dict[str, Any], np.ndarray | None]:
    """The arrays of a file under our names, and `Renamed.rows`."""
    wanted = [names.names.get(key, key) for key in (*REQUIRED, *OPTIONAL)]
    wanted += [names.ends, *names.steps.values()]
    read = {key: _read(path, file, key) for key in wanted if key and key in file}
    found, renamed = rename(path, read, limit)
    groups = {str(key): " (a group)" * isinstance(file.get(key), h5py.Group) for key in file}
    check_present(path, found, (key + of for key, of in groups.items()))
    return found, renamed.rows


def _columns(path: Path, attributes: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Names of the observation's entries, where the file has some."""
    names = attributes.get("observation_columns", ())
    if not names:
        return ()
    names = tuple(map(str, names)) if isinstance(names, list | tuple) else (str(names),)
    if len(names) != count or len(set(names)) != count:
        found = f"{len(set(names))} different names"
        raise DataError(path, "attribute observation_columns", found, f"{count}, one a column")
    return names


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
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    infos: bool = False,
    stream: Stream = "never",
    cut_mismatches: bool = False,
) -> Dataset:
    """Read a file in D4RL's layout.

    Args:
        path: the HDF5 file.
        name: label; by default from the file's name (see `label`).
        max_episode_steps: time limit that cuts episodes where the file has no `timeouts`;
            by default the file's attribute of that name, else D4RL's for D4RL's names.
        action_low, action_high: bounds of the file's actions (see `load`); by default the file's
            attributes of these names.
        action_limit: see `validate`.
        clip: clip actions to the bounds, or the limit, instead of refusing them.
        infos: also read `infos/qpos` and `infos/qvel`.
        stream: leave the rows on the disk (`must_stream`).
        cut_mismatches: see `load`; such rows are kept in memory.

    Returns:
        A dataset. Without `next_observations` in the file they are the following rows, rows that
        were cut are dropped, and ends stand without one (`successors`).

    Warns:
        UserWarning: stored successors differ from the row that follows; their number is
            `attributes["successor_mismatches"]`.

    Raises:
        DataError: see `validate`; a file that is missing, not HDF5, cut off, or lacks a key; and
            observations that never move inside an episode although their successors do.
        ConfigError: an argument out of range.
    """
    path = Path(path)
    check_limit(action_limit)
    with open_hdf5(path) as file:
        sha256 = file_sha256(path)
        attributes = plain_attributes(file)
        name = name or label(path)
        known = CATALOGUE.get(name)
        limit = steps_limit(path, max_episode_steps, attributes.get("max_episode_steps"))
        limit = known.max_episode_steps if limit is None and known else limit
        options: dict[str, Any] = {"action_low": action_low, "action_high": action_high}
        stored = action_low is None and action_high is None
        if stored:
            options = {key: attributes.get(key) for key in options}
        options |= {"limit": limit, "action_limit": action_limit, "clip": clip}
        rows_file, steps, names = None, None, find_names(path, file.keys())
        view: Any = View(file, names.names)
        try:
            with naming(names):
                parts = not (names.worked_out or cut_mismatches)
                if parts and must_stream(stream, rows_bytes(view)):
                    done, rows_file = stream_d4rl(path, view, sha256, **options)
                else:
                    arrays, steps = _arrays(path, file, names, limit)
                    done = assemble(path, arrays, cut_mismatches=cut_mismatches, **options)
        except ConfigError as error:
            if not stored:
                raise
            key = f"attribute {error.setting}"
            raise DataError(path, key, error.found, error.expected) from error
        count = len(view["rewards"])
        kept = done.kept if steps is None else steps[done.kept]
        extra = {key: _info(path, file, key, count)[kept] for key in _INFOS if infos}
    attributes |= {"format": "d4rl", **done.facts, **names.facts}
    return Dataset(
        name,
        done.rows,
        str(attributes["env_id"]) if "env_id" in attributes else known and known.environment,
        path,
        sha256,
        attributes,
        extra,
        done.action_low,
        done.action_high,
        rows_file,
        _columns(path, attributes, done.rows.observations.shape[1]),
        done.offset,
    )


def write_d4rl(
    path: str | Path,
    transitions: Transitions,
    attributes: Mapping[str, Any] | None = None,
    infos: Mapping[str, np.ndarray] | None = None,
    *,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    offset: Any = (),
) -> None:
    """Write rows in D4RL's layout; `load_d4rl` gives the same bits back.

    The file appears whole or not at all: it is written beside its place and renamed. The same
    arguments give the same bytes.

    Args:
        path: the HDF5 file to make or replace; its folder must exist.
        transitions: rows that pass `validate`.
        attributes: file attributes: numbers, strings and lists of them.
        infos: `[N, ...]` arrays stored as `infos/<key>`.
        action_low, action_high: the environment's own bounds: actions are written in its units,
            the bounds as attributes, and `load_d4rl` undoes it (up to rounding).
        action_limit: see `validate`.
        offset: `[S]`, of the observations (`Dataset.offset`), which are written with it as float64.

    Raises:
        DataError: rows, infos or attributes that cannot be stored, or a place that cannot be
            written to.
        ConfigError: bounds that are none.
    """
    path, attributes = Path(path), dict(attributes or {})
    validate(transitions, path, action_limit=action_limit, keys=FILE_KEYS)
    bounds = read_bounds(action_low, action_high, transitions.actions.shape[1])
    if bounds is not None:
        actions = from_unit(np.asarray(transitions.actions), *bounds)
        transitions = transitions._replace(actions=actions)
        attributes |= {"action_low": bounds[0].tolist(), "action_high": bounds[1].tolist()}
    arrays = {
        FILE_KEYS.get(key, key): np.asarray(values) for key, values in transitions._asdict().items()
    }
    if np.any(offset):
        for key in ("observations", "next_observations"):
            arrays[key] = arrays[key].astype(np.float64) + offset
    for key, values in (infos or {}).items():
        arrays[f"infos/{key}"] = np.asarray(values)
        shape = arrays[f"infos/{key}"].shape
        if shape[:1] != arrays["rewards"].shape:
            expected = f"{len(arrays['rewards'])} rows, as observations"
            raise DataError(path, f"infos/{key}", f"shape {shape}", expected)
    write_hdf5(path, arrays, attributes)
