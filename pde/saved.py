"""Trained emulators on disk, and rolled without the run that made them.

    save_emulator("runs/ks/emulator", trained)
    emulator = load_emulator("runs/ks/emulator")
    fields = emulator.roll(u0, 1000)          # u0 [C, *N] or [B, C, *N] -> [1000, (B,) C, *N]

An emulator's folder holds `emulator.json` (settings of network and objective, sizes, how its
conditions are scaled) and one checkpoint of the (averaged) parameters of all seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.config_json import from_json, to_json
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.record.provenance import provenance
from jaxrl_rollouts.record.saved import (
    find_folder,
    load_params,
    one_seed,
    read_facts,
    reading,
    save_trained,
)
from jaxrl_rollouts.trees import PyTree

from .constant import check_constant, others, told_constant
from .emulator import Emulator, FieldNetwork, Told
from .evaluation import roll_emulator
from .fieldset import CONDITIONS, FieldSet, Scaling, condition_values, from_units, to_units
from .objectives import OneStepConfig, make_one_step
from .operators import NETWORKS, DriftConfig, FnoConfig, ResnetConfig, UnetConfig
from .operators.layers import Points, grid_of
from .refiner import RefinerConfig, make_refiner

FORMAT = 1
FILE = "emulator.json"
OBJECTIVES = {"one_step": (OneStepConfig, make_one_step), "refiner": (RefinerConfig, make_refiner)}


def scalings(names: tuple[str, ...]) -> dict[str, Scaling]:
    """How this library scales conditions of these names."""
    return {name: CONDITIONS.get(name, Scaling()) for name in names}


@dataclass(frozen=True)
class TrainedEmulator:
    """An emulator with the parameters it learned.

    Attributes:
        network, objective: settings it was made with; the residual scale is the objective's.
        params: leading axis = seeds; the moving average where there is one.
        channels, points: of its fields `[C, *N]`, those that change; points of one axis, or of
            each.
        history: `H`, frames it steps from.
        conditions: what it is told about a trajectory, and how that is scaled.
        dt: time from one frame to the next of what it rolls; None where nobody said.
        units: of every channel, for an emulator of standardised fields; () for fields as they are.
        facts: what else is known (data, channel names, length of the domain), for `emulator.json`.
        boundaries: of every axis, as a `FieldSet` has them; none is periodic.
        constant: channels of the data that are constant in time, by their numbers among all
            channels, and how they are scaled: seen at every step, predicted at none.
    """

    network: ResnetConfig | UnetConfig | FnoConfig | DriftConfig
    objective: OneStepConfig | RefinerConfig
    params: PyTree
    channels: int
    points: Points
    history: int = 1
    conditions: Mapping[str, Scaling] = field(default_factory=dict)
    dt: float | None = None
    units: tuple[Scaling, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    boundaries: tuple[str, ...] = ()
    constant: Mapping[int, Scaling] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Channels of the data: those that change and those that are constant."""
        return self.channels + len(self.constant)

    @property
    def changing(self) -> tuple[int, ...]:
        """Numbers of the channels that change, among all."""
        return others(self.width, self.constant)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all channels, where they are known."""
        named = tuple(map(str, self.facts.get("channel_names") or ()))
        return named if len(named) == self.width else ()

    @property
    def grid(self) -> tuple[int, ...]:
        """Points per axis."""
        return grid_of(self.points)

    @functools.cached_property
    def net(self) -> FieldNetwork:
        """Its network."""
        make: Any = NETWORKS[_name(NETWORKS, self.network)][1]
        scalars = sum(map(self._columns, self.conditions))
        sizes = (self.width, self.points, scalars, self.history)
        net = make(self.network, *sizes, self.boundaries)
        return told_constant(net) if self.constant else net

    @functools.cached_property
    def emulator(self) -> Emulator:
        """Its functions, in `units`."""
        make: Any = OBJECTIVES[_name(OBJECTIVES, self.objective)][1]
        return make(self.net, self.objective)

    @property
    def every(self) -> int:
        """Frames of the data per step."""
        return int(self.facts.get("every", 1))

    def start(
        self, found: FieldSet, every: int | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """First frames `[N, (H,) C, *X]` of trajectories, all channels, and what is told of them.

        Args:
            found: the trajectories.
            every: frames of theirs per step; None for as many as in the training data.
        """
        every = every or self.every
        frames = found.read(slice(None), slice(0, (self.history - 1) * every + 1, every))
        told = {name: condition_values(found, name) for name in self.conditions}
        return frames[:, 0] if self.history == 1 else frames, told

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
            initial: one field `[C, *N]` or many `[B, C, *N]`; `[H, C, *N]` or `[B, H, C, *N]`,
                oldest frame first, for an emulator that sees a history. Of all channels, those
                that are constant included; where there is one, several fields may be `[B, *N]`.
                Or trajectories, whose first frames and conditions are taken.
            steps: how many.
            key: consumed by stochastic emulators, or the number to make one of.
            conditions: values in the data's own units, one number for all or `[B]`, by name; `dx`
                of several axes `[B, axes]`.
            seed: which of the trained seeds.

        Returns:
            `[steps, C, *N]` or `[steps, B, C, *N]` float32, the start left out; constant channels
            are what they were.

        Raises:
            DataError: fields of another shape, or not finite; or a constant channel that changes
                within a history; or more steps than the free memory holds.
            ConfigError: `steps` below 1; conditions that are not the emulator's, or any beside
                trajectories.
            CheckpointError: there is no such seed.
        """
        if steps < 1:
            raise ConfigError("steps", steps, "at least 1")
        params = one_seed(self.params, seed)
        if isinstance(initial, FieldSet):
            if conditions is not None:
                expected = "none beside trajectories, which have their own"
                hint = "give their first frames instead: roll(emulator.start(fields)[0], ...)"
                raise ConfigError("conditions", sorted(conditions), expected, hint)
            initial, conditions = self.start(initial)
        fields, single = self._fields(initial)
        # Of the program, and a copy in other units.
        check_room("roll", f"{steps:,} steps", 2 * 4 * steps * fields[:, -1].size)
        told: Any = self._told(conditions or {}, len(fields))
        held = fields[:, -1, list(self.constant)]
        if self.constant:
            check_constant("initial", fields, self.constant, self.names)
            seen = to_units(tuple(self.constant.values()), held, len(self.grid))
            told = Told(told, jnp.asarray(seen))
        moving = fields[:, :, list(self.changing)] if self.constant else fields
        start = jnp.asarray(moving.reshape(len(fields), -1, *self.grid))
        key = jax.random.key(key) if isinstance(key, int) else key
        units, axes = self.units or (Scaling(),) * self.channels, len(self.grid)
        start = to_units(units * self.history, start, axes)
        rolled = np.asarray(_roll(self.emulator)(params, start, told, key, steps))
        rolled = from_units(units, rolled, axes)
        if self.constant:
            whole = np.empty((*rolled.shape[:2], self.width, *self.grid), rolled.dtype)
            whole[:, :, list(self.changing)], whole[:, :, list(self.constant)] = rolled, held
            rolled = whole
        return rolled[:, 0] if single else rolled

    def save(self, folder: str | Path) -> Path:
        """See `save_emulator`."""
        return save_emulator(folder, self)

    def _fields(self, initial: ArrayLike) -> tuple[np.ndarray, bool]:
        """`[B, H, C, *N]` of all channels, and whether it was one field."""
        values = np.asarray(initial, np.float32)
        shape = (self.width, *self.grid)
        shape = shape if self.history == 1 else (self.history, *shape)
        if self.width == self.history == 1 and values.ndim == len(shape) and len(values) > 1:
            values = values[:, None]  # `[B, *N]`, as they lie in an array of one channel
        single = values.ndim == len(shape)
        many = values[None] if single else values
        if many.ndim != len(shape) + 1 or many.shape[1:] != shape or not len(many):
            expected = f"{list(shape)} or {['B', *shape]}".replace("'", "")
            raise DataError("initial", "shape", list(values.shape), expected)
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))[0].tolist()
            raise DataError("initial", f"entry {bad}", values[tuple(bad)], "a finite number")
        return many.reshape(len(many), self.history, self.width, *self.grid), single

    def _columns(self, name: str) -> int:
        """How many scalars a condition is: a spacing for every axis, one of all others."""
        return len(self.grid) if name == "dx" else 1

    def _told(self, given: Mapping[str, ArrayLike], rows: int) -> jax.Array:
        """Scaled conditions `[B, P]`."""
        if set(given) != set(self.conditions):
            expected = f"{sorted(self.conditions)}, which the emulator was trained with"
            raise ConfigError("conditions", sorted(given), expected)
        columns = [np.zeros((rows, 0))]
        for name, scaling in self.conditions.items():
            values, width = np.asarray(given[name], np.float64), self._columns(name)
            known = ((), (1,), (rows,), (rows, width))
            if values.shape not in known or not np.isfinite(values).all():
                expected = f"one finite number or {rows}" + f" x {width}" * (width > 1)
                raise ConfigError(f"conditions.{name}", values.tolist(), expected)
            single = values.reshape(-1, 1) if values.ndim < 2 else values
            columns.append(np.broadcast_to(scaling.tell(name, single), (rows, width)))
        return jnp.asarray(np.concatenate(columns, 1), jnp.float32)


