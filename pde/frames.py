"""Suspicious frames of fields, and what float32 loses of fields."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.left_out import LAGS, ROWS, Scores, find_missing_steps, scores, usual, weights
from jaxrl_rollouts.suspicions import RARE, Odd, find_odd_changes, find_sentinels

LISTED = 3  # places given with a line
LOST = 1e-3  # share of a median change that rounding may take before float64 is kept
_AT_ONCE = 2**26  # numbers that are looked at
POINTS, AT_ONCE = 64, 64  # of a frame that are predicted; trajectories predicted at once
PART = 0.2  # share of a frame's points that turn zero at once, where none were
KINDS = {
    "jump": "a jump into the frame after",
    "repeat": "the frame after is the same",
    "zeros": "zero from the frame after on",
    "part": "zero in part of the frame after",
    "left out": "a change larger than those around it in most trajectories: frames left out?",
    "left out alone": "a change of two steps into the frame after, a frame left out?",
    "out of order": "a step back into the frame after, frames out of order?",
}


def odd_frames(values: np.ndarray, channels: Sequence[str] = ()) -> list[str]:
    """A line for each kind of change that is unlike the others, and for values of missing numbers.

    Args:
        values: `[N, T, C, *space]`.
        channels: a name for each of `C`.
    """
    places: dict[tuple[str, bytes], list[int]] = {}
    found: dict[tuple[str, bytes], np.ndarray] = {}
    for channel, (sizes, zero, part) in enumerate(_changes(values)):
        changes = [*find_odd_changes(sizes, zero), *_parts(part)]
        for odd in changes + _left_out(values, channel, changes):
            key = odd.kind, odd.places.tobytes()
            places.setdefault(key, []).append(channel)
            found[key] = odd.places
    lines = []
    for (kind, _), of in places.items():
        own = found[kind, _]
        where = ", ".join(f"trajectory {n}, frame {t}" for n, t in own[:LISTED].tolist())
        many = f" and {len(own) - LISTED:,} more" if len(own) > LISTED else ""
        lines.append(f"{_names(of, values.shape[2], channels)}{KINDS[kind]}: {where}{many}")
    return lines + _missing(values, channels)


def _changes(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of every channel, root mean square change from frame to frame `[N, T - 1]` float64, whether
    the later frame is zero throughout, and whether part of it is that was not in the one before."""
    space = tuple(range(2, values.ndim - 1))
    for channel in np.moveaxis(values, 2, 0):
        change = np.diff(channel.astype(np.float64), axis=1)
        zero = channel == 0
        whole, share = zero[:, 1:].all(space), zero.mean(space)
        part = (np.diff(share, axis=1) > PART) & (share[:, :-1] < PART / 10) & ~whole
        yield np.sqrt(np.square(change).mean(space)), whole, part


def _left_out(values: np.ndarray, channel: int, known: Sequence[Odd]) -> list[Odd]:
    """Frames that were left out or exchanged, in trajectories whose changes are not odd (`known`).

    Each trajectory has its own prediction, of some points of one channel by their neighbours, their
    last change and the other channels there.
    """
    trajectories, frames = values.shape[:2]
    sound = np.setdiff1d(np.arange(trajectories), [n for odd in known for n in odd.places[:, 0]])
    points = np.prod(values.shape[3:], dtype=int)
    at = np.unique(np.linspace(0, points - 1, POINTS).astype(int))
    found = Scores(*(np.full((trajectories, frames - 1), np.nan) for _ in range(2)))
    for begin in range(0, len(sound), AT_ONCE):
        part = sound[begin : begin + AT_ONCE]
        seen, own = _stencils(np.asarray(values[part], np.float64), channel, at)
        if (frames - 3) * own.shape[-1] < ROWS * seen.shape[-1]:
            break
        change = np.diff(own, axis=1)[:, 1:]  # the first frame has no last change
        flat = (len(part), -1, seen.shape[-1])

        def fit(features: np.ndarray, change: np.ndarray, flat: tuple = flat) -> np.ndarray:
            return weights(features.reshape(flat), change.reshape(*flat[:2], 1))

        fitted = {
            1: fit(seen[:, 1:-1], change),
            2: fit(seen[:, 1:-2], own[:, 3:] - own[:, 1:-2]),
            -1: fit(seen[:, 1:], own[:, :-1] - own[:, 1:]),
        }
        residuals = {lag: change - (seen[:, 1:-1] @ fitted[lag][:, None])[..., 0] for lag in LAGS}
        scale = usual(residuals[1], change, (1, 2))
        for kept, score in zip(found, scores(residuals, scale), strict=True):
            kept[part, 1:] = score
    return find_missing_steps(found)


