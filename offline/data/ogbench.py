"""OGBench's npz files, and the dictionaries its package hands out.

Park et al. 2025, "OGBench: Benchmarking Offline Goal-Conditioned RL". A file has `observations`,
`actions` and `terminals` (and `qpos`, `qvel` for relabelling). `terminals` mark where trajectories
end, and that is a time limit, never an end of the task. The dictionaries of its single-task
environments add `rewards`, `masks` (0 where the task is done, so that no value follows) and
`next_observations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import assemble, dataset_of
from .checks import as_flags
from .transitions import Dataset


def is_ogbench(arrays: Mapping[str, Any]) -> bool:
    """Whether `terminals` in these arrays mean what they mean in OGBench."""
    plain = {"observations", "actions", "terminals"} <= set(arrays) and "timeouts" not in arrays
    return plain and ("masks" in arrays or "rewards" not in arrays)


def from_ogbench(
    arrays: Mapping[str, Any],
    source: Path,
    *,
    name: str,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
) -> Dataset:
    """A dataset out of OGBench's arrays.

    Without `rewards` all of them are 0 and `attributes["rewards"]` is "none": such a dataset can be
    looked at and imitated, and world models can be fitted to it.
    """
    ends = as_flags(source, "terminals", arrays["terminals"])
    over = np.zeros_like(ends)
    if "masks" in arrays:
        over = ~as_flags(source, "masks", arrays["masks"])
    missing = "rewards" not in arrays
    given = {key: arrays[key] for key in ("observations", "actions")}
    if "next_observations" in arrays:
        given["next_observations"] = arrays["next_observations"]
    given |= {
        "rewards": np.zeros(len(ends), np.float32) if missing else arrays["rewards"],
        "terminals": over,
        "timeouts": ends & ~over if len(over) == len(ends) else ends,
    }
    done = assemble(
        source,
        given,
        action_low=action_low,
        action_high=action_high,
        action_limit=action_limit,
        clip=clip,
    )
    facts = {"format": "ogbench", **done.facts} | ({"rewards": "none"} if missing else {})
    return dataset_of(name, done, None, source, facts)