@functools.lru_cache(maxsize=32)
def _roll(emulator: Emulator) -> Any:
    return jax.jit(functools.partial(roll_emulator, emulator), static_argnums=4)


def save_emulator(folder: str | Path, trained: TrainedEmulator) -> Path:
    """Write an emulator with the parameters of all its seeds; the folder is made if need be."""
    facts = {
        **trained.facts,
        "format": FORMAT,
        "network": {_name(NETWORKS, trained.network): to_json(trained.network)},
        "objective": {_name(OBJECTIVES, trained.objective): to_json(trained.objective)},
        "channels": trained.channels,
        "points": trained.points if len(trained.grid) == 1 else list(trained.grid),
        "boundaries": list(trained.boundaries),
        "constant": {str(channel): list(unit) for channel, unit in trained.constant.items()},
        "history": trained.history,
        "conditions": {name: list(scaling) for name, scaling in trained.conditions.items()},
        "dt": trained.dt,
        "units": [list(unit) for unit in trained.units],
        "versions": provenance(),
    }
    return save_trained(folder, FILE, facts, trained.params)


@reading(FILE, "an emulator")
def load_emulator(folder: str | Path) -> TrainedEmulator:
    """Read what `save_emulator` wrote; the folder, or one that holds a single emulator.

    Raises:
        CheckpointError: there is none or several, or it cannot be read.
        ConfigError: its settings are not this library's.
    """
    folder = find_folder(folder, FILE, "emulator")
    path = folder / FILE
    sizes = ("channels", "history")
    facts = read_facts(path, "an emulator's folder", FORMAT, sizes)
    dt = facts.get("dt")
    if not (dt is None or isinstance(dt, int | float)):
        raise CheckpointError(f"{path}: dt: found {dt!r}, expected a number or null")
    trained = TrainedEmulator(
        _config(path, "network", facts, NETWORKS),
        _config(path, "objective", facts, OBJECTIVES),
        None,
        facts["channels"],
        _points(path, facts.get("points")),
        facts["history"],
        _scalings(path, facts.get("conditions")),
        dt,
        tuple(_scalings(path, dict(enumerate(facts.get("units") or []))).values()),
        facts,
        tuple(map(str, facts.get("boundaries") or ())),
        _constant(path, facts.get("constant") or {}, facts["channels"]),
    )
    return replace(trained, params=load_params(folder, trained.emulator.init, facts["seeds"]))


