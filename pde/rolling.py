"""`jaxrl-rollouts pde roll`: a saved emulator rolled from the first frames of a file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.pictures import figure, save_gif, save_png

from .constant import check_constant, named, take_channels
from .fieldset import FieldSet, take_trajectories
from .files import read, write_apebench, write_pdearena, write_well
from .files.joined import part_of
from .generate import Solved
from .inspection import draw
from .metrics import correlation, correlation_horizons, nrmse
from .pictures import largest, moving_frames
from .promises import Calibration, calibrated, draw_trust, trusted
from .ranges import check_parameters
from .saved import load_emulator
from .split import split_files
from .trained import TrainedEmulator

STEPS = {1: 1000, 2: 200, 3: 50}  # by axes of space, unless they are given


def roll_file(
    run: Path,
    file: str,
    steps: int | None,
    out: Path | None,
    picture: Path | None,
    rows: int,
    training_seed: int,
    key: int,
    axes: int | None = None,
    every: int = 1,
    channels: Sequence[str] = (),
    asked: tuple[float, str] | None = None,
) -> None:
    """Write rollouts and print how long they follow the file; arguments are those of `roll`.

    `asked` are the share of misses and the calibration's file, where members are to be rolled.
    """
    own = load_emulator(run)
    found = take_trajectories(starts(file, axes, own, every, channels), slice(0, rows))
    own = on_points_of(own, found)
    out = out or Path("rolled.npz" if walls(own) and len(own.grid) > 1 else "rolled.h5")
    check_out(out, own)
    steps = STEPS[len(own.grid)] if steps is None else steps
    if picture is not None and picture.suffix == ".gif" and len(own.grid) == 1:
        raise ConfigError("--picture", picture.name, "a .png: fields of one axis need no animation")
    stride = frames_per_step(own, found)
    check_domain(own, found)
    check_parameters(own, found)
    start, conditions = own.start(found, stride)
    rolled = own.roll(start, steps, key, conditions=conditions, seed=training_seed)
    first = start.reshape(len(start), -1, own.width, *own.grid)[:, -1:]
    fields = np.concatenate([first, np.swapaxes(rolled, 0, 1)], 1)
    follows = slice(own.history * stride, None, stride) if stride else slice(0)
    truth = found.read(slice(None), follows)
    if own.constant:
        seen = np.concatenate([first, truth], 1)
        check_constant(found.path, seen, own.constant, own.names)
    write(out, fields, found, own, stride)
    if asked is not None:
        calibration = calibrate_run(run, own, *asked, training_seed, key, axes)
        given = calibration, start, conditions, truth, steps
        promise(own, *given, found, out, picture, training_seed, key)
    print(f"{out}: {len(fields)} trajectories, {steps} steps after the first frame")
    if own.constant:
        names = [own.names[i] if own.names else f"channel {i}" for i in own.constant]
        print(f"constant, as in the file: {', '.join(names)}")
    if not np.isfinite(fields).all():
        others = (0, *range(2, fields.ndim))
        when = int(np.isfinite(fields).all(others).argmin())
        print(f"not finite from step {when} on: beyond there the emulator diverges")
    print_errors(fields, truth, own)
    if picture is not None:
        if picture.suffix == ".gif":
            animate(fields, truth, own, picture)
        elif len(own.grid) == 1 and truth.shape[1]:
            compare(fields, truth, own, picture)
        else:
            written = read(out)._replace(channels=found.channels)
            drawn = take_channels(written, own.changing)
            draw(drawn, fields[:, :, list(own.changing)], picture)
        print(f"picture: {picture}")


def starts(
    file: str,
    axes: int | None,
    own: TrainedEmulator,
    every: int = 1,
    channels: Sequence[str] = (),
) -> FieldSet:
    """Trajectories of a file, or of a folder's `test`; the channels that the emulator has, where
    the file has them all and others."""
    found = read(part_of(file, "test") or file, axes, every=every, channels=channels)
    more = found.shape[2] > own.width and own.names and {*own.names} <= {*found.channels}
    return named(found, own.names) if more else found


def on_points_of(own: TrainedEmulator, fields: FieldSet) -> TrainedEmulator:
    """The emulator on a file's points, with a line where they are others than in training.

    Raises:
        DataError: other channels, or a network whose parameters belong to one grid.
        ConfigError: points that the network cannot have.
    """
    width, *grid = fields.shape[2:]
    if (width, *grid) == (own.width, *own.grid):
        return own
    sizes, points = (" x ".join(map(str, n)) for n in (grid, own.grid))
    keeps = getattr(own.network, "on_other_grids", "")
    if width != own.width or len(grid) != len(own.grid) or not keeps:
        expected = f"{own.width} on {points} points, as the emulator was trained"
        raise DataError(fields.path, "channels", f"{width} on {sizes} points", expected)
    kept = {"extent": "domain", "spacing": "distance between points"}[keeps]
    print(f"{sizes} points, {points} in training: the network takes the {kept} to be the same")
    return own.on_grid(tuple(grid))


def calibrate_run(
    run: Path,
    own: TrainedEmulator,
    miss: float,
    file: str,
    seed: int,
    key: int,
    axes: int | None,
) -> Calibration:
    """A calibration on a file, or on the trajectories that a run was tested on."""
    if file:
        fields = starts(file, axes, own)
    elif (run / "run.json").is_file() and "test_share" in RunFolder.open(run).config:
        fields = split_files(SimpleNamespace(**RunFolder.open(run).config))[1]
        if fields.shape[3:] != own.grid:
            expected = f"trajectories on {' x '.join(map(str, own.grid))} points, as the rollouts"
            raise ConfigError("--calibration", "nothing", expected)
    else:
        expected = f"a file of trajectories, as {run} is no run of pde train"
        raise ConfigError("--calibration", file, expected)
    stride = frames_per_step(own, fields)
    return calibrated(own, fields, miss=miss, stride=stride, seed=seed, key=key)


def promise(
    own: TrainedEmulator,
    calibration: Calibration,
    start: np.ndarray,
    conditions: Mapping[str, Any],
    truth: np.ndarray,
    steps: int,
    fields: FieldSet,
    out: Path,
    picture: Path | None,
    seed: int,
    key: int,
) -> None:
    """Print each trajectory's valid time, write it into the file and plot it."""
    for line in calibration.outside(fields, start):
        warnings.warn(line, stacklevel=2)
    found = trusted(own, calibration, start, conditions, truth, steps, seed=seed, key=key)
    trust = calibration.trust
    if out.suffix == ".npz":
        with np.load(out) as written:
            np.savez(out, **{**written, **found.arrays()})
    else:
        with h5py.File(out, "a") as file:
            for name, values in found.arrays().items():
                file.create_dataset(f"forecast/{name}", data=values)
    reach = trust.steps * calibration.stride
    print(f"calibrated on {trust.trajectories} trajectories of {reach} steps, times in steps")
    print("\n".join(found.lines(trust.miss)))
    if picture is not None:
        trust_picture = picture.with_name(f"{picture.stem}-trust.png")
        print(f"picture: {draw_trust(found, trust, trust_picture, fields.path.name)}")


