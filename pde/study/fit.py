"""An emulator of fields of your own, in one call.

fields = from_arrays(u, dt=0.1)                  # u [N, T, X]
fitted = fit("refiner", fields, updates=5000, seeds=2)
rolled = fitted.roll(u[:, 0], 1000)              # [1000, N, 1, X]
fitted.save("emulator")
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.devices import BATCH
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree

from ..constant import changing, check_changing, constant_fields, never_changing, others
from ..equations import EQUATIONS
from ..fieldset import FieldSet
from ..files import from_arrays, read_fields
from ..objectives import OBJECTIVES, OneStepConfig
from ..operators import NETWORKS, DriftConfig, FnoConfig, ResnetConfig, UnetConfig
from ..refiner import RefinerConfig
from ..saved import TrainedEmulator
from ..streaming import all_fields, trajectories, windows_feed
from ..training import TrainingConfig, make_training
from .units import (
    channel_units,
    condition_scalings,
    constant_units,
    learned_from,
    scaled,
    standardised,
    step_scale,
    told,
)

Objective = RefinerConfig | OneStepConfig
Network = ResnetConfig | UnetConfig | FnoConfig | DriftConfig


class Fitted(NamedTuple):
    """A trained emulator, all seeds.

    Attributes:
        emulator: what is saved, with the averaged weights `[seeds, ...]`.
        trained: what the loop returned.
    """

    emulator: TrainedEmulator
    trained: Trained

    @property
    def every(self) -> int:
        """Frames of the data per step."""
        return self.emulator.every

    @property
    def history(self) -> History:
        """The loss and other metrics over training."""
        return self.trained.history

    @property
    def params(self) -> PyTree:
        """The averaged weights, `[seeds, ...]`."""
        return self.emulator.params

    def roll(
        self,
        initial: ArrayLike | FieldSet,
        steps: int,
        key: jax.Array | int = 0,
        *,
        conditions: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Roll fields forward.

        Args:
            initial: `[N, C, *X]`, `[N, *X]` of a single channel, or `[N, H, C, *X]` for an emulator
                with a history; or trajectories, whose first frames and conditions are taken.
            steps: how many.
            key: consumed by stochastic emulators, or the number to make one of.
            conditions: values in the data's units, one or `[N]`, by name.
            seed: which of the trained seeds.

        Returns:
            `[steps, N, C, *X]` float32 in the data's units, the start left out.

        Raises:
            DataError: fields of another shape, or not finite.
            ConfigError: `steps` below 1, or conditions that are not the emulator's.
        """
        own = self.emulator
        start: Any = initial
        if not isinstance(start, FieldSet):
            start = np.asarray(start)
            if own.width == own.history == 1 and start.ndim == 1 + len(own.grid):
                start = start[:, None]
        return own.roll(start, steps, key, conditions=conditions, seed=seed)

    def save(self, folder: str | Path) -> Path:
        """Write it, to be read by `load_emulator`; returns the folder."""
        return self.emulator.save(folder)


def fit(
    objective: str | Objective,
    fields: FieldSet | str | Path | ArrayLike,
    *,
    network: str | Network = "resnet",
    conditions: tuple[str, ...] | None = None,
    history: int = 1,
    every: int = 1,
    updates: int | None = None,
    seeds: int = 1,
    key: jax.Array | int = 0,
    training: TrainingConfig | None = None,
    stage: str = "emulator",
    context: RunContext | None = None,
    stream: Stream = "auto",
) -> Fitted:
    """Train an emulator on trajectories of fields, all seeds side by side.

    Channels are standardised, the residual scale is the standard deviation of a step's change, of
    each channel, and conditions are told on a scale from 0 to 10: all three are measured on
    `fields` and kept with the emulator, as are the boundaries, which say how the network goes on
    beyond the ends of an axis.

    Channels that are constant in time, by the file's word or because they never change, are seen at
    every step and neither predicted nor counted in a loss or an error.

    Args:
        objective: `mse`, `refiner`, another name of `OneStepConfig`, or a configuration, whose
            residual scale is replaced.
        fields: of `from_arrays` or `read_fields`; or an array or a file, for those.
        network: `resnet`, `unet`, `fno`, `drift`, or a configuration.
        conditions: what the emulator is told: `dt`, `dx` and parameters; None for those that
            differ between the trajectories.
        history: frames it sees.
        every: frames of the data per step.
        updates: gradient steps; instead of the training's.
        seeds: how many emulators.
        key: consumed, or the number to make one of.
        training: batch, learning rate and so on. Windows are moved around the circle along axes
            that are known to be periodic, unless the equation is known to be forced there; its
            `shift_axes` decide otherwise, also for axes of which nothing is known.
        stage, context: as for `loop.train`.
        stream: leave the fields on the disk and read windows while training: `auto`, where they
            do not fit into memory; `always`; `never`.

    Raises:
        ConfigError: an unknown name, or a setting out of range.
        DataError: fields that the networks here cannot do, or that never change; or others than
            an earlier session of the run had.
        DivergenceError: the loss became NaN or infinite.
        Interrupted: the context's stop flag was raised.
    """
    found = _fields(fields)
    check_changing(found)
    config, net = _objective(objective), _network(network)
    if min(history, every, seeds) < 1:
        raise ConfigError("history, every, seeds", (history, every, seeds), "each at least 1")
    found, u = parted(found, stream)
    moving = changing(found)
    hold_fields(found, u, stage, context)
    units = channel_units(moving, u)
    scalings, constant = condition_scalings(found, conditions), constant_units(found)
    facts = {"every": every, "channel_names": list(found.channels), "data": found.path.name}
    if len({*map(tuple, found.extent.tolist())}) == 1 and np.isfinite(found.extent).all():
        facts["extent"] = found.extent[0].tolist()
    own = TrainedEmulator(
        net,
        replace(config, residual_scale=step_scale(moving, u, units, every)),
        None,
        u.shape[2],
        found.shape[3] if len(found.shape) == 4 else found.shape[3:],
        history,
        scalings,
        _mean_dt(found, every),
        units,
        facts,
        boundaries=found.boundaries,
        constant=constant,
    )
    needed = (own.emulator.frames - 1) * every + 1
    if u.shape[1] < needed:
        raise DataError(found.path, "frames", u.shape[1], f"at least {needed}, a training window")
    training = _training(training, updates, every, found)
    functions = make_training(own.emulator, training)
    data: Any = (
        windows_feed(
            u,
            told(found, scalings, constant),
            functools.partial(scaled, units, axes=len(own.grid)),
            own.emulator.frames,
            training,
        )
        if isinstance(u, np.memmap)
        else standardised(found, u, units, scalings, constant)
    )
    first = jax.random.key(key) if isinstance(key, int) else key
    trained = train(
        functions.update,
        functions.init,
        jax.random.split(first, seeds),
        data,
        iterations=functions.iterations,
        stage=stage,
        units_per_iteration=training.per_iteration,
        alone=(BATCH, training.batch),
        context=context,
        about=learned_from(own, config, training),
    )
    return Fitted(replace(own, params=trained.state.average), trained)