def _stencils(values: np.ndarray, channel: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What predicts points `at` of a channel, `[N, T, P, K]`, and their values `[N, T, P]`."""
    axes = range(2, values.ndim - 1)
    others = [
        values[:, :, c].reshape(*values.shape[:2], -1)[..., at] for c in range(values.shape[2])
    ]
    field = values[:, :, channel]
    where = np.unravel_index(at, field.shape[2:])

    def beside(axis: int, by: int) -> np.ndarray:
        index = list(where)
        index[axis] = (index[axis] + by) % field.shape[2 + axis]
        return field[(slice(None), slice(None), *index)]

    own, features = others[channel], [*others, np.ones_like(others[0])]
    for axis in range(len(axes)):
        left, right = beside(axis, -1), beside(axis, 1)
        features += [left, right, beside(axis, -2) + beside(axis, 2), own * (right - left)]
    features.append(np.diff(own, axis=1, prepend=own[:, :1]))
    return np.stack(features, -1), own


def _parts(part: np.ndarray) -> list[Odd]:
    """Frames that were written in part, where they are few: else zero is what they have there."""
    return [Odd("part", np.argwhere(part))] if 0 < part.mean() <= RARE else []


def _names(which: Sequence[int], count: int, channels: Sequence[str]) -> str:
    """`u, v: `; nothing where it is all channels."""
    if len(which) == count:
        return ""
    return ", ".join(channels[i] if channels else f"channel {i}" for i in which) + ": "


def _missing(values: np.ndarray, channels: Sequence[str]) -> list[str]:
    columns = np.moveaxis(values, 2, -1)
    each = int(np.prod(columns.shape[2:-1]))
    lines = []
    for one in find_sentinels(columns.reshape(-1, columns.shape[-1])):
        n, t = divmod(one.first // each, values.shape[1])
        lines.append(
            f"{_names([one.column], values.shape[2], channels)}{one.value:.6g} occurs "
            f"{one.count:,} times, far from all others, first in trajectory {n}, frame {t}: "
            "a missing value?"
        )
    return lines


def warn_of_frames(path: str | Path, values: np.ndarray, channels: Sequence[str] = ()) -> None:
    """Warn of `odd_frames` among the first trajectories of `[N, T, C, *space]`."""
    rows = max(1, _AT_ONCE // max(1, values[0].size))
    for line in odd_frames(np.asarray(values[:rows]), channels):
        warnings.warn(f"{Path(path).name}: {line}", stacklevel=3)


def rounding(values: np.ndarray) -> np.ndarray:
    """Error of rounding `[N, T, C, *space]` to float32 over the median change, `[C]`.

    The change is that of a value from frame to frame; 0 for a channel that does not change.
    """
    loss = np.zeros(values.shape[2])
    if values.dtype.itemsize <= 4 or values.shape[1] < 2:
        return loss
    for channel in range(values.shape[2]):
        own = values[:, :, channel]
        change = np.abs(np.diff(own, axis=1))
        change = change[change > 0]
        if len(change):
            loss[channel] = np.abs(own - own.astype(np.float32)).max() / np.median(change)
    return loss


def narrowed(values: np.ndarray) -> np.ndarray:
    """Fields `[N, T, C, *space]` as float32; as float64 where float32 loses their changes."""
    return np.asarray(values, np.float64 if loses([values]) else np.float32)


def loses(parts: Iterable[np.ndarray]) -> bool:
    """Whether float32 loses changes of fields `[N, T, C, *space]`, which are given in parts."""
    return any((rounding(part) > LOST).any() for part in parts)


def check_written(path: str | Path, values: np.ndarray, first: int = 0) -> None:
    """`DataError` where trajectories `[N, T, C, *space]` are zero throughout: a file whose writing
    was cut reads so. `first` is the number of the first of them."""
    empty = np.flatnonzero(~values.any(axis=tuple(range(1, values.ndim))))
    if len(empty):
        found = f"zero throughout, as {len(empty)} of {len(values)} are"
        hint = "was the file written to its end? Leave such trajectories out"
        expected = "a field that was written"
        raise DataError(path, f"trajectory {first + int(empty[0])}", found, expected, hint)
