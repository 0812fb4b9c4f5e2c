"""Transitions on the host and where they came from.

Shapes: `N` rows, `S` observation entries, `A` action entries, `E` episodes. Rows of one episode
stand together and in order, episodes follow each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.record.files import file_sha256 as file_sha256
from jaxrl_rollouts.rollouts import Trajectory

from .catalogue import CATALOGUE

Array = Any  # numpy on the host, jax on the device


class Transitions(NamedTuple):
    """One row per environment step; `next_observations` is the true successor on every row, but
    for ends where it is unknown (`Dataset.with_successors`).

    A row may be terminated and truncated at once (a fall on the last allowed step); it then counts
    as terminated.
    """

    observations: Array  # [N, S] float32
    actions: Array  # [N, A] float32
    rewards: Array  # [N] float32
    next_observations: Array  # [N, S] float32
    terminations: Array  # [N] bool: the episode is over; no value follows
    truncations: Array  # [N] bool: the episode was cut; a value would follow


@dataclass(frozen=True, repr=False)
class Dataset:
    """Transitions and their provenance.

    Attributes:
        name: label to print and to look reference scores up with, `hopper-medium-v2`.
        transitions: the rows, as numpy arrays.
        environment: id of the environment they were collected in, None where the file is silent.
        source: the file (Minari: the folder) they were read from; a word in brackets for rows
            from memory.
        sha256: hex digest of that file's bytes, or of the arrays.
        attributes: the file's metadata, plus what the loader did: `format`,
            `successors` ("stored" or "shifted") and, where these are not known of all rows, how
            many are ends, `ends_alone`, and how many were dropped: `dropped_rows`, of which
            `dropped_truncations` were cut.
        infos: `qpos`, `qvel` on request; first axis `N`, aligned with the rows.
        action_low, action_high: `[A]`, the declared bounds of the actions as they were recorded,
            which `transitions` holds rescaled to [-1, 1]; None where nothing was declared and
            they were in [-1, 1] already.
        columns: a name for each observation entry where the data name them, in their order; else
            ().
        offset: `[S]` float64, what was subtracted from observations before float32 was taken, so
            that float32 keeps their changes; None where nothing was (`offsets`).
        rows_file: where the rows are too large for the memory, the file that `transitions` are
            views of; see `streamed`.
    """

    name: str
    transitions: Transitions
    environment: str | None
    source: Path
    sha256: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    infos: Mapping[str, np.ndarray] = field(default_factory=dict)
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    rows_file: Path | None = None
    columns: tuple[str, ...] = ()
    offset: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.transitions.rewards)

    def __repr__(self) -> str:
        """Name, sizes and returns; the arrays are `transitions`, and `data inspect` shows more."""
        rows = self.transitions
        parts = [f"{len(self):,} rows"]
        if self.rows_file is None:
            earned = episode_returns(rows)
            parts.append(f"{len(earned):,} episodes")
            parts.append(
                f"return {earned.mean():,.4g} ({earned.min():,.4g} to {earned.max():,.4g})"
            )
        parts.append(f"{rows.observations.shape[1]} observation entries")
        parts.append(f"{rows.actions.shape[1]} action entries")
        parts.append(f"environment {self.environment or 'unknown'}")
        return f"Dataset({self.name!r}: {', '.join(parts)})"

    @property
    def benchmark(self) -> str:
        """Which benchmark the data are of: d4rl, made (`data make`), neorl, minari, ogbench; "" of
        others. Columns and published settings of one do not hold for another."""
        if self.name in CATALOGUE:
            return "d4rl"
        kind = str(self.attributes.get("format", ""))
        if kind in ("neorl", "minari", "ogbench"):
            return kind
        return "made" if kind == "tape" else ""

    @property
    def with_successors(self) -> Transitions:
        """The rows of which it is known what followed, for whatever learns that: world models,
        diffusion models. All, but for `ends_alone`."""
        if not self.attributes.get("ends_alone"):
            return self.transitions
        return without_ends(self.transitions)


def without_ends(rows: Transitions) -> Transitions:
    """Without the rows at which episodes terminate; the rows before them are the cuts then."""
    ends = np.asarray(rows.terminations, bool)
    kept = np.flatnonzero(~ends)
    cut = np.asarray(rows.truncations, bool)[kept] | np.append(ends, False)[kept + 1]
    return Transitions(*(np.asarray(column)[kept] for column in rows))._replace(truncations=cut)


class Episodes(NamedTuple):
    """Where episodes begin and how they end; every field is `[E]`.

    Only the last episode can have neither ending: the file stops in the middle of it.
    """

    starts: np.ndarray  # int64: first row
    ends: np.ndarray  # int64: one past the last row
    terminated: np.ndarray  # bool
    truncated: np.ndarray  # bool: cut and not terminated
    unfinished: np.ndarray  # bool: neither

    @property
    def lengths(self) -> np.ndarray:
        """Rows per episode, `[E]` int64."""
        return self.ends - self.starts


def episodes(transitions: Transitions) -> Episodes:
    """Cut rows into episodes after every termination or truncation."""
    terminations = np.asarray(transitions.terminations, bool)
    truncations = np.asarray(transitions.truncations, bool)
    count = len(terminations)
    ends = np.flatnonzero(terminations | truncations) + 1
    if count and (not len(ends) or ends[-1] != count):
        ends = np.append(ends, count)
    ends = ends.astype(np.int64)
    starts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]])
    terminated, cut = terminations[ends - 1], truncations[ends - 1]
    return Episodes(starts, ends, terminated, cut & ~terminated, ~(cut | terminated))


def episode_returns(
    transitions: Transitions, discount: float = 1.0, steps: int | None = None
) -> np.ndarray:
    """`sum_t discount^t r_t` of every episode, `[E]` float64, unfinished one included.

    Args:
        transitions: the rows.
        discount: from an episode's start.
        steps: the first so many of every episode; None for all.
    """
    parts = episodes(transitions)
    starts, rewards = parts.starts, np.asarray(transitions.rewards, np.float64)
    time = np.arange(len(rewards)) - np.repeat(starts, parts.lengths)
    if discount != 1:
        rewards = rewards * discount**time
    if steps is not None:
        rewards = np.where(time < steps, rewards, 0.0)
    return np.add.reduceat(rewards, starts) if len(starts) else np.zeros(0)


def take_rows(transitions: Transitions, rows: np.ndarray) -> Transitions:
    """Rows selected by index or mask; endings are not adjusted."""
    return Transitions(*(np.asarray(column)[rows] for column in transitions))


def to_device(transitions: Transitions) -> Transitions:
    """The same rows as jax arrays, same dtypes, on the default device."""
    return jax.device_put(transitions)


def sample_batch(transitions: Transitions, key: jax.Array, batch: int) -> Transitions:
    """Draw `batch` rows uniformly, with replacement.

    Args:
        transitions: `[N, ...]` jax arrays, `N` at least 1.
        key: typed key; consumed.
        batch: number of rows; static under `jit`.

    Returns:
        `[batch, ...]` rows.

    Raises:
        ValueError: `batch` below 1 or no rows.
    """
    count = transitions.rewards.shape[0]
    if batch < 1 or count < 1:
        raise ValueError(f"batch, rows: found {batch}, {count}, expected at least 1 of each")
    rows = drawn_rows(key, batch, count)
    return rows_at(transitions, rows)


def rows_at(transitions: Any, rows: jax.Array) -> Any:
    """The rows of every column that `drawn_rows` names."""
    return jax.tree.map(lambda column: column[rows], transitions)


def drawn_rows(key: jax.Array, batch: int, count: int) -> jax.Array:
    """Which of `count` rows `sample_batch` takes, `[batch]` int32."""
    return jax.random.randint(key, (batch,), 0, count)


# Rewards as a method learns from them: an affine view of the dataset, `r' = scale r + shift`, which
# is undone where values are reported: `V' = scale V + shift E[sum_t gamma^t]`.

RewardView = Literal["raw", "iql", "minus_one", "standard"] | tuple[float, float]
LEAST = 1e-8  # of a range or a deviation that is divided by


class RewardScale(NamedTuple):
    """An affine view, `scale * r + shift`."""

    scale: float = 1.0
    shift: float = 0.0

    def of(self, rows: Transitions) -> Transitions:
        """The rows with rewards as they are learned from."""
        if self == RewardScale():
            return rows
        rewards = rows.rewards
        if not isinstance(rewards, jax.Array):
            rewards = np.asarray(rewards, np.float32)
        return rows._replace(rewards=rewards * np.float32(self.scale) + np.float32(self.shift))

    def undo(self, values: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
        """Values in the dataset's own rewards, `(V' - shift weight) / scale`.

        Args:
            values: learned from the view.
            weight: `E[sum_t gamma^t]` of the episodes they are of, see `discounted_steps`.
        """
        if self == RAW:
            return np.asarray(values)
        return np.asarray((values - self.shift * weight) / self.scale, np.float32)


RAW = RewardScale()


def discounted_steps(lengths: np.ndarray, terminated: np.ndarray, discount: float) -> np.ndarray:
    """`sum_t gamma^t` over an episode's steps, per episode.

    Critics bootstrap beyond a time limit, so episodes that were cut count `1 / (1 - gamma)`.
    """
    if discount >= 1:
        return np.asarray(lengths, np.float64)
    ended = np.where(terminated, discount ** np.asarray(lengths, np.float64), 0.0)
    return (1.0 - ended) / (1.0 - discount)


def steps_of_data(dataset: Dataset, discount: float) -> float:
    """Mean of `discounted_steps` over a dataset's episodes."""
    parts = episodes(dataset.transitions)
    return float(discounted_steps(parts.lengths, parts.terminated, discount).mean())


def reward_scale(dataset: Dataset, view: RewardView) -> RewardScale:
    """The affine view of a dataset that a setting names.

    Args:
        view: `raw`; `iql`, 1000 over the difference of the highest and lowest return (Kostrikov et
            al. 2022, locomotion); `minus_one`, less 1 (AntMaze); `standard`, of mean 0 and
            deviation 1; or `(scale, shift)`.
    """
    if not isinstance(view, str):
        return RewardScale(*view)
    rows = dataset.transitions
    if view == "minus_one":
        return RewardScale(1.0, -1.0)
    if view == "iql":
        returns = np.asarray(episode_returns(rows))
        spread = float(returns.max() - returns.min())
        if spread < LEAST:  # of one episode, too: the default of IQL must train on it
            text = f"{dataset.name}: all returns are equal: reward='iql' leaves rewards as they are"
            warnings.warn(text, stacklevel=2)
            return RAW
        return RewardScale(1000.0 / spread)
    if view == "standard":
        rewards = np.asarray(rows.rewards, np.float64)
        deviation = float(rewards.std())
        if deviation < LEAST:
            found = f"a spread of {deviation:g}, by which reward='standard' divides"
            hint = "reward='raw' (--reward raw) leaves them"
            raise DataError(dataset.name, "rewards", found, "rewards that differ", hint)
        return RewardScale(1.0 / deviation, -float(rewards.mean()) / deviation)
    return RewardScale()


def flat(trajectory: Trajectory, **changed: jax.Array) -> tuple[Transitions, jax.Array]:
    """`[T, B]` steps as `[T * B]` rows, and which count; `changed` columns replace the model's."""
    steps = trajectory.steps._replace(**changed)
    columns = (getattr(steps, name) for name in Transitions._fields)
    rows = Transitions(*(x.reshape(-1, *x.shape[2:]) for x in columns))
    return rows, trajectory.valid.reshape(-1)
