"""Summary of a file of trajectories, as text and picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from jaxrl_rollouts.cli.before import check_file
from jaxrl_rollouts.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from .fieldset import FieldSet

# What `inspect` reads at most, whatever the size of a trajectory.
BYTES = 2**28
OPTIONS = {"frame time": "--dt", "extent": "--dx"}


def inspect(
    file: tyro.conf.Positional[str],
    out: Path | None = None,
    rows: int = 64,
    axes: int | None = None,
    every: int = 1,
    channels: tuple[str, ...] = (),
) -> None:
    """Print what a file of trajectories holds and whether it can be trained on.

    Args:
        file: a file in the layout of PDEArena (on one axis or NavierStokes2D), The Well, PDEBench,
            PDEgym or APEBench, or a plain array (.npy, or .npz with u, dt, dx, ...); or several, a
            folder, a pattern.
        out: also plot a trajectory and the increments into this PNG file.
        rows: trajectories to inspect; fewer of large ones.
        axes: number of spatial axes, for a plain array with an ambiguous shape.
        every: keep every so many frames of the file, the first included.
        channels: names of the channels to inspect; left out, all.
    """
    import numpy as np

    from .files import read
    from .files.joined import in_short
    from .frames import odd_frames
    from .generate import quality

    check_file(out)
    if rows < 1:
        raise ConfigError("--rows", rows, "at least 1")
    found = read(file, axes, every=every, channels=channels)
    count, frames, many, *space = found.shape
    each = 8 * int(np.prod(found.shape[2:]))
    looked = min(frames, max(2, BYTES // each))
    values = found.read(slice(0, min(rows, max(1, BYTES // (each * looked)))), slice(0, looked))
    print(f"{in_short(file)}: {found.layout}, {count:,} trajectories of {frames} frames")
    print(f"field        {many} channel(s) on {' x '.join(map(str, space))} points")
    ranges = {"frame time": found.dt[:, None], "extent": found.extent}
    ranges |= {name: values[:, None] for name, values in found.parameters.items()}
    for name, numbers in ranges.items():
        print(f"{name:<12} {spans(numbers, OPTIONS.get(name, ''))}")
    kinds = found.boundaries or ("",) * len(space)
    print(f"boundaries   {', '.join(kind or missing('--boundaries') for kind in kinds)}")
    if many > 1:
        for i, name in enumerate(found.channels):
            one = np.asarray(values[:, :, i], np.float64)
            step = np.diff(one, axis=1).std() if frames > 1 else 0.0
            print(f"{name:<12} spread {one.std():.4g}, change {step:.4g}")
    found, values = only_changing(found, values)
    if frames == 1:
        print("frames       1: an emulator learns the step from one to the next, so 2 are needed")
    else:
        seen = quality(values, lengths_of(found), found.boundaries)
        read = f"{len(values)} trajectories" + f", {looked} frames" * (looked < frames)
        print(f"spread       {seen.std:.4g} (of {read})")
        print(f"change       {np.median(seen.increment):.4g} from frame to frame (median)")
        if np.median(seen.increment) > seen.std:
            print(
                "             frames are nearly uncorrelated: are the axes [trajectory, frame, "
                "(channel,) space], and the frames in order?"
            )
        print(f"nearly still {100 * seen.steady:.1f} % of the trajectories")
        print(f"tail         {seen.tail:.1e} of the highest amplitude at the last wavenumbers")
        for line in odd_frames(values, found.channels):
            print(f"look at      {line}")
    if out is not None:
        draw(found, values, out)
        print(f"picture: {out}")


def missing(option: str = "") -> str:
    """What is not in the file, and the option of `pde train` that gives it."""
    return "not in the file" + f" (pde train {option})" * bool(option)


def spans(numbers: np.ndarray, option: str = "") -> str:
    """Numbers `[N, axes]` in words: from lowest to highest over trajectories, axis by axis.

    `3 x 2` is one domain, `3 to 4 x 2` are domains whose first axis differs.
    """
    import numpy as np

    if not np.isfinite(numbers).all():
        return missing(option)
    parts = []
    for column in numbers.T:
        parts.append(" to ".join(dict.fromkeys(f"{x:.4g}" for x in (column.min(), column.max()))))
    return " x ".join(parts)


def lengths_of(fields: FieldSet) -> tuple[float, ...]:
    """Mean length of every axis; () where it is not known."""
    import numpy as np

    return tuple(fields.extent.mean(0).tolist()) if np.isfinite(fields.extent).all() else ()


def only_changing(fields: FieldSet, values: np.ndarray) -> tuple[FieldSet, np.ndarray]:
    """The set and its values without constant channels, which are printed; whole where nothing else
    is left."""
    from .constant import changing, never_changing, others

    named = fields.channels or tuple(f"channel {i}" for i in range(fields.shape[2]))
    never = never_changing(values, [slice(None)]) if values.shape[1] > 1 else ()
    if fields.constant:
        names = ", ".join(named[i] for i in fields.constant)
        print(f"constant     {names}: in the file once for all frames; seen, not predicted")
    if silent := [named[i] for i in never if i not in fields.constant]:
        print(f"unchanged    {', '.join(silent)}: the same in every frame that was looked at;")
        print(f"{'':<12} if in all others too, pde train holds it constant: seen, not predicted")
    constant = tuple(sorted({*fields.constant, *never}))
    kept = others(fields.shape[2], constant)
    if not constant or not kept:
        return fields, values
    return changing(fields._replace(constant=constant)), values[:, :, list(kept)]


def draw(fields: FieldSet, values: np.ndarray, out: Path) -> None:
    """One trajectory and the change from frame to frame.

    Of one dimension: the first channel in space and time, and its mean spectrum. Of more: its
    first and last frame, halfway along what axes there are beyond two.

    Args:
        fields: the inspected fields.
        values: `[rows, frames, C, *space]` of it.
        out: a PNG file.
    """
    import numpy as np

    from jaxrl_rollouts.reports.pictures import figure, save_png

    from .metrics import mean_spectrum

    made, (left, middle, right) = figure(1, 3, title=fields.path.name)
    lengths = np.where(np.isfinite(fields.extent[0]), fields.extent[0], fields.shape[3:]).tolist()
    name = fields.channels[0] if fields.channels else ""
    style: dict[str, Any] = {"aspect": "auto", "origin": "lower", "cmap": "RdBu_r"}
    if len(lengths) == 1:
        dt = float(fields.dt[0]) if np.isfinite(fields.dt[0]) else 1.0
        panels = [(left, values[0, :, 0].T, (dt * values.shape[1], lengths[0]), ("time", "x"))]
        last = np.asarray(values, np.float32)[:, -1, :1]
        middle.semilogy(np.asarray(mean_spectrum(last, boundaries=fields.boundaries)))
        middle.set_xlabel("wavenumber (waves along the axis)")
        middle.set_ylabel("mean |rfft| of the last frame")
    else:
        cut = (slice(None), slice(None), *(size // 2 for size in values.shape[5:]))
        span, labels = (lengths[0], lengths[1]), ("x", "y")
        both = values[0, [0, -1], 0][(slice(None), *cut)]
        panels = [
            (ax, shown.T, span, labels) for ax, shown in zip((left, middle), both, strict=True)
        ]
        # Frames have their own shape and the same colours, white at zero where signs change.
        low, high = float(both.min()), float(both.max())
        if low < 0 < high:
            low, high = -max(-low, high), max(-low, high)
        style |= {"vmin": low, "vmax": high}
        if max(span) < 3 * min(span):
            style["aspect"] = "equal"
        left.set_title(f"{name}, first frame")
        middle.set_title(f"{name}, frame {values.shape[1] - 1}")
    for ax, shown, (width, height), (xlabel, ylabel) in panels:
        image = ax.imshow(shown, extent=(0.0, width, 0.0, height), **style)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        ax.grid(visible=False)
        made.colorbar(image, ax=ax)
    if values.shape[1] > 1:
        right.hist(np.diff(values, axis=1).std(tuple(range(1, values.ndim))), bins=30)
    right.set_xlabel("change from frame to frame (std)")
    right.set_ylabel("trajectories")
    save_png(made, out)
