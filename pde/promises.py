"""Valid times of a saved emulator's rollouts: its members, calibrated on other fields.

Members are the training seeds, and where the emulator was trained at several strides the same
seeds at longer steps (step doubling). The promise is on member 0's rollout, which `pde roll`
writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.saved import diverged_seeds
from jaxrl_rollouts.reports.pictures import PALETTE, figure, legend, save_png

from .ensemble import THRESHOLD, Forecast, Member, Trust, calibrate, forecast, promised_time
from .ensemble import valid_time as first_fall
from .fieldset import FieldSet
from .metrics import correlation
from .trained import TrainedEmulator

Range = tuple[float, float]
NEAR = 0.01  # of a range, that values may lie beyond it


class Calibration(NamedTuple):
    """A calibrated level, and what it was calibrated on.

    Attributes:
        trust: result of `calibrate`; its steps are those of the group, `stride` frames each.
        ranges: lowest and highest value of every parameter, of dt, of the extent and of the energy
            of the starts, by name.
        stride: steps of the emulator between two comparisons of members.
    """

    trust: Trust
    ranges: Mapping[str, Range]
    stride: int

    def outside(self, fields: FieldSet, starts: np.ndarray) -> list[str]:
        """Parameters outside the calibration's range, a sentence each: times do not hold there."""
        found = []
        for name, values in measured(fields, starts).items():
            low, high = self.ranges.get(name, (-math.inf, math.inf))
            near = NEAR * max(high - low, abs(low), abs(high))
            if values.min() < low - near or values.max() > high + near:
                shown = f"{values.min():.4g} to {values.max():.4g}"
                found.append(
                    f"{fields.path}: {name}: found {shown}, expected {low:.4g} to {high:.4g}, the "
                    "calibration's range: promised times do not hold outside it"
                )
        return found


def measured(fields: FieldSet, starts: np.ndarray) -> dict[str, np.ndarray]:
    """Parameters, dt, extents and energies of the starts `[N, ..., C, *X]`, `[N]` each, by name.

    The energy is the mean square over channels and space. What a file does not have is left out.
    """
    found: dict[str, np.ndarray] = {**fields.parameters, "dt": fields.dt}
    for axis, lengths in enumerate(fields.extent.T):
        found[f"extent of axis {axis}"] = lengths
    flat = np.asarray(starts, np.float64).reshape(len(starts), -1)
    found["energy of the starts"] = np.square(flat).mean(1)
    return {name: x for name, x in found.items() if np.isfinite(x).all()}


def group_of(
    own: TrainedEmulator,
    conditions: Mapping[str, ArrayLike],
    seed: int = 0,
    key: jax.Array | int = 0,
) -> tuple[list[Member], tuple[int, ...]]:
    """Members and their strides: the training seeds that did not diverge, `seed` first, at every
    step size trained on.

    Raises:
        ConfigError: one seed and one step size, which agree with nothing.
    """
    seeds = jax.tree.leaves(own.params)[0].shape[0]
    lost = diverged_seeds(own.params)
    trained = [int(s) for s in own.facts.get("strides") or (1,)]
    # Frames of a history lie a step apart: other step sizes would begin at other times.
    steps = trained if own.history == 1 else trained[:1]
    if (seeds - len(lost)) * len(steps) < 2:
        hint = "train with --seeds 2 or --strides 1 2"
        raise ConfigError("members", "one training seed", "at least 2 members", hint)
    order = [seed, *(other for other in range(seeds) if other not in (seed, *lost))]
    members, strides = [], []
    for step in steps:
        given = dict(conditions)
        if "dt" in given:
            given["dt"] = np.asarray(given["dt"]) * step
        members += [Member(own, key=key, conditions=given, seed=number) for number in order]
        strides += [step] * len(order)
    return members, tuple(strides)


def calibrated(
    own: TrainedEmulator,
    fields: FieldSet,
    *,
    miss: float = 0.1,
    stride: int | None = None,
    seed: int = 0,
    key: jax.Array | int = 0,
) -> Calibration:
    """Calibrate on held-out trajectories, one start each, over their whole length.

    Args:
        own: with at least two members.
        fields: trajectories of the same kind as those to be rolled.
        miss: largest share of promised times that do not hold.
        stride: frames of the fields per step; None for as many as in training.
        seed, key: those of the rollout that is promised.

    Raises:
        ConfigError: fewer than two members, or than `2 / miss` trajectories, or too short ones.
    """
    frames = stride or own.stride
    start, conditions = own.start(fields, frames)
    members, strides = group_of(own, conditions, seed, key)
    common = math.lcm(*strides)
    skip = own.history * frames
    truth = fields.read(slice(None), slice(skip + (common - 1) * frames, None, common * frames))
    steps = truth.shape[1]
    if not steps:
        expected = f"more than {skip + (common - 1) * frames} in each trajectory"
        raise ConfigError("calibration", f"{fields.shape[1]} frames", expected)
    cast = forecast(members, start, steps, strides=strides)
    true = true_times(own, cast, np.swapaxes(truth, 0, 1))
    trust = calibrate(cast.agreement, true, miss)
    found = measured(fields, start)
    ranges = {name: (float(x.min()), float(x.max())) for name, x in found.items()}
    return Calibration(trust, ranges, common)


