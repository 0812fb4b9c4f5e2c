"""What a dataset holds and what looks wrong in it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError

from .checks import ACTION_TOLERANCE
from .lenient import read_lenient
from .names import load, resolve
from .odd import Suspicion, extremes, odd_changes, rows_in_file, suspicion
from .references import normalised_score, normalised_spread, score_label
from .transitions import Dataset, Episodes, Transitions, episode_returns, episodes

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
SATURATED = 0.9  # share of the rows with every action at a bound


@dataclass(frozen=True)
class Spread:
    """Distribution of a number per episode; `quantiles` are at `QUANTILES`."""

    mean: float
    std: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True)
class Range:
    """Finite values of one column."""

    column: str
    low: float
    high: float
    mean: float
    std: float


@dataclass(frozen=True)
class Inspection:
    """Everything `inspect` found, all plain values.

    Attributes:
        returns: over whole episodes, that is without those in `cut_short` and `unfinished`, whose
            returns are partial sums; None if there is no whole episode.
        returns_finished: over all episodes with an ending, `cut_short` included.
        lengths: steps, over all episodes.
        time_limit: the length several truncated episodes share and none exceeds; None if there is
            no such length.
        cut_short: truncated episodes shorter than `time_limit`; 0 without one.
        normalised_return: normalised score of `returns.mean`; None without reference returns.
        score_label: kind of score, "D4RL score" or "Minari score".
        normalised_std: `returns.std` on that scale.
        episode_returns, episode_lengths, episode_whole: per episode in file order, for plots.
        action_bounds: the declared ones, "[-2, 2]", one pair for each entry where they differ;
            empty where none were.
        read_as: mapping of the file's other names to columns.
        problems: why `load` refuses the file; empty for a loaded dataset.
    """

    name: str
    source: str
    environment: str | None
    format: str
    rows: int
    observation_size: int
    action_size: int
    episodes: int
    terminated: int
    truncated: int
    unfinished: int
    time_limit: int | None
    cut_short: int
    returns: Spread | None
    returns_finished: Spread | None
    lengths: Spread | None
    normalised_return: float | None
    normalised_std: float | None
    ranges: tuple[Range, ...]
    suspicions: tuple[Suspicion, ...]
    action_bounds: str = ""
    read_as: str = ""
    score_label: str = "D4RL score"
    problems: tuple[str, ...] = ()
    sha256: str = ""
    episode_returns: tuple[float, ...] = ()
    episode_lengths: tuple[int, ...] = ()
    episode_whole: tuple[bool, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain lists, numbers and strings; numbers that are not finite become None."""
        return _plain(asdict(self))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _spread(values: np.ndarray) -> Spread | None:
    if not len(values):
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # broken files hold infinities
        quantiles = tuple(float(q) for q in np.quantile(values, QUANTILES))
        return Spread(float(values.mean()), float(values.std()), quantiles)


def _ranges(key: str, values: np.ndarray) -> list[Range]:
    ranges = []
    for index, column in enumerate((values if values.ndim == 2 else values[:, None]).T):
        finite = column[np.isfinite(column)].astype(np.float64)
        name = key if values.ndim == 1 else f"{key}[{index}]"
        if len(finite):
            low, high = float(finite.min()), float(finite.max())
            ranges.append(Range(name, low, high, float(finite.mean()), float(finite.std())))
    return ranges


def _uniform(rows: Transitions, parts: Episodes, limit: float | None) -> list[Suspicion]:
    """What is the same in all rows and seldom is: rewards, ends, actions at their bounds."""
    found: list[Suspicion] = []
    count, rewards = len(rows.rewards), np.asarray(rows.rewards)
    if count == 1:
        return [Suspicion("only one row", "rows", 1)]
    if count and (rewards == rewards[0]).all():
        kind = "constant column" if rewards[0] else "all zero"
        found.append(Suspicion(kind, "rewards", count))
    if count and len(parts.starts) == count:
        which = "terminations" if parts.terminated.mean() >= 0.5 else "truncations"
        found.append(Suspicion("every row ends an episode", which, count))
    actions = np.abs(np.asarray(rows.actions))
    at = (actions >= (limit or 1.0) - ACTION_TOLERANCE).all(1)
    if actions.size and at.mean() > SATURATED:
        found += suspicion("at the bounds", "actions", np.flatnonzero(at))
    return found


def _suspicions(dataset: Dataset, parts: Episodes, limit: float | None) -> list[Suspicion]:
    found, rows = extremes(dataset), dataset.transitions
    for key in ("observations", "actions", "rewards", "next_observations"):
        values = np.asarray(getattr(rows, key))
        flat = values if values.ndim == 2 else values[:, None]
        found += suspicion("non-finite", key, np.flatnonzero(~np.isfinite(flat).all(1)))
        if key in ("observations", "actions") and len(flat) > 1:
            for column in np.flatnonzero((flat == flat[0]).all(0)):
                found.append(Suspicion("constant column", f"{key}[{column}]", len(flat)))
    if limit is not None:
        beyond = np.abs(np.asarray(rows.actions)) > limit + ACTION_TOLERANCE
        found += suspicion("action out of bounds", "actions", np.flatnonzero(beyond.any(1)))
    observations = np.asarray(rows.observations)
    ending = np.zeros(len(observations), bool)
    ending[parts.ends - 1] = True
    still = (observations[1:] == observations[:-1]).all(1) & ~ending[:-1]
    if observations.shape[1]:
        found += suspicion("same as the row before", "observations", np.flatnonzero(still) + 1)
    return found