def walls(own: TrainedEmulator) -> bool:
    """Whether an axis of the emulator's ends, as far as is known."""
    return bool({*own.boundaries} - {"", "periodic"})


def frames_per_step(own: TrainedEmulator, fields: FieldSet) -> int | None:
    """Frames of a file in one step of the emulator; None where no whole number comes near.

    Where the distance of frames is not known of both, or the emulator sees it, as
    many as in the training data.
    """
    if own.dt is None or not np.isfinite(fields.dt).all():
        return max(1, own.stride * own.every // fields.every)
    if "dt" in own.conditions:
        return own.stride
    apart = float(fields.dt.mean())
    count = max(1, round(own.dt / apart))
    near = abs(own.dt / apart / count - 1) < 0.05
    if near and count == own.stride:
        return count
    distance = f"frames {apart:.4g} apart", f"{own.dt:.4g}, a step of the emulator"
    if not near and own.history > 1:
        raise DataError(fields.path, "dt", *distance, f"it sees {own.history} frames so far apart")
    taken = f"one frame in {count} is taken" if near else "they are not compared with its rollouts"
    warnings.warn(
        f"{fields.path}: dt: found {distance[0]}, expected {distance[1]}: {taken}", stacklevel=2
    )
    return count if near else None


def check_domain(own: TrainedEmulator, fields: FieldSet) -> None:
    """Warn of other boundaries or lengths than the emulator was trained with."""
    kinds = zip(fields.boundaries, own.boundaries, strict=False)
    if any(theirs and ours and theirs != ours for theirs, ours in kinds):
        theirs = ", ".join(kind or "unknown" for kind in fields.boundaries)
        ours = ", ".join(kind or "unknown" for kind in own.boundaries)
        warnings.warn(
            f"{fields.path}: boundaries: found {theirs}, expected {ours}: the emulator uses those "
            "of its training data",
            stacklevel=2,
        )
    learned = np.asarray(own.extent, np.float64)
    known = learned.size and "dx" not in own.conditions and np.isfinite(fields.extent).all()
    if known:
        low, high = learned.T
        outside = (fields.extent < 0.99 * low) | (fields.extent > 1.01 * high)
        if outside.any():
            first = fields.extent[outside.any(1)][0].tolist()
            expected = low.tolist() if (low == high).all() else learned.tolist()
            warnings.warn(
                f"{fields.path}: extent: found {first}, expected {expected}: fields of another "
                "length look different on as many points, and the emulator sees no lengths",
                stacklevel=2,
            )


def check_out(out: Path, own: TrainedEmulator) -> None:
    """`ConfigError` where no layout of this ending holds the emulator's fields."""
    if len(own.grid) > 1 and out.suffix == ".npy":
        expected = "a name that ends in .hdf5 or .npz: .npy is for fields of one axis"
        raise ConfigError("--out", out.name, expected)
    if len(own.grid) > 1 and walls(own) and out.suffix != ".npz":
        kinds = ", ".join(own.boundaries)
        expected = f"a name that ends in .npz: The Well's files have periodic axes, not {kinds}"
        raise ConfigError("--out", out.name, expected)


def animate(fields: np.ndarray, truth: np.ndarray, own: TrainedEmulator, out: Path) -> None:
    """The first rollout, and the file's frames and the error as far as the file goes.

    Args:
        fields: rollouts `[N, steps + 1, C, *X]`, the start first.
        truth: the file's next frames, `[N, T, C, *X]`.
    """
    rolled = fields[0, 1:, own.changing[0]]
    true = truth[0, : len(rolled), own.changing[0]]
    panels = {"rollout": rolled}
    if len(true):
        rolled = rolled[: len(true)]
        panels = {"truth": true, "rollout": rolled, "error": rolled - true}
    clock = "time" if own.dt else "frame"
    save_gif(moving_frames(panels, own.dt or 1.0, clock), out)


def compare(fields: np.ndarray, truth: np.ndarray, own: TrainedEmulator, out: Path) -> None:
    """The first rollout over one axis and time, and the file's frames and the error as far as the
    file goes.

    Args:
        fields: rollouts `[N, steps + 1, C, X]`, the start first.
        truth: the file's next frames, `[N, T, C, X]`.
        own: the emulator.
        out: a PNG file.
    """
    rolled, true = fields[0, 1:, own.changing[0]], truth[0, : fields.shape[1] - 1, own.changing[0]]
    rows = {"truth": true, "rollout": rolled, "error": rolled[: len(true)] - true}
    limits, dt = [largest(true), largest(true), largest(rows["error"])], own.dt or 1.0
    style: dict[str, Any] = {"cmap": "RdBu_r", "interpolation": "nearest"}
    style |= {"aspect": "auto", "origin": "lower"}
    made, axes = figure(3, 1, width=7.0, height=1.5, title=f"{out.stem}: the first trajectory")
    length = own.lengths[0] if own.lengths else own.grid[0]
    for ax, (name, values), limit in zip(axes, rows.items(), limits, strict=True):
        span = (dt, dt * (len(values) + 1), 0.0, length)
        image = ax.imshow(values.T, extent=span, vmin=-limit, vmax=limit, **style)
        made.colorbar(image, ax=ax)
        ax.set_xlim(dt, dt * (len(rolled) + 1))
        ax.grid(visible=False)
        ax.set_ylabel(f"{name}, x")
    axes[-1].set_xlabel("time" if own.dt else "frame")
    save_png(made, out)


def print_errors(fields: np.ndarray, truth: np.ndarray, own: TrainedEmulator) -> None:
    """Print how long rollouts `[N, steps + 1, C, *X]` follow the file, as far as that goes:
    `[N, T, C, *X]`."""
    length = min(truth.shape[1], fields.shape[1] - 1)
    if length:
        some = list(own.changing)
        pair: Any = (np.swapaxes(x[:, :length, some], 0, 1) for x in (fields[:, 1:], truth))
        pair = tuple(pair)
        held = correlation_horizons(np.asarray(correlation(*pair)), own.dt or 1.0)
        errors = np.asarray(nrmse(*pair)).mean(1)
        unit = "" if own.dt else " steps"
        end = length * (own.dt or 1.0)
        throughout = int((held > (length - 0.5) * (own.dt or 1.0)).sum())
        print(
            f"correlation with the file's own frames stays above 0.8 for {held.mean():.4g}{unit} "
            f"(mean over trajectories; the comparison ends at {end:.4g}, to where {throughout} of "
            f"{len(held)} hold)"
        )
        print(f"NRMSE: {errors[0]:.4g} after a step, {errors[-1]:.4g} at the end of the comparison")


def write(
    out: Path, fields: np.ndarray, found: FieldSet, own: TrainedEmulator, stride: int | None
) -> None:
    """Write `[N, T, C, *X]`; where a spacing or a time is not known it is 1."""
    count, grid = len(fields), np.asarray(own.grid)
    dt = np.full(count, own.dt or 1.0)
    if stride and np.isfinite(found.dt).all():
        dt = found.dt * stride
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
