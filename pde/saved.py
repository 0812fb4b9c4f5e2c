"""Trained emulators read from disk.

    trained.save("runs/ks/emulator")
    emulator = load_emulator("runs/ks/emulator")

An emulator's folder holds `emulator.json` (settings of network and objective, sizes, how its
conditions are scaled, parameters of its training data) and one checkpoint of the (averaged)
parameters of all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from jaxrl_rollouts.config_json import earlier_version, from_json
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.record.saved import (
    find_folder,
    load_params,
    read_facts,
    reading,
)
from jaxrl_rollouts.registry import Registry

from .adapters import network_like
from .emulator import Objective, grid_of
from .fieldset import Scaling
from .registries import NETWORKS, OBJECTIVES
from .trained import CUSTOM, FILE, FORMAT, Range, TrainedEmulator


@reading(FILE, "an emulator")
def load_emulator(
    folder: str | Path, *, network: Any = None, objective: Objective | None = None
) -> TrainedEmulator:
    """Read what `TrainedEmulator.save` wrote; the folder, or one that holds a single emulator.

    Args:
        folder: folder of the emulator, or of its run.
        network: the one that `fit` was given, where it is neither this library's nor announced by
            an entry point.
        objective: likewise.

    Raises:
        CheckpointError: there is none or several, or it cannot be read.
        ConfigError: its settings are not this library's.
        DataError: its facts or parameters need more than the free memory.
    """
    folder = find_folder(folder, FILE, "emulator")
    path = folder / FILE
    facts = read_facts(path, "an emulator's folder", FORMAT)
    known = {one.name: facts[one.name] for one in fields(_Facts) if one.name in facts}
    own = from_json(_Facts, known, str(path))
    # What is made for every channel comes after this: one state of so many has room.
    check_room(path, "a state", 4 * math.prod((own.history, own.channels, *grid_of(own.points))))
    trained = TrainedEmulator(
        network_like(_config(path, "network", facts, NETWORKS, network)),
        _config(path, "objective", facts, OBJECTIVES, objective),
        own.scale,
        None,
        own.channels,
        own.points,
        own.history,
        {name: Scaling(*pair) for name, pair in own.conditions.items()},
        own.dt,
        tuple(Scaling(*pair) for pair in own.units),
        facts,
        own.boundaries,
        {number: Scaling(*pair) for number, pair in sorted(own.numbered.items())},
        own.extent,
        own.parameters,
    )
    return replace(trained, params=load_params(folder, trained.emulator.init, facts["seeds"]))


@dataclass(frozen=True)
class _Facts:
    """A `TrainedEmulator` in `emulator.json`; scalings are shift and factor."""

    channels: int = positive(1)
    points: int | tuple[int, ...] = positive(1)
    scale: float | tuple[float, ...] = number(1.0, above=0)
    history: int = positive(1)
    conditions: Mapping[str, Range] = field(default_factory=dict)
    dt: float | None = None
    units: tuple[Range, ...] = ()
    boundaries: tuple[str, ...] = ()
    constant: Mapping[str, Range] = field(default_factory=dict)
    extent: tuple[Range, ...] = ()
    parameters: Mapping[str, Range] = field(default_factory=dict)

    @property
    def numbered(self) -> dict[int, Range]:
        """The constant channels, by their numbers."""
        return {int(name): pair for name, pair in self.constant.items() if name.isdigit()}

    def validate(self) -> None:
        grid_of(self.points)
        width = self.channels + len(self.constant)
        if not all(name.isdigit() and int(name) < width for name in self.constant):
            expected = f"numbers of channels, from 0 to {width - 1}"
            raise ConfigError("constant", sorted(self.constant), expected)


def _config(
    path: Path, key: str, facts: Mapping[str, Any], registry: Registry, own: Any = None
) -> Any:
    given = facts.get(key)
    known = given if isinstance(given, dict) and len(given) == 1 else {}
    name, settings = next(iter(known.items()), ("", {}))
    if name == CUSTOM:
        if own is None:
            found = f"found {settings}, which is not this library's"
            raise CheckpointError(
                f"{path}: {key}: {found}, expected it: load_emulator(folder, {key}=...)"
            )
        return own
    if name not in registry:
        found = sorted(given) if isinstance(given, dict) else given
        known_names = ", ".join(registry)
        raise CheckpointError(f"{path}: {key}: found {found!r}, expected one of {known_names}")
    with earlier_version("train the emulator again"):
        return from_json(registry[name], settings, f"{path}: {key}")
