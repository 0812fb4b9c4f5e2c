"""A trained emulator: rolls fields in the data's units, without the run that made it.

emulator = load_emulator("runs/ks/emulator")
fields = emulator.roll(u0, 1000)          # u0 [C, *N] or [B, C, *N] -> [1000, (B,) C, *N]
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

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.config_json import to_json
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.outside import to_numbers
from jaxrl_rollouts.record.provenance import provenance
from jaxrl_rollouts.record.saved import one_seed, save_trained
from jaxrl_rollouts.registry import Registry
from jaxrl_rollouts.trees import PyTree

from .adapters import NetworkLike, built
from .boundaries import between_ends
from .constant import check_constant, others, with_constant
from .emulator import (
    Conditioning,
    Emulator,
    FieldNetwork,
    FieldShape,
    Objective,
    Points,
    Scale,
    grid_of,
)
from .field import roll_emulator
from .fieldset import FieldSet, Scaling, condition_values, from_units, to_units
from .ranges import check_parameters
from .registries import NETWORKS, OBJECTIVES

Range = tuple[float, float]

FORMAT = 2
FILE = "emulator.json"
CUSTOM = "custom"  # the key of a network that is neither this library's nor announced


@dataclass(frozen=True)
class TrainedEmulator:
    """An emulator with the parameters it learned.

    Attributes:
        network: it steps with; settings, or a network of one's own.
        objective: it was trained by.
        scale: c of a step `u + c net(u)`, one for all channels or one for each.
        params: leading axis = seeds; the moving average where there is one.
        channels, points: those of its fields `[C, *N]`, those that change; points of one axis, or
            of each.
        history: `H`, frames it steps from.
        conditions: inputs from a trajectory's parameters, and their scaling.
        dt: time from one frame to the next of what it rolls; None where it is not known.
        units: units of every channel, for an emulator of standardised fields; () for fields as they
            are.
        facts: further metadata (data, channel names), for `emulator.json`.
        boundaries: boundaries of every axis, as a `FieldSet` has them; none is periodic.
        constant: channels of the data that are constant in time, by their numbers among all
            channels, and how they are scaled: seen at every step, predicted at none.
        extent: lowest and highest length of every axis of the training data; () where it is not
            known.
        parameters: lowest and highest value of every parameter of the training data, by name, those
            that did not vary included.
    """

    network: NetworkLike
    objective: Objective
    scale: Scale
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
    extent: tuple[Range, ...] = ()
    parameters: Mapping[str, Range] = field(default_factory=dict)

    __repr__ = brief

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

    @property
    def lengths(self) -> tuple[float, ...]:
        """Mean length of every axis; () where it is not known."""
        return tuple((low + high) / 2 for low, high in self.extent)

    @functools.cached_property
    def net(self) -> FieldNetwork:
        """Its network."""
        scalars = sum(map(self._columns, self.conditions))
        bundle = getattr(self.objective, "bundle", 1)
        shape = FieldShape(
            self.width, self.points, scalars, self.history, self.boundaries, self.lengths, bundle
        )
        net = built(self.network, shape)
        net = with_constant(net) if self.constant else net
        units = self.units or (Scaling(),) * self.channels
        return between_ends(net, tuple(self.boundaries), units)

    @functools.cached_property
    def emulator(self) -> Emulator:
        """Its functions, in `units`."""
        return self.objective.make(self.net, self.scale)

    @property
    def stride(self) -> int:
        """Frames of the data per step."""
        return int(self.facts.get("stride", 1))

    @property
    def every(self) -> int:
        """Frames of the file per frame of the data."""
        return int(self.facts.get("every", 1))

    def on_grid(self, points: Points) -> TrainedEmulator:
        """The same parameters on another grid.

        An `Fno` keeps its wavenumbers: the domain stays as it is, in more or fewer points. Networks
        of convolutions keep their reach in points: the spacing stays, and the domain grows.

        Raises:
            ConfigError: another number of axes, a grid that the network cannot have, or a network
                whose parameters belong to one grid.
        """
        keeps = getattr(self.network, "on_other_grids", "")
        if keeps not in ("extent", "spacing"):
            found = type(self.network).__name__
            expected = "Fno, Resnet, Unet, ConvNext or Transolver: of others the parameters "
            expected += "belong to one grid"
            raise ConfigError("network", found, expected)
        grid = grid_of(points)
        if len(grid) != len(self.grid):
            raise ConfigError("points", points, f"points of {len(self.grid)} axes")
        extent = self.extent
        if keeps == "spacing":
            times = [new / old for new, old in zip(grid, self.grid, strict=True)]
            ends = zip(extent, times[: len(extent)], strict=True)
            extent = tuple((low * by, high * by) for (low, high), by in ends)
        other = replace(self, points=points, extent=extent)
        _ = other.net  # refuses what the network cannot have
        return other

    def start(
        self, fields: FieldSet, stride: int | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """First frames `[N, (H,) C, *X]` of trajectories, all channels, and their conditions.

        Args:
            fields: the trajectories.
            stride: frames of theirs per step; None for as many as in the training data.
        """
        stride = stride or self.stride
        frames = fields.read(slice(None), slice(0, (self.history - 1) * stride + 1, stride))
        conditions = {name: condition_values(fields, name) for name in self.conditions}
        return frames[:, 0] if self.history == 1 else frames, conditions

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
            steps: number of steps.
            key: consumed by stochastic emulators, or the number to make one of.
            conditions: values in the data's own units, one number for all or `[B]`, by name; `dx`
                of several axes `[B, axes]`.
            seed: index of the trained seed.

        Returns:
            `[steps, C, *N]` or `[steps, B, C, *N]`, the start left out, float64 where the fields
            given are, else float32; constant channels are what they were.
        """
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise ConfigError("steps", steps, "a whole number from 1")
        params = one_seed(self.params, seed)
        if isinstance(initial, FieldSet):
            if conditions is not None:
                expected = "none beside trajectories, which have their own"
                hint = "give their first frames instead: roll(emulator.start(fields)[0], ...)"
                raise ConfigError("conditions", sorted(conditions), expected, hint)
            check_parameters(self, initial)
            initial, conditions = self.start(initial)
        fields, single = self._fields(initial)
        # Of the program, and a copy in other units.
        each = 4 + fields.dtype.itemsize
        check_room("roll", f"{steps:,} steps", each * steps * fields[:, -1].size)
        given: Any = self._scaled(conditions or {}, len(fields))
        held = fields[:, -1, list(self.constant)]
        if self.constant:
            check_constant("initial", fields, self.constant, self.names)
            seen = to_units(tuple(self.constant.values()), held, len(self.grid))
            given = Conditioning(given, jnp.asarray(seen))
        moving = fields[:, :, list(self.changing)] if self.constant else fields
        start = moving.reshape(len(fields), -1, *self.grid)
        key = as_key(key)
        units, axes = self.units or (Scaling(),) * self.channels, len(self.grid)
        start = jnp.asarray(to_units(units * self.history, start, axes))
        rolled = np.asarray(_roll(self.emulator)(params, start, given, key, steps))
        rolled = from_units(units, rolled, axes, fields.dtype)
        if self.constant:
            whole = np.empty((*rolled.shape[:2], self.width, *self.grid), rolled.dtype)
            whole[:, :, list(self.changing)], whole[:, :, list(self.constant)] = rolled, held
            rolled = whole
        return rolled[:, 0] if single else rolled

    def save(self, folder: str | Path) -> Path:
        """Write it, with the parameters of all seeds, into a folder for `load_emulator`.

        Args:
            folder: output folder, created if missing.
        """
        facts = {
            **self.facts,
            "format": FORMAT,
            "network": _described(NETWORKS, self.network),
            "objective": _described(OBJECTIVES, self.objective),
            "scale": list(self.scale) if isinstance(self.scale, tuple) else self.scale,
            "channels": self.channels,
            "points": self.points if len(self.grid) == 1 else list(self.grid),
            "boundaries": list(self.boundaries),
            "constant": {str(channel): list(unit) for channel, unit in self.constant.items()},
            "history": self.history,
            "conditions": {name: list(scaling) for name, scaling in self.conditions.items()},
            "dt": self.dt,
            "units": [list(unit) for unit in self.units],
            "extent": [list(ends) for ends in self.extent],
            "parameters": {name: list(ends) for name, ends in self.parameters.items()},
            "versions": provenance(),
        }
        return save_trained(folder, FILE, facts, self.params)

    def _fields(self, initial: ArrayLike) -> tuple[np.ndarray, bool]:
        """`[B, H, C, *N]` of all channels, and whether it was one field."""
        values = to_numbers("initial", "fields", initial)
        values = values.astype(np.float64 if values.dtype == np.float64 else np.float32, copy=False)
        shape = (self.width, *self.grid)
        shape = shape if self.history == 1 else (self.history, *shape)
        if self.width == self.history == 1 and values.ndim == len(shape) and len(values) > 1:
            values = values[:, None]  # `[B, *N]`, as they lie in an array of one channel
        single = values.ndim == len(shape)
        many = values[None] if single else values
        if many.ndim != len(shape) + 1 or many.shape[1:] != shape or not len(many):
            expected = f"{list(shape)} or {['B', *shape]}".replace("'", "")
            hint = "`on_grid` takes some networks to another grid than that of their training"
            raise DataError("initial", "shape", list(values.shape), expected, hint)
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))[0].tolist()
            raise DataError("initial", f"entry {bad}", values[tuple(bad)], "a finite number")
        return many.reshape(len(many), self.history, self.width, *self.grid), single

    def _columns(self, name: str) -> int:
        """How many scalars a condition is: a spacing for every axis, one of all others."""
        return len(self.grid) if name == "dx" else 1

    def _scaled(self, given: Mapping[str, ArrayLike], rows: int) -> jax.Array:
        """Scaled conditions `[B, P]`."""
        if set(given) != set(self.conditions):
            expected = f"{sorted(self.conditions)}, which the emulator was trained with"
            raise ConfigError("conditions", sorted(given), expected)
        columns = [np.zeros((rows, 0))]
        for name, scaling in self.conditions.items():
            values = to_numbers("conditions", name, given[name]).astype(np.float64)
            width = self._columns(name)
            known = ((), (1,), (rows,), (rows, width))
            if values.shape not in known or not np.isfinite(values).all():
                expected = f"one finite number or {rows}" + f" x {width}" * (width > 1)
                raise ConfigError(f"conditions.{name}", values.tolist(), expected)
            single = values.reshape(-1, 1) if values.ndim < 2 else values
            columns.append(np.broadcast_to(scaling.checked(name, single), (rows, width)))
        return jnp.asarray(np.concatenate(columns, 1), jnp.float32)


def _described(registry: Registry, config: Any) -> dict[str, Any]:
    """`{name: settings}`, or `{"custom": "module.Class"}` of what has no name."""
    if any(type(config) is registry[name] for name in registry):
        return {registry.name_of(config): to_json(config)}
    kind = config.init if isinstance(config, Network | FieldNetwork) else type(config)
    kind = getattr(kind, "__wrapped__", kind)
    return {CUSTOM: f"{kind.__module__}.{kind.__qualname__}"}


@functools.lru_cache(maxsize=32)
def _roll(emulator: Emulator) -> Any:
    return jax.jit(functools.partial(roll_emulator, emulator), static_argnums=4)
