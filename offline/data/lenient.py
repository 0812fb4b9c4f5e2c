"""Whatever can be read from a broken file, for `inspect_file` only; not fit to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.hdf5 import open_hdf5, plain_attributes, read_array
from jaxrl_rollouts.numpy_files import read_npz

from .arrays import FILE_KEYS
from .checks import as_floats
from .d4rl import label
from .keys import ENDS, SYNONYMS
from .neorl import is_neorl
from .transitions import Dataset, Transitions, file_sha256


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], dict]:
    try:
        with open_hdf5(path) as file:
            arrays = {}
            for key in list(file.keys()):
                try:
                    arrays[key] = read_array(path, file, key)
                except DataError:
                    continue
            return arrays, plain_attributes(file) | {"format": "d4rl"}
    except DataError:
        pass
    try:
        arrays = read_npz(path)
        return arrays, {"format": "neorl" if is_neorl(arrays) else "arrays"}
    except DataError:
        return {}, {"format": "unreadable"}


def _column(path: Path, found: dict[str, np.ndarray], field: str) -> np.ndarray | None:
    rank = 2 if field in ("observations", "actions", "next_observations") else 1
    key = FILE_KEYS.get(field, field)
    others = SYNONYMS[key] + (ENDS if field == "terminations" else ())
    for name in (key, *others):
        if name in found:
            try:
                values = found[name]
                values = values.astype(np.float32) if values.dtype == bool else values
                return as_floats(path, name, values, rank)
            except DataError:
                return None
    return None


def read_lenient(path: Path) -> Dataset:
    """The readable columns, cut to the shortest, the others zero; 0 rows if there is none.

    Flags that are not 0 or 1 count as set; the last row may follow from nothing.
    """
    arrays, attributes = _arrays(path)
    columns = {field: _column(path, arrays, field) for field in Transitions._fields}
    count = min((len(c) for c in columns.values() if c is not None), default=0)
    observations = columns["observations"]
    if observations is None:
        observations = np.zeros((count, 0), np.float32)
    following = columns["next_observations"]
    if following is None or following.shape[1] != observations.shape[1]:
        following = np.concatenate([observations[1:count], observations[count - 1 : count]])
    actions, rewards = columns["actions"], columns["rewards"]
    terminations, truncations = columns["terminations"], columns["truncations"]
    rows = Transitions(
        observations[:count],
        np.zeros((count, 0), np.float32) if actions is None else actions[:count],
        np.zeros(count, np.float32) if rewards is None else rewards[:count],
        following[:count],
        np.zeros(count, bool) if terminations is None else terminations[:count] != 0,
        np.zeros(count, bool) if truncations is None else truncations[:count] != 0,
    )
    environment = attributes.get("env_id")
    try:
        digest = file_sha256(path) if path.is_file() else ""  # a pipe would be waited for
    except OSError:
        digest = ""
    return Dataset(label(path), rows, environment, path, digest, attributes)