def bounds_text(dataset: Dataset) -> str:
    """The declared bounds of the actions as text; empty where none were declared."""
    if dataset.action_low is None or dataset.action_high is None:
        return ""
    pairs = zip(dataset.action_low.tolist(), dataset.action_high.tolist(), strict=True)
    return ", ".join(dict.fromkeys(f"[{low:g}, {high:g}]" for low, high in pairs))


def _time_limit(parts: Episodes) -> int | None:
    cut = parts.lengths[parts.truncated]
    if not len(cut) or cut.max() < parts.lengths.max():
        return None
    return int(cut.max()) if (cut == cut.max()).sum() > 1 else None


def inspect(dataset: Dataset, *, action_limit: float | None = 1.0) -> Inspection:
    """Count, measure and check a dataset.

    Args:
        dataset: result of a loader.
        action_limit: magnitude beyond which an action is reported, None for none.
    """
    rows, attributes = dataset.transitions, dataset.attributes
    parts, returns = episodes(rows), episode_returns(rows)
    limit = _time_limit(parts)
    short = parts.truncated & (parts.lengths < (limit or 0))
    whole_mask = ~parts.unfinished & ~short
    whole = _spread(returns[whole_mask])
    suspicions = _suspicions(dataset, parts, action_limit) + odd_changes(dataset)
    uniform = _uniform(rows, parts, action_limit)
    made_up = attributes.get("rewards") == "none"  # zeros, and that is reported elsewhere
    suspicions += [one for one in uniform if not (made_up and one.array == "rewards")]
    suspicions += suspicion("episode cut before the time limit", "truncations", parts.starts[short])
    if ends := attributes.get("ends_alone"):
        kind = "terminals without a successor: used for values, not for dynamics models"
        suspicions.append(Suspicion(kind, "terminations", int(ends)))
    if attributes.get("dropped_rows"):
        suspicions.append(Suspicion("rows dropped", "rows", int(attributes["dropped_rows"])))
    seen = rows.observations
    if dataset.offset is not None:
        seen = np.asarray(seen, np.float64) + dataset.offset
    columns = {"observations": seen, "actions": rows.actions, "rewards": rows.rewards}
    return Inspection(
        name=dataset.name,
        source=str(dataset.source),
        environment=dataset.environment,
        format=str(attributes.get("format", "unknown")),
        rows=len(dataset),
        observation_size=rows.observations.shape[1],
        action_size=rows.actions.shape[1],
        episodes=len(parts.starts),
        terminated=int(parts.terminated.sum()),
        truncated=int(parts.truncated.sum()),
        unfinished=int(parts.unfinished.sum()),
        time_limit=limit,
        cut_short=int(short.sum()),
        returns=whole,
        returns_finished=_spread(returns[~parts.unfinished]),
        lengths=_spread(parts.lengths),
        normalised_return=normalised_score(dataset, whole.mean) if whole else None,
        normalised_std=normalised_spread(dataset, whole.std) if whole else None,
        ranges=tuple(r for key, v in columns.items() for r in _ranges(key, np.asarray(v))),
        suspicions=tuple(replace(s, rows=rows_in_file(dataset, s.rows)) for s in suspicions),
        action_bounds=bounds_text(dataset),
        read_as=str(attributes.get("read_as", "")),
        score_label=score_label(dataset),
        sha256=dataset.sha256,
        episode_returns=tuple(float(r) for r in returns),
        episode_lengths=tuple(int(n) for n in parts.lengths),
        episode_whole=tuple(bool(w) for w in whole_mask),
    )


def inspect_file(
    name_or_path: str | Path, *, action_limit: float | None = 1.0, **options: Any
) -> Inspection:
    """`inspect` for a file, also for one that `load` refuses.

    The reason of the refusal goes into `problems`; whatever arrays can be read are measured all
    the same, and missing ones are taken as zeros.

    Args:
        name_or_path: see `names.resolve`.
        action_limit: see `inspect`.
        **options: further arguments of `load`.

    Raises:
        DataError: there is no such file.
        ConfigError: an argument out of range.
    """
    places = options.keys() & {"data_dir", "download"}
    path = resolve(name_or_path, **{key: options[key] for key in places})
    dataset, problems = _as_far_as_read(name_or_path, path, action_limit, options)
    return replace(inspect(dataset, action_limit=action_limit), problems=problems)


def _as_far_as_read(
    name_or_path: str | Path, path: Path, limit: float | None, options: Mapping[str, Any]
) -> tuple[Dataset, tuple[str, ...]]:
    """A dataset, and why `load` refuses it: its rows all the same where only the limit is why, else
    whatever can be read."""
    try:
        return load(name_or_path, action_limit=limit, **options), ()
    except DataError as refusal:
        if limit is None or "act" not in refusal.key:  # the limit is one of actions
            return read_lenient(path), (str(refusal),)
        dataset, worse = _as_far_as_read(name_or_path, path, None, options)
        return dataset, worse or (str(refusal),)