def parted(found: FieldSet, stream: Stream) -> tuple[FieldSet, np.ndarray]:
    """The set with all its constant channels named, and `all_fields` of those that change.

    A channel that the file holds for every frame and that never changes is said and made one.

    Raises:
        DataError: nothing changes.
    """
    moving = changing(found)
    u = all_fields(moving, stream)
    still = never_changing(u, trajectories(u.shape))
    if not still:
        return found, u
    numbers = np.asarray(others(found.shape[2], found.constant))[list(still)]
    found = found._replace(constant=tuple(sorted({*found.constant, *numbers.tolist()})))
    check_changing(found)
    names = ", ".join(moving.channels[i] for i in still) or "a channel"
    warnings.warn(
        f"{found.path.name}: {names}: the same in every frame: held constant, seen at every step "
        "and not predicted",
        stacklevel=3,
    )
    return found, all_fields(changing(found), stream)


def hold_fields(found: FieldSet, u: np.ndarray, part: str, context: RunContext | None) -> None:
    """`DataError` where a run that goes on would see other fields than it began with.

    Args:
        found: where the fields are from, with the constant channels.
        u: the fields that change.
        part: what they are used for.
        context: None holds nothing.
    """
    if context:
        digest = hashlib.sha256(np.ascontiguousarray(u).data)
        if found.constant:
            digest.update(np.ascontiguousarray(constant_fields(found, found.constant)).data)
        sha256 = digest.hexdigest()
        context.folder.hold(f"{found.path.name} ({part})", sha256=sha256, shape=list(u.shape))


def _fields(given: FieldSet | str | Path | ArrayLike) -> FieldSet:
    if isinstance(given, FieldSet):
        return given
    return read_fields(given) if isinstance(given, str | Path) else from_arrays(given)


def _objective(given: str | Objective) -> Objective:
    if not isinstance(given, str):
        return given
    if given == "refiner":
        return RefinerConfig()
    if given not in OBJECTIVES:
        raise unknown("objective", given, ("refiner", *OBJECTIVES))
    name: Any = given
    return OneStepConfig(objective=name)


def _network(given: str | Network) -> Network:
    if not isinstance(given, str):
        return given
    if given not in NETWORKS:
        raise unknown("network", given, NETWORKS)
    return NETWORKS[given][0]()


def _training(
    training: TrainingConfig | None, updates: int | None, every: int, found: FieldSet
) -> TrainingConfig:
    """The training's settings, for so many updates, moving windows along circles only."""
    training = training or TrainingConfig()
    if updates is not None and updates >= 1:
        per = max(n for n in range(1, 101) if updates % n == 0)
        warmup = min(training.warmup, updates // 10)
        training = replace(training, updates=updates, warmup=warmup, per_iteration=per)
    elif updates is not None:
        raise ConfigError("updates", updates, "at least 1")
    circles = training.shift_axes
    if circles is None:
        forced = EQUATIONS[found.equation].forced if found.equation else ()
        kinds = enumerate(found.boundaries)
        circles = tuple(axis for axis, kind in kinds if kind == "periodic" and axis not in forced)
    _check_circles(circles, found)
    shift = training.shift and bool(circles)
    return replace(training, every=every, shift=shift, shift_axes=circles or None)


def _check_circles(axes: tuple[int, ...], found: FieldSet) -> None:
    """`ConfigError` where windows cannot be moved along one of the axes: a wall, or no axis."""
    count = len(found.shape[3:])
    for axis in axes:
        if not 0 <= axis < count:
            known = "0" if count == 1 else f"0 to {count - 1}"
            raise ConfigError("shift_axes", list(axes), f"axes of space: {known}")
        kind = found.boundaries[axis] if found.boundaries else ""
        if kind not in ("", "periodic"):
            expected = f"periodic axes; {found.path.name} says that axis {axis} is: {kind}"
            raise ConfigError("shift_axes", list(axes), expected)


def _mean_dt(found: FieldSet, every: int) -> float | None:
    """Time of a step; None where the file does not say it."""
    return every * float(found.dt.mean()) if np.isfinite(found.dt).all() else None
