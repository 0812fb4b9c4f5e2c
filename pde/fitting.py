"""An emulator of your own fields, in one call.

fields = from_arrays(u, dt=0.1)                  # u [N, T, X]
fitted = fit("mse", fields, steps=5000, seeds=2)
rolled = fitted.roll(u[:, 0], 1000)              # [1000, N, 1, X]
fitted.save("emulator")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.configs import Range as Bounds
from jaxrl_rollouts.configs import renamed
from jaxrl_rollouts.descent import AveragedState
from jaxrl_rollouts.devices import BATCH, check_devices
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.finite import OnDivergence, marked_rows
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.outside import to_numbers
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.trees import PyTree

from .adapters import NetworkLike, network_like
from .constant import changing, check_changing
from .emulator import Emulator, Objective
from .fieldset import FieldSet, to_units
from .precision import lean
from .registries import OBJECTIVES
from .step_sizes import strided
from .streaming import windows_feed
from .trained import Range, TrainedEmulator
from .training import Training, make_training, over_devices, training_of
from .training_fields import FieldsLike, fieldset_of, hold_fields, parted
from .units import (
    channel_units,
    condition_scalings,
    conditions_of,
    constant_units,
    learned_from,
    standardised,
    step_scale,
)
from .validation import Validation


class Fitted(NamedTuple):
    """A trained emulator, all seeds.

    Attributes:
        emulator: with the averaged weights `[seeds, ...]`: the last ones, or where
            there was a validation those whose error was lowest.
        trained: what the loop returned.
        training: settings of its training, with defaults filled in.
    """

    emulator: TrainedEmulator
    trained: Trained
    training: Training

    __repr__ = brief

    @property
    def stride(self) -> int:
        """Frames of the data per step."""
        return self.emulator.stride

    @property
    def history(self) -> History:
        """The loss and other metrics over training, `validation_error` among them."""
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
            steps: number of steps.
            key: consumed by stochastic emulators, or the number to make one of.
            conditions: values in the data's units, one or `[N]`, by name.
            seed: index of the trained seed.

        Returns:
            `[steps, N, C, *X]` in the data's units, the start left out; float64 where `initial` is.
        """
        own = self.emulator
        start: Any = initial
        if not isinstance(start, FieldSet):
            start = to_numbers("initial", "fields", start)
            if own.width == own.history == 1 and start.ndim == 1 + len(own.grid):
                start = start[:, None]
        return own.roll(start, steps, key, conditions=conditions, seed=seed)

    def save(self, folder: str | Path) -> Path:
        """Write it, to be read by `load_emulator`; returns the folder."""
        return self.emulator.save(folder)


