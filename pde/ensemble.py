"""Valid times of forecasts: agreement of several rollouts, calibrated on a held-out set.

Members are rollouts of the same starts by different emulators: other seeds, other networks or other
step sizes. Time is counted in steps, and `valid_time` is the number of steps before a correlation
first falls to a threshold. For trajectory `b` and agreement level `tau`

    T_b      = valid_time of the forecast against the truth, at a correlation of 0.8,
    H_b(tau) = valid_time of the agreement, at `tau`: the promise.

A promise is missed where `T_b < H_b(tau)`. `calibrate` finds the smallest level at which misses
keep their rate (split conformal prediction: Vovk et al. 2005; Angelopoulos et al. 2024, conformal
risk control, theorem 1, for the loss 1{T_b < H_b(tau)}).

Shapes: members `[M, T, B, C, *space]`; curves are time-major, `[T, B]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.errors import ConfigError, DataError

from .metrics import cross_correlation

THRESHOLD = 0.8  # correlation with the truth below which a forecast is no longer valid


class Rolls(Protocol):
    """What has rollouts: a `TrainedEmulator`, a `Member`, or anything else."""

    def roll(self, fields: Any, steps: int, /) -> Any:
        """Roll `[N, C, *space]` fields (or a `FieldSet`) to `[steps, N, C, *space]`."""
        ...


class Member:
    """One rollout of an emulator with options of its `roll`: a training seed, a key, conditions."""

    def __init__(self, emulator: Any, **options: Any) -> None:
        self.emulator, self.options = emulator, options

    def roll(self, fields: Any, steps: int, /) -> Any:
        return self.emulator.roll(fields, steps, **self.options)


class Trust(NamedTuple):
    """A calibrated agreement level; plain numbers.

    Attributes:
        level: the promised time ends where agreement first falls to it.
        miss: largest share of trajectories that become invalid before their promised time.
        factor: median of `T / H(0.8)`, which makes the best guess of agreement's valid time.
        steps: length of the calibration's rollouts; nothing beyond it is promised.
        trajectories: number of trajectories of the calibration.
    """

    level: float
    miss: float
    factor: float
    steps: int
    trajectories: int

    @property
    def stop(self) -> float:
        """Agreement below which neither the promised nor the estimated time needs another step."""
        return min(self.level, THRESHOLD)


class Forecast(NamedTuple):
    """Rollouts of several members, their agreement and the times derived from it.

    Frames after a row has stopped are zero, in the mean too; see `lengths`.

    Attributes:
        mean: `[T, B, C, *space]`, mean over members.
        members: `[M, T, B, C, *space]`.
        agreement: `[T, B]`, see `agreement`; 0 after the end.
        spread: `[T, B]`, root mean of the unbiased variance over members, in the fields' units.
        lengths: `[B]` steps that were rolled; the last one is where agreement fell.
        valid_time: `[B]` steps, the best guess; float32.
        promised_time: `[B]` steps, kept with probability `1 - miss`; None without calibration.
    """

    mean: jax.Array
    members: jax.Array
    agreement: jax.Array
    spread: jax.Array
    lengths: jax.Array
    valid_time: jax.Array
    promised_time: jax.Array | None

    __repr__ = brief


def agreement(members: jax.Array) -> jax.Array:
    """Mean correlation over all pairs of members, per step and trajectory.

    `2 / (M (M - 1)) sum_{m<n} corr(u_m, u_n)`, each correlation centred, over channels and space.

    Args:
        members: `[M, T, B, C, *space]`, at least two members.

    Returns:
        `[T, B]` in [-1, 1]; -1 where a member is not finite.
    """
    if members.shape[0] < 2:
        raise ValueError(f"members: found {members.shape[0]}, expected at least 2")
    found = cross_correlation(jnp.asarray(members))
    return jnp.where(jnp.isfinite(found), jnp.clip(found, -1.0, 1.0), -1.0)


def valid_time(correlation: jax.Array | np.ndarray, threshold: float = THRESHOLD) -> jax.Array:
    """Steps before a correlation `[T, B]` first falls to `threshold` or below: `[B]` int32.

    NaN counts as fallen; a trajectory that never falls has `T`.
    """
    above = jnp.asarray(correlation) > threshold
    return jnp.cumprod(above.astype(jnp.int32), 0).sum(0, dtype=jnp.int32)


def calibrate(
    agreement: jax.Array | np.ndarray,
    true_valid_time: jax.Array | np.ndarray,
    miss: float = 0.1,
) -> Trust:
    """Find the smallest agreement level whose promised times hold on held-out trajectories.

    Trajectory `b` misses at level `tau` where its agreement exceeds `tau` up to and including the
    step at which it stops being valid: where `s_b = min_{t <= T_b} agreement_t` exceeds `tau`. The
    level is the `k`-th largest `s_b` with `k = floor(miss (n + 1))`. Then a new trajectory,
    exchangeable with these, misses with probability `k / (n + 1)` at most.

    Args:
        agreement: `[T, n]` of forecasts that were not stopped, one start per trajectory.
        true_valid_time: `[n]` steps from 0 to `T`: `valid_time` of the correlation of the same
            forecast (its mean, or one member) with the truth.
        miss: largest share of promised times that fail, above 0 and below 1.

    Returns:
        The level as `Trust`.

    Raises:
        ConfigError: `miss` out of range, or fewer than `2 / miss` trajectories.
        DataError: shapes that do not fit, or times outside the rollouts.
    """
    curves, true = np.asarray(agreement), np.asarray(true_valid_time)
    if not 0.0 < miss < 1.0:
        raise ConfigError("miss", miss, "a number above 0 and below 1")
    if curves.ndim != 2 or true.shape != curves.shape[1:]:
        found = f"{curves.shape} and {true.shape}"
        raise DataError("calibrate", "shapes of agreement and times", found, "[T, n] and [n]")
    steps, count = curves.shape
    if not ((true >= 0) & (true <= steps)).all():
        found = f"{true.min()} to {true.max()}"
        raise DataError("calibrate", "true_valid_time", found, f"0 to {steps} steps")
    if count < 2 / miss - 1e-9:
        least = math.ceil(2 / miss - 1e-9)
        hint = "more of them (`pde roll`: --calibration FILE)"
        hint += f"; miss {2 / count:.2g} is the smallest for as many" if count > 2 else ""
        raise ConfigError("trajectories", count, f"at least {least} for miss={miss}", hint)
    lowest = np.minimum.accumulate(np.where(np.isfinite(curves), curves, -1.0), 0)
    at = np.minimum(true.astype(int), steps - 1)
    # A trajectory that is valid to the end of its rollout cannot miss.
    scores = np.where(true < steps, lowest[at, np.arange(count)], -1.0)
    allowed = math.floor(miss * (count + 1) + 1e-9)
    level = float(np.sort(scores)[::-1][allowed - 1])
    guess = np.asarray(valid_time(curves))
    ratios = true[guess > 0] / guess[guess > 0]
    factor = float(np.median(ratios)) if len(ratios) else 1.0
    return Trust(level, float(miss), factor, steps, count)


def promised_time(agreement: jax.Array | np.ndarray, trust: Trust) -> jax.Array:
    """Steps that a forecast is promised to stay valid, `[B]` int32 of agreement `[T, B]`."""
    return jnp.minimum(valid_time(agreement, trust.level), trust.steps)


def forecast(
    emulators: Sequence[Rolls],
    fields: Any,
    steps: int,
    trust: Trust | None = None,
    *,
    strides: Sequence[int] = (),
) -> Forecast:
    """Roll several trained emulators from the same fields, with their valid times.

    Args:
        emulators: at least two; `Member` names a training seed or other options of one emulator.
        fields: `[B, C, *space]` starts, or a `FieldSet`, as `roll` takes them.
        steps: number of steps, in units of the longest step that all members share (`strides`).
        trust: a calibration. Rows are cut where agreement falls below both its level and 0.8.
            None: nothing is cut, and the best guess is agreement's own valid time.
        strides: frames per step of each emulator, where they differ; one step of the forecast is
            their least common multiple, and members are compared there.

    Returns:
        A `Forecast` of `steps` steps.

    Raises:
        ConfigError: fewer than two emulators, or strides that do not fit.
        DataError: rollouts of different shapes.
    """
    if len(emulators) < 2:
        raise ConfigError("emulators", len(emulators), "at least 2, whose agreement is measured")
    own = tuple(strides) or (1,) * len(emulators)
    if len(own) != len(emulators) or min(own) < 1:
        raise ConfigError("strides", list(own), f"{len(emulators)} whole numbers of at least 1")
    common = math.lcm(*own)
    rolled = []
    for emulator, stride in zip(emulators, own, strict=True):
        calls = common // stride
        rolled.append(np.asarray(emulator.roll(fields, steps * calls))[calls - 1 :: calls])
    shapes = sorted({each.shape for each in rolled})
    if len(shapes) > 1:
        raise DataError("emulators", "shapes of rollouts", shapes, "one shape")
    members = jnp.asarray(np.stack(rolled))
    if trust is None:
        return _summary(members, jnp.full(members.shape[2], steps, jnp.int32), None)
    going = jnp.cumprod((agreement(members) >= trust.stop).astype(jnp.int32), 0)
    lengths = jnp.minimum(going.sum(0, dtype=jnp.int32) + 1, steps)
    rows = jnp.arange(steps)[:, None] < lengths
    rows = rows.reshape(1, *rows.shape, *(1,) * (members.ndim - 3))
    return _summary(jnp.where(rows, members, 0.0), lengths, trust)


def _summary(members: jax.Array, lengths: jax.Array, trust: Trust | None) -> Forecast:
    agreed = agreement(members)
    space = tuple(range(2, members.ndim - 1))
    spread = jnp.sqrt(members.var(0, ddof=1).mean(space))
    guess = (1.0 if trust is None else trust.factor) * valid_time(agreed).astype(jnp.float32)
    promised = None if trust is None else promised_time(agreed, trust)
    return Forecast(members.mean(0), members, agreed, spread, lengths, guess, promised)
