"""The file of a dataset that MuJoCo replays: actions, episode lengths, and a state every 20 steps.

A tape of 100,000 transitions takes about 1.5 MB, so the benchmark's datasets travel inside the
package and are the same rows on every machine. Actions are float16, and the simulator was given
exactly these. States are float64 positions and velocities, since the simulator amplifies rounding
errors within an episode; the replay begins anew at each of them. Identity is the file's sha256.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import DataError, one_line
from jaxrl_rollouts.numpy_files import read_npz
from jaxrl_rollouts.record.files import write_atomically

from . import SUFFIX

EVERY = 20  # steps from one snapshot to the next, within an episode
FOLDER = Path(__file__).with_name("mini")
ARRAYS = ("actions", "lengths", "states", "returns", "facts")


class Tape(NamedTuple):
    """A dataset as its simulator's inputs; `N` rows, `E` episodes, `K` snapshots.

    Attributes:
        environment: simulator of the replay, `mujoco/Hopper-v4`.
        actions: `[N, A]` float16, in [-1, 1].
        lengths: `[E]` int32, rows of each episode.
        states: `[K, Q + V]` float64, positions and velocities before rows 0, 20, 40, ... of each
            episode.
        returns: `[E]` float64, undiscounted, of the replay on the machine that made the tape.
        facts: origin of the rows, without dates.
    """

    environment: str
    actions: np.ndarray
    lengths: np.ndarray
    states: np.ndarray
    returns: np.ndarray
    facts: Mapping[str, Any]

    @property
    def segments(self) -> np.ndarray:
        """`[K]` int64, rows that follow each snapshot until the next one or the episode's end."""
        return np.concatenate([segments_of(int(length)) for length in self.lengths])


def segments_of(length: int) -> np.ndarray:
    """Rows of each segment of one episode: 20, 20, ..., and what remains."""
    starts = np.arange(0, length, EVERY)
    return np.minimum(length - starts, EVERY)


def packaged() -> list[str]:
    """Names of the tapes inside the package."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def write_tape(path: Path, tape: Tape) -> None:
    """Write a tape; equal tapes give equal bytes."""
    facts = json.dumps({**tape.facts, "environment": tape.environment}, sort_keys=True)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        actions=tape.actions,
        lengths=tape.lengths,
        states=tape.states,
        returns=tape.returns,
        facts=np.frombuffer(facts.encode(), np.uint8),
    )
    write_atomically(path, buffer.getvalue())


def read_tape(path: Path) -> Tape:
    """Read a tape and check that its parts fit each other."""
    arrays = read_npz(path)
    for name in ARRAYS:
        if name not in arrays:
            raise DataError(path, name, "nothing", "an array of a tape", "is it one of ours?")
    facts = _facts(path, arrays["facts"])
    actions, lengths, states, returns = (arrays[name] for name in ARRAYS[:-1])
    kinds = {"actions": ("f2", 2), "lengths": ("i4", 1), "states": ("f8", 2), "returns": ("f8", 1)}
    for name, (kind, axes) in kinds.items():
        found = arrays[name]
        if found.dtype != np.dtype(kind) or found.ndim != axes:
            expected = f"{axes} axes of {np.dtype(kind)}"
            raise DataError(path, name, f"{found.ndim} axes of {found.dtype}", expected)
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise DataError(path, name, "a number that is not finite", "finite numbers")
    if not len(lengths) or lengths.min() < 1 or lengths.sum(dtype=np.int64) != len(actions):
        found = f"{lengths.sum(dtype=np.int64):,} rows in {len(lengths):,} episodes"
        raise DataError(path, "lengths", found, f"{len(actions):,} rows, at least 1 an episode")
    if np.abs(actions).max() > 1:
        raise DataError(path, "actions", float(np.abs(actions).max()), "numbers in [-1, 1]")
    tape = Tape(facts.pop("environment"), actions, lengths, states, returns, facts)
    if len(states) != len(tape.segments) or len(returns) != len(lengths):
        found = f"{len(states)} states and {len(returns)} returns"
        raise DataError(path, "states", found, f"{len(tape.segments)} and {len(lengths)}")
    return tape


def _facts(path: Path, stored: np.ndarray) -> dict[str, Any]:
    try:
        facts = json.loads(stored.tobytes())
    except (ValueError, RecursionError) as error:
        raise DataError(path, "facts", one_line(error), "JSON") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("environment"), str):
        raise DataError(path, "facts", "no environment", 'JSON with "environment"')
    return facts
