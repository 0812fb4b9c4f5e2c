"""NeoRL's npz files: `obs`, `next_obs`, `action`, `reward`, `done`, `index`.

Qin et al. 2022, "NeoRL: A Near Real-World Benchmark for Offline Reinforcement Learning". `done` is
Gym's old flag and also marks the time limit, so it is split by episode length. `index` is found
with two meanings: NeoRL's package hands out episode *starts* (0, ...), its files store *ends*
(..., N); its first and last entry show which. Observations of its
HalfCheetah, Hopper and Walker2d have the x position first, which Gymnasium leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.numpy_files import read_npz
from jaxrl_rollouts.outside import find_offset, subtract

from ..environments.terminations import PLACED, WITH_POSITIONS, family
from .arrays import Assembled, dataset_of
from .bounds import bounded
from .checks import (
    as_actions,
    as_column,
    as_flags,
    as_floats,
    as_reals,
    check_limit,
    check_width,
    validate,
)
from .transitions import Dataset, Transitions

_FILE_KEYS = {
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_obs",
    "terminations": "done",
}
_ENVIRONMENTS = ("HalfCheetah-v3", "Hopper-v3", "Walker2d-v3")


def is_neorl(arrays: Mapping[str, Any]) -> bool:
    """Whether arrays are in NeoRL's layout: episodes in `index`, columns under its names."""
    return "index" in arrays and any(key in arrays for key in _FILE_KEYS.values())


def episode_ends(path: Path, index: np.ndarray, count: int) -> np.ndarray:
    """`[E]` int64, one past the last row of each episode, from starts or ends."""
    if index.dtype.kind not in "iu":
        raise DataError(path, "index", f"dtype {index.dtype}", "an integer dtype")
    index = as_column(path, "index", index, 1).astype(np.int64)
    bounds = np.unique(np.concatenate([[0], index, [count]]))
    outer = len(index) and (index[0] == 0 or index[-1] == count)
    increasing = bool((np.diff(index) > 0).all())
    if not outer or not increasing or bounds[0] < 0 or bounds[-1] > count:
        found = f"{len(index)} entries" + (f" from {index[0]} to {index[-1]}" if len(index) else "")
        expected = f"increasing episode starts from 0, or ends up to {count}"
        raise DataError(path, "index", found, expected)
    return bounds[1:]


def load_neorl(
    path: str | Path,
    *,
    name: str | None = None,
    max_episode_steps: int = 1000,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
) -> Dataset:
    """Read one npz file of NeoRL.

    Args:
        path: the npz file.
        name: label, by default `neorl/<file stem>`.
        max_episode_steps: time limit `T`; a `done` after `T` steps is a truncation, an earlier one
            a termination. 1000 for its MuJoCo tasks.
        action_low, action_high: see `load`.
        action_limit: see `validate`.
        clip: clip actions to the limit instead of refusing them.

    Raises:
        DataError: a missing key, an index that does not fit, a `done` inside an episode, an
            episode longer than `T`, or see `validate`.
        ConfigError: an argument out of range.
    """
    actions = {"action_low": action_low, "action_high": action_high, "action_limit": action_limit}
    path = Path(path)
    return from_neorl(
        read_npz(path), path, name=name, max_episode_steps=max_episode_steps, clip=clip, **actions
    )


def from_neorl(
    arrays: Mapping[str, Any],
    path: Path,
    *,
    name: str | None = None,
    max_episode_steps: int = 1000,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
) -> Dataset:
    """`load_neorl` for arrays that are from `path`, or from memory."""
    check_limit(action_limit)
    if max_episode_steps < 1:
        raise ConfigError("max_episode_steps", max_episode_steps, "at least 1")
    for key in (*_FILE_KEYS.values(), "index"):
        if key not in arrays:
            found = f"only {', '.join(sorted(arrays)) or 'nothing'}"
            hint = "read as NeoRL's layout, which has obs, action, reward, next_obs, done and index"
            raise DataError(path, key, found, f"an array {key}", hint)
    now, after = (as_reals(path, key, arrays[key], 2) for key in ("obs", "next_obs"))
    check_width(path, "next_obs", after, now.shape[1])
    offset = find_offset(path, "obs", now)
    observations = subtract(now, offset)
    done = as_flags(path, "done", arrays["done"])
    actions, low, high = bounded(
        path,
        "action",
        as_actions(path, "action", arrays["action"]),
        action_low,
        action_high,
        limit=action_limit,
        clip=clip,
    )
    rows = Transitions(
        observations,
        actions,
        as_floats(path, "reward", arrays["reward"], 1),
        subtract(after, offset),
        done,
        np.zeros_like(done),
    )
    validate(rows, path, action_limit=action_limit, keys=_FILE_KEYS)
    terminated, truncated = _flags(path, arrays["index"], done, max_episode_steps)
    rows = rows._replace(terminations=terminated, truncations=truncated)
    environment = next((e for e in _ENVIRONMENTS if path.stem.startswith(e)), None)
    if environment and observations.shape[1] == WITH_POSITIONS[family(environment)][1]:
        environment = f"{environment}?{PLACED}"
    attributes = {"format": "neorl", "successors": "stored", "max_episode_steps": max_episode_steps}
    found = Assembled(rows, np.arange(len(done)), low, high, {}, offset)
    return dataset_of(name or f"neorl/{path.stem}", found, environment, path, attributes)


def _flags(
    path: Path, index: Any, done: np.ndarray, max_episode_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Terminations and truncations `[N]` bool: a `done` at the time limit is a truncation."""
    ends, last, terminated = episode_ends(path, index, len(done)), np.zeros_like(done), done.copy()
    last[ends - 1] = True
    inside = np.flatnonzero(done & ~last)
    if len(inside):
        found = f"an end in row {inside[0]} ({len(inside)} such rows)"
        raise DataError(path, "done", found, "ends only where index has one")
    lengths = np.diff(ends, prepend=0)
    if lengths.max() > max_episode_steps:
        found = f"an episode of {lengths.max()} steps"
        expected = f"at most max_episode_steps, {max_episode_steps}"
        raise DataError(path, "index", found, expected, "give the task's max_episode_steps")
    terminated[ends - 1] &= lengths < max_episode_steps
    return terminated, last & ~terminated
