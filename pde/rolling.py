"""What `jaxrl-rollouts pde roll` does: a saved emulator from the first frames of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.reports.pictures import save_gif

from .constant import check_constant, take_channels
from .fieldset import FieldSet, take_trajectories
from .files import read_fields, write_apebench, write_pdearena, write_well
from .generate import Solved
from .inspection import draw
from .metrics import correlation, correlation_horizons
from .saved import TrainedEmulator, load_emulator
from .study.pictures import moving_frames
from .study.units import start_of

STEPS = {1: 1000, 2: 200, 3: 50}  # by axes of space, unless they are given


def roll_file(
    run: Path,
    file: str,
    steps: int | None,
    out: Path,
    picture: Path | None,
    rows: int,
    emulator: int,
    key: int,
) -> None:
    """Write what comes, and say how long it follows the file; `roll` says what the arguments are.

    Raises:
        DataError: fields of another size than the emulator was trained on.
    """
    own, found = load_emulator(run), take_trajectories(read_fields(file), slice(0, rows))
    check_out(out, own)
    steps = STEPS[len(own.grid)] if steps is None else steps
    if picture is not None and picture.suffix == ".gif" and len(own.grid) == 1:
        raise ConfigError("--picture", picture.name, "a .png: fields of one axis need no animation")
    if found.shape[2:] != (own.width, *own.grid):
        points = " x ".join(map(str, own.grid))
        expected = f"{own.width} on {points} points, as the emulator was trained"
        sizes = " x ".join(map(str, found.shape[3:]))
        raise DataError(found.path, "channels", f"{found.shape[2]} on {sizes} points", expected)
    every = int(own.facts.get("every", 1))
    start, told = start_of(own, found, every)
    rolled = own.roll(start, steps, key, conditions=told, seed=emulator)
    first = np.asarray(start, np.float32).reshape(len(start), -1, own.width, *own.grid)[:, -1:]
    fields = np.concatenate([first, np.swapaxes(rolled, 0, 1)], 1)
    truth = found.read(slice(None), slice(own.history * every, None, every))
    if own.constant:
        seen = np.concatenate([first, np.asarray(truth, np.float32)], 1)
        check_constant(found.path, seen, own.constant, own.names)
    write(out, fields, found, own)
    print(f"{out}: {len(fields)} trajectories, {steps} steps after the first frame")
    if own.constant:
        named = [own.names[i] if own.names else f"channel {i}" for i in own.constant]
        print(f"constant, as in the file: {', '.join(named)}")
    if not np.isfinite(fields).all():
        others = (0, *range(2, fields.ndim))
        when = int(np.isfinite(fields).all(others).argmin())
        print(f"not finite from step {when} on: the emulator has left what it knows")
    tell_truth(fields, truth, own)
    if picture is not None:
        if picture.suffix == ".gif":
            animate(fields, truth, own, picture)
        else:
            written = read_fields(out)._replace(channels=found.channels)
            drawn = take_channels(written, own.changing)
            draw(drawn, fields[:, :, list(own.changing)], picture)
        print(f"picture: {picture}")


def check_out(out: Path, own: TrainedEmulator) -> None:
    """`ConfigError` where no layout of this ending holds the emulator's fields."""
    walls = {*own.boundaries} - {"", "periodic"}
    if len(own.grid) > 1 and out.suffix == ".npy":
        expected = "a name that ends in .hdf5 or .npz: .npy is for fields of one axis"
        raise ConfigError("--out", out.name, expected)
    if len(own.grid) > 1 and walls and out.suffix != ".npz":
        kinds = ", ".join(own.boundaries)
        expected = (
            f"a name that ends in .npz: files of The Well are written with circles, not {kinds}"
        )
        raise ConfigError("--out", out.name, expected)


def animate(fields: np.ndarray, truth: np.ndarray, own: TrainedEmulator, out: Path) -> None:
    """The first rollout, and the file's frames and the error as far as the file goes.

    Args:
        fields: rollouts `[N, steps + 1, C, *X]`, the start first.
        truth: what follows in the file, `[N, T, C, *X]`.
        own: the emulator.
        out: a GIF file.
    """
    rolled = fields[0, 1:, own.changing[0]]
    true = truth[0, : len(rolled), own.changing[0]]
    panels = {"rollout": rolled}
    if len(true):
        rolled = rolled[: len(true)]
        panels = {"truth": true, "rollout": rolled, "error": rolled - true}
    clock = "time" if own.dt else "frame"
    save_gif(moving_frames(panels, own.dt or 1.0, clock), out)


def tell_truth(fields: np.ndarray, truth: np.ndarray, own: TrainedEmulator) -> None:
    """Print how long rollouts `[N, steps + 1, C, *X]` follow the file, as far as that goes:
    `[N, T, C, *X]`."""
    length = min(truth.shape[1], fields.shape[1] - 1)
    if length:
        some = list(own.changing)
        pair: Any = (np.swapaxes(x[:, :length, some], 0, 1) for x in (fields[:, 1:], truth))
        held = correlation_horizons(np.asarray(correlation(*pair)), own.dt or 1.0)
        unit = "" if own.dt else " steps"
        print(
            f"correlation with the file's own frames stays above 0.8 for {held.mean():.4g}{unit} "
            f"(mean over trajectories; the file goes on for {length * (own.dt or 1.0):.4g})"
        )


def write(out: Path, fields: np.ndarray, found: FieldSet, own: TrainedEmulator) -> None:
    """Write `[N, T, C, *X]`; where a spacing or a time is not known it is 1."""
    count, grid = len(fields), np.asarray(own.grid)
    dt = np.full(count, own.dt or 1.0)
    if np.isfinite(found.dt).all():
        dt = found.dt * int(own.facts.get("every", 1))
    extents = np.where(np.isfinite(found.extent), found.extent, grid)
    if out.suffix == ".npz":
        kinds = own.boundaries or ("periodic",) * len(grid)
        space: dict[str, Any] = {"dt": dt, "dx": extents / grid, "boundaries": np.asarray(kinds)}
        parameters: Mapping[str, Any] = found.parameters
        np.savez(out, u=fields, channels=np.asarray(found.channels), **space, **parameters)
        return
    extent = extents[:, 0] if len(grid) == 1 else extents
    name, values = next(iter(found.parameters.items()), ("viscosity", np.ones(count)))
    chunks = [Solved(fields, extent, dt, values)]
    if out.suffix == ".npy":
        write_apebench(out, chunks, split="test", parameter=name)
    elif own.width == len(grid) == 1:
        write_pdearena(out, chunks, split="test", viscosity=name in found.parameters)
    else:
        equation = found.equation if found.parameters else ""
        named: Any = {"channels": found.channels, "equation": equation}
        named["constant"] = tuple(own.constant)
        write_well(out, chunks, split="test", parameter=name, **named)