@renamed(updates="steps")
def fit(
    objective: str | Objective,
    fields: FieldsLike,
    *,
    network: str | NetworkLike = "resnet",
    conditions: tuple[str, ...] | None = None,
    history: int = 1,
    stride: int = 1,
    strides: tuple[int, ...] = (),
    steps: int | None = None,
    seeds: int = 1,
    key: jax.Array | int = 0,
    training: Training | None = None,
    start: PyTree | None = None,
    validation: FieldsLike | None = None,
    evaluations: int = 20,
    stage: str = "emulator",
    context: RunContext | None = None,
    stream: Stream = "auto",
    on_divergence: OnDivergence = "raise",
) -> Fitted:
    """Train an emulator on trajectories of fields, all seeds side by side.

    Channels are standardised, the residual scale is the standard deviation of a step's change, of
    each channel, and conditions are scaled to 0 to 10: all three are measured on `fields` and kept
    with the emulator, as are the boundaries, which set the network's padding beyond the ends of
    an axis.

    Channels that are constant in time, as declared or in fact, are inputs at
    every step, and not part of predictions, losses and errors.

    Args:
        objective: `mse`, `refiner`, `unrolled` or another of `registries.OBJECTIVES`; or settings:
            `Unrolled(length=9)`.
        fields: result of `from_arrays` or `read`; or an array, or one or several files.
        network: `resnet`, `unet`, `fno`, `drift` or another of `registries.NETWORKS`; settings; or
            a network of one's own: a flax Linen module, two functions, `from_equinox` (`adapters`).
        conditions: further inputs: `dt`, `dx` and parameters; None for those that
            differ between the trajectories.
        history: frames it sees.
        stride: frames of the data per step.
        strides: step sizes to train on side by side, in frames, the first one that of a rollout;
            the emulator sees dt. Seeds at other step sizes are further members of its forecasts.
        steps: gradient steps; instead of the training's.
        seeds: number of emulators.
        key: consumed, or the number to make one of.
        training: batch, learning rate and so on. Windows are moved around the circle along axes
            that are known to be periodic, unless the equation is known to be forced there; its
            `shift_axes` decide otherwise, also for axes of which nothing is known.
        start: parameters `[seeds, ...]` to begin with instead of new ones.
        validation: other trajectories, given as `fields` are; the error of a step on them is in the
            history, and the weights of the lowest are kept for each seed.
        evaluations: number of these evaluations.
        stage, context: as for `train_loop`.
        stream: leave the fields on the disk and read windows while training: `auto`, where they
            do not fit into memory; `always`; `never`.
        on_divergence: as for `train_loop`; the parameters of a seed that was dropped are NaN, and
            a rollout of it is a `CheckpointError`.

    Raises:
        ConfigError: an unknown name, or a setting out of range.
        DataError: fields that the networks here cannot do, or that never change; or others than
            an earlier session of the run had.
        DivergenceError: the loss became NaN or infinite.
        Interrupted: the context's stop flag was raised.
    """
    check_devices()
    config, net = objective_of(objective), network_like(network)
    data_set = fieldset_of(fields)
    held = None if validation is None else fieldset_of(validation)
    check_changing(data_set)
    _check_counts(history=history, stride=stride, seeds=seeds)
    single = data_set
    if strides:
        _check_strides(strides, stride)
        data_set = strided(data_set, strides)
        held = None if held is None else strided(held, strides)
    data_set, u = parted(data_set, stream)
    hold_fields(data_set, u, stage, context)
    own = untrained(config, net, data_set, u, conditions, history, stride)
    if strides:
        own = _striding(own, strides, _mean_dt(single, stride))
    _check_frames(data_set, u.shape[1], (own.emulator.frames - 1) * stride + 1)
    often = evaluations if held is not None else 1
    training = training_of(training, steps, stride, data_set, often)
    functions = make_training(_lean(own, training), training)
    data = _data(data_set, u, own, training)
    begin, keys = _beginning(functions.init, jax.random.split(as_key(key), seeds), start)
    validated = Validation.of(own, held) if held is not None else None
    trained = train_loop(
        functions.update,
        begin,
        keys,
        data,
        iterations=functions.iterations,
        stage=stage,
        units_per_iteration=training.per_iteration,
        evaluate=validated,
        evaluate_every=max(1, functions.iterations // often) if validated else None,
        mesh=over_devices(training, u.shape[3]),
        batch_axis=(BATCH, training.batch),
        context=context,
        about=learned_from(own, config, training),
        on_divergence=on_divergence,
    )
    return Fitted(replace(own, params=_kept(validated, trained)), trained, training)


def _check_frames(fields: FieldSet, found: int, needed: int) -> None:
    if found < needed:
        raise DataError(fields.path, "frames", found, f"at least {needed} for a window")


def _lean(own: TrainedEmulator, training: Training) -> Emulator:
    """The emulator as it is trained; the one that is rolled where that is float32 and whole."""
    net = lean(own.net, training.precision, training.remat)
    return own.emulator if net is own.net else own.objective.make(net, own.scale)


def _kept(validated: Validation | None, trained: Trained) -> PyTree:
    """Averaged weights `[seeds, ...]`; NaN of a seed that diverged, whatever was kept before."""
    if validated is None or not trained.diverged:
        return validated.best if validated else trained.state.average
    seeds = jax.tree.leaves(validated.best)[0].shape[0]
    return marked_rows(validated.best, np.isin(np.arange(seeds), list(trained.diverged)))


def _data(fields: FieldSet, u: np.ndarray, own: TrainedEmulator, training: Training) -> Any:
    """What the loop trains on: fields in memory, or a feed of windows of those on the disk."""
    if not isinstance(u, np.memmap):
        return standardised(fields, u, own.units, own.conditions, own.constant)
    conditions = conditions_of(fields, own.conditions, own.constant)
    scale = functools.partial(to_units, own.units, axes=len(own.grid))
    return windows_feed(u, conditions, scale, own.emulator.frames, training)


def untrained(
    objective: Objective,
    network: NetworkLike,
    fields: FieldSet,
    u: np.ndarray,
    conditions: tuple[str, ...] | None = None,
    history: int = 1,
    stride: int = 1,
) -> TrainedEmulator:
    """An emulator without parameters, with everything that is measured on its training data."""
    moving = changing(fields)
    units = channel_units(moving, u)
    facts = {"stride": stride, "channel_names": list(fields.channels), "data": fields.path.name}
    facts |= {"every": fields.every}
    known = np.isfinite(fields.extent).all()
    return TrainedEmulator(
        network,
        objective,
        step_scale(moving, u, units, stride),
        None,
        u.shape[2],
        fields.shape[3] if len(fields.shape) == 4 else fields.shape[3:],
        history,
        condition_scalings(fields, conditions),
        _mean_dt(fields, stride),
        units,
        facts,
        boundaries=fields.boundaries,
        constant=constant_units(fields),
        extent=tuple(map(_ends, fields.extent.T)) if known else (),
        parameters={name: _ends(values) for name, values in fields.parameters.items()},
    )


def _ends(values: np.ndarray) -> Range:
    return float(values.min()), float(values.max())


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        Bounds(least=1).check(name, count)


def _check_strides(strides: Sequence[int], stride: int) -> None:
    if stride != 1 or strides[0] != 1:
        raise ConfigError("strides", list(strides), "1 first, and stride=1")


def _striding(own: TrainedEmulator, strides: Sequence[int], dt: float | None) -> TrainedEmulator:
    """The emulator with the strides that it sees as conditions; `dt` is that of a single frame."""
    if "dt" not in own.conditions:
        raise ConfigError("conditions", list(own.conditions), "dt among them, with strides")
    return replace(own, facts={**own.facts, "strides": list(strides)}, dt=dt)


def _beginning(
    init: Callable[..., AveragedState], keys: jax.Array, start: PyTree | None
) -> tuple[Callable[..., AveragedState], Any]:
    """`init` of `train_loop` and its first argument: keys, with parameters where some are given."""
    return (init, keys) if start is None else (_from_params(init), (keys, start))


@functools.lru_cache(maxsize=8)
def _from_params(init: Callable[..., AveragedState]) -> Callable[..., AveragedState]:
    def begin(given: tuple[jax.Array, PyTree], data: PyTree) -> AveragedState:
        key, params = given
        return init(key, data)._replace(params=params, average=params)

    return begin


def objective_of(given: str | Objective) -> Objective:
    """Settings of an objective, of a name or themselves."""
    if isinstance(given, str):
        return OBJECTIVES[given]()
    if isinstance(given, type) or not callable(getattr(given, "make", None)):
        found = given.__name__ if isinstance(given, type) else type(given).__name__
        hint = f"give an object of it: {found}()" if isinstance(given, type) else ""
        expected = f"a name or settings of {', '.join(OBJECTIVES)}"
        raise ConfigError("objective", found, expected, hint)
    return given


def _mean_dt(fields: FieldSet, stride: int) -> float | None:
    """Time of a step; None where it is not known."""
    return stride * float(fields.dt.mean()) if np.isfinite(fields.dt).all() else None