def true_times(own: TrainedEmulator, cast: Forecast, truth: np.ndarray) -> np.ndarray:
    """Steps for which member 0 correlates with the truth `[T, B, C, *X]`, `[B]`."""
    some = list(own.changing)
    length = min(len(truth), len(cast.agreement))
    rolled = cast.members[0][:length, :, jnp.asarray(some)]
    true = jnp.asarray(truth[:length, :, some])
    return np.asarray(first_fall(correlation(rolled, true)))


class Trusted(NamedTuple):
    """Of every trajectory, in steps of the emulator.

    Attributes:
        agreement: `[N, T]`, at every `stride`-th step; between those the last one before.
        followed: `[N]`, the best guess of how long the rollout is valid.
        promised: `[N]`, kept with probability `1 - miss`.
        true: `[N]`, how long it is, as far as the file goes; None where it has no frames.
    """

    agreement: np.ndarray
    followed: np.ndarray
    promised: np.ndarray
    true: np.ndarray | None

    def lines(self, miss: float, most: int = 20) -> list[str]:
        """`trajectory 0: followed until 43 (with 90 %: until 31)`, of the first ones."""
        pairs = zip(self.followed, self.promised, strict=True)
        found = [
            f"trajectory {number}: followed until {guess:.0f} (with {1 - miss:.0%}: until {kept})"
            for number, (guess, kept) in enumerate(pairs)
        ]
        rest = [f"... {len(found) - most} more"] if len(found) > most else []
        return [*found[:most], *rest]

    def arrays(self) -> dict[str, np.ndarray]:
        """What is written into a file."""
        names = {"agreement": self.agreement, "valid_time": self.followed}
        return {**names, "promised_time": self.promised}


def trusted(
    own: TrainedEmulator,
    calibration: Calibration,
    start: np.ndarray,
    conditions: Mapping[str, ArrayLike],
    truth: np.ndarray,
    steps: int,
    *,
    seed: int = 0,
    key: Any = 0,
) -> Trusted:
    """Roll the members from starts `[N, (H,) C, *X]` and measure their agreement.

    Args:
        truth: `[N, T, C, *X]`, what follows the starts; no frames where that is not known.
        steps: steps of the emulator.
    """
    members, strides = group_of(own, conditions, seed, key)
    stride = calibration.stride
    cast = forecast(members, start, max(steps // stride, 1), strides=strides)
    agreed, trust = np.asarray(cast.agreement), calibration.trust
    guess = np.minimum(trust.factor * np.asarray(cast.valid_time), len(agreed))
    kept = np.asarray(promised_time(agreed, trust))
    after = np.swapaxes(truth[:, stride - 1 :: stride], 0, 1)
    true = stride * true_times(own, cast, after) if len(after) else None
    whole = np.repeat(agreed.T, stride, 1)[:, :steps]
    return Trusted(whole, stride * guess, stride * kept, true)


def draw_trust(found: Trusted, trust: Trust, out: Path, title: str = "") -> Path:
    """Agreement over time, and how long each trajectory is promised, guessed and truly followed."""
    count = len(found.promised)
    height = max(2.6, 0.14 * min(count, 64) + 1.0)
    titles = ("Agreement of the members", "Followed until")
    made, (left, right) = figure(1, 2, titles=titles, height=height, width=4.2, title=title)
    steps = np.arange(1, found.agreement.shape[1] + 1)
    for row in found.agreement:
        left.plot(steps, row, color=PALETTE[0], alpha=min(1.0, 8 / count), linewidth=0.8)
    left.axhline(trust.level, color=PALETTE[1], label=f"level of {1 - trust.miss:.0%}")
    left.axhline(THRESHOLD, color="black", linestyle=":", linewidth=0.8, label="0.8")
    left.set(xlabel="step", ylabel="mean correlation of pairs")
    place = np.argsort(found.promised, kind="stable")
    at = np.arange(count)
    right.barh(at, found.promised[place], color=PALETTE[0], alpha=0.4, label="promised")
    right.plot(found.followed[place], at, "|", color=PALETTE[0], label="best guess")
    if found.true is not None:
        right.plot(found.true[place], at, "x", color=PALETTE[1], markersize=4, label="true")
    right.set(xlabel="step", ylabel="trajectory", yticks=at if count <= 20 else [])
    if count <= 20:
        right.set_yticklabels(place)
    legend(made, [left, right])
    return save_png(made, out)