def _name(table: Mapping[str, tuple], config: Any) -> str:
    return next(name for name, (kind, _) in table.items() if type(config) is kind)


def _config(path: Path, key: str, facts: Mapping[str, Any], table: Mapping[str, tuple]) -> Any:
    given = facts.get(key)
    if not isinstance(given, dict) or len(given) != 1 or next(iter(given)) not in table:
        found = sorted(given) if isinstance(given, dict) else given
        raise CheckpointError(f"{path}: {key}: found {found!r}, expected one of {', '.join(table)}")
    ((name, settings),) = given.items()
    return from_json(table[name][0], settings, f"{path}: {key}")


def _points(path: Path, given: Any) -> Points:
    listed = given if isinstance(given, list) else [given]
    if not 1 <= len(listed) <= 3 or not all(type(n) is int and n >= 1 for n in listed):
        expected = "a whole number of at least 1, or one for each of up to three axes"
        raise CheckpointError(f"{path}: points: found {given!r}, expected {expected}")
    return tuple(listed) if isinstance(given, list) else given


def _constant(path: Path, given: Any, channels: int) -> dict[int, Scaling]:
    found = _scalings(path, given)
    width = channels + len(found)
    try:
        numbers = {int(name): scaling for name, scaling in found.items()}
    except ValueError:
        numbers = {}
    if len(numbers) != len(found) or not {*numbers} <= {*range(width)}:
        expected = f"different numbers of channels, from 0 to {width - 1}"
        raise CheckpointError(f"{path}: constant: found {sorted(found)}, expected {expected}")
    return dict(sorted(numbers.items()))


def _scalings(path: Path, given: Any) -> dict[str, Scaling]:
    try:
        return {name: Scaling(*map(float, numbers)) for name, numbers in given.items()}
    except (AttributeError, TypeError, ValueError):
        expected = "names with shift and factor"
        raise CheckpointError(f"{path}: conditions: found {given!r}, expected {expected}") from None
