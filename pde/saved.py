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
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxrl_rollouts.config_json import earlier_version, from_json
from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.foreign import check_room
from jaxrl_rollouts.record.saved import (
    find_folder,
    load_params,
    read_facts,
    reading,
)
from jaxrl_rollouts.registry import Registry

from .adapters import network_like
from .emulator import Objective, Points, Scale, grid_of
from .fieldset import Scaling
from .registries import NETWORKS, OBJECTIVES
from .trained import CUSTOM, FILE, FORMAT, Range, TrainedEmulator


@reading(FILE, "an emulator")
def load_emulator(
    folder: str | Path, *, network: Any = None, objective: Objective | None = None
) -> TrainedEmulator:
    """Read what `TrainedEmulator.save` wrote; the folder, or one that holds a single emulator.

    Args:
        folder: of the emulator, or of its run.
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
    sizes = ("channels", "history")
    facts = read_facts(path, "an emulator's folder", FORMAT, sizes)
    points = _points(path, facts.get("points"))
    # What is made for every channel comes after this: one state of so many has room.
    state = math.prod((facts["history"], facts["channels"], *grid_of(points)))
    check_room(path, "a state", 4 * state)
    dt = facts.get("dt")
    if not (dt is None or isinstance(dt, int | float)):
        raise CheckpointError(f"{path}: dt: found {dt!r}, expected a number or null")
    trained = TrainedEmulator(
        network_like(_config(path, "network", facts, NETWORKS, network)),
        _config(path, "objective", facts, OBJECTIVES, objective),
        _scale(path, facts.get("scale")),
        None,
        facts["channels"],
        points,
        facts["history"],
        _scalings(path, facts.get("conditions")),
        dt,
        tuple(_scalings(path, dict(enumerate(facts.get("units") or []))).values()),
        facts,
        tuple(map(str, facts.get("boundaries") or ())),
        _constant(path, facts.get("constant") or {}, facts["channels"]),
        tuple(_ranges(path, "extent", dict(enumerate(facts.get("extent") or []))).values()),
        _ranges(path, "parameters", facts.get("parameters") or {}),
    )
    return replace(trained, params=load_params(folder, trained.emulator.init, facts["seeds"]))


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


def _scale(path: Path, given: Any) -> Scale:
    listed: list[Any] = given if isinstance(given, list) and given else [given]
    if not all(isinstance(number, int | float) and number > 0 for number in listed):
        expected = "a number above 0, or one for each channel"
        raise CheckpointError(f"{path}: scale: found {given!r}, expected {expected}")
    return tuple(map(float, listed)) if isinstance(given, list) else float(given)


def _ranges(path: Path, key: str, given: Any) -> dict[Any, Range]:
    try:
        return {name: (float(low), float(high)) for name, (low, high) in given.items()}
    except (AttributeError, TypeError, ValueError):
        expected = "a lowest and a highest number each"
        raise CheckpointError(f"{path}: {key}: found {given!r}, expected {expected}") from None


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
    if len(numbers) != len(found) or not all(0 <= number < width for number in numbers):
        expected = f"different numbers of channels, from 0 to {width - 1}"
        raise CheckpointError(f"{path}: constant: found {sorted(found)}, expected {expected}")
    return dict(sorted(numbers.items()))


def _scalings(path: Path, given: Any) -> dict[str, Scaling]:
    try:
        return {name: Scaling(*map(float, numbers)) for name, numbers in given.items()}
    except (AttributeError, TypeError, ValueError):
        expected = "names with shift and factor"
        raise CheckpointError(f"{path}: conditions: found {given!r}, expected {expected}") from None
