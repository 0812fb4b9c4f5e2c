"""Pictures of rollouts of emulators: in space and time, and by wavenumber."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.reports.names import colour, named
from jaxrl_rollouts.reports.report import Report

from .evaluation import Holdout

FRAMES = 5  # of a rollout over two axes of space that are drawn


def draw_rollouts(
    report: Report,
    data: Holdout,
    rollouts: Mapping[str, np.ndarray],
    *,
    clock: str = "time",
) -> None:
    """Truth, predictions and errors of one test trajectory: in space and time on one axis, frame by
    frame on more.

    Args:
        rollouts: `[T, *space]` by name: `Evaluation.rollout`.
    """
    truth = np.asarray(data.truth()[:, 0, 0])
    if truth.ndim > 2:
        draw_frames(report, truth, rollouts, data.dt, clock)
        return
    caption = (
        "One test trajectory (space upwards, time to the right) and each method's rollout from "
        "its first frame, first finite seed; right: prediction minus truth, on a scale of its own."
    )
    rows = {"truth": truth, **rollouts}
    limit, error = largest(truth), largest(*(field - truth for field in rollouts.values()))
    length = data.extent[0] if data.extent else float(truth.shape[1])
    style: dict[str, Any] = {"extent": (data.dt, data.steps * data.dt, 0.0, length)}
    style |= {"aspect": "auto", "origin": "lower", "interpolation": "nearest", "cmap": "RdBu_r"}
    titles = ["error" if panel == 3 else "" for panel in range(2 * len(rows))]
    size = {"columns": 2, "width": 5.0, "height": 1.25, "sharex": True, "sharey": True}
    with picture(report, "rollouts", caption, titles=titles, legend=False, **size) as axes:
        axes[1].set_visible(False)
        for left, right, (name, field) in zip(axes[::2], axes[1::2], rows.items(), strict=True):
            for ax, values, most in ((left, field, limit), (right, field - truth, error)):
                ax.imshow(values.T, vmin=-most, vmax=most, **style)
                ax.grid(visible=False)
            left.set_ylabel(f"{named(name)}, x", fontsize=8)
        for ax in axes[-2:]:
            ax.set_xlabel(clock)
        axes[0].figure.colorbar(axes[0].images[0], ax=axes[::2], shrink=0.6, pad=0.01)
        axes[0].figure.colorbar(axes[3].images[0], ax=axes[1::2], shrink=0.6, pad=0.01)


def draw_frames(
    report: Report,
    truth: np.ndarray,
    rollouts: Mapping[str, np.ndarray],
    dt: float,
    clock: str,
) -> None:
    """Frames of the truth, of predictions and of their errors, `[T, *space]` each."""
    name, first = next((named(key), field) for key, field in rollouts.items())
    caption = f"Truth, {name} and its error, frame by frame; the error on a scale of its own."
    panels = {"truth": truth, name: first, "error": first - truth}
    report.animation("moving", moving_frames(panels, dt, clock), caption)
    caption = (
        "Frames of one test trajectory, first channel, and each method's rollout from its first "
        "frame, first seed; below it prediction minus truth, on a scale of its own."
    )
    at = sorted({int(t) for t in np.geomspace(1, len(truth), FRAMES).round()})
    rows = {"truth": truth}
    for name, field in rollouts.items():
        rows |= {named(name): field, f"{named(name)}, error": field - truth}
    rows = {name: _in_plane(values) for name, values in rows.items()}
    limits = {name: largest(truth) for name in rows}
    limits |= {name: largest(values) for name, values in rows.items() if name.endswith("error")}
    style: dict[str, Any] = {"cmap": "RdBu_r", "origin": "lower"}
    titles = [f"{clock} {dt * t:.3g}" for t in at] + [""] * (len(at) * (len(rows) - 1))
    size = {"columns": len(at), "width": 1.5, "height": 1.5, "sharex": True, "sharey": True}
    with picture(report, "rollouts", caption, titles=titles, legend=False, **size) as axes:
        for row, (name, field) in enumerate(rows.items()):
            for column, t in enumerate(at):
                ax = axes[row * len(at) + column]
                ax.imshow(field[t - 1].T, vmin=-limits[name], vmax=limits[name], **style)
                ax.grid(visible=False)
                ax.set_xticks([])
                ax.set_yticks([])
            axes[row * len(at)].set_ylabel(name, fontsize=8)


def largest(*values: np.ndarray) -> float:
    """The largest magnitude in arrays, above 0: half the width of a symmetric colour scale."""
    return max(max((float(np.abs(v).max(initial=0.0)) for v in values), default=0.0), 1e-12)


def _in_plane(values: np.ndarray) -> np.ndarray:
    """`[T, X, Y]` of `[T, X, Y]` or, halfway along the last axis, of `[T, X, Y, Z]`."""
    return values[..., values.shape[3] // 2] if values.ndim == 4 else values


def moving_frames(
    panels: Mapping[str, np.ndarray], dt: float, clock: str, *, most: int = 40, size: int = 160
) -> list[np.ndarray]:
    """Fields `[T, *space]` side by side as frames of an animation, `[rows, columns, 3]` uint8."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    fields = {name: _in_plane(values) for name, values in panels.items()}
    first = next(iter(fields.values()))
    limits = {name: largest(fields[name] if name == "error" else first) for name in fields}
    norms = {name: Normalize(-limit, limit) for name, limit in limits.items()}
    times, width = max(-(-size // n) for n in first.shape[1:]), 18
    frames = []
    for t in np.unique(np.linspace(0, len(first) - 1, most).round().astype(int)):
        drawn = []
        for name, values in fields.items():
            turned = values[t].T[::-1]  # the first axis to the right, the second upwards
            coloured = colormaps["RdBu_r"](norms[name](turned), bytes=True)[..., :3]
            large = coloured.repeat(times, 0).repeat(times, 1)
            head = Image.new("RGB", (large.shape[1], width), "white")
            text = f"{name}, {clock} {dt * (t + 1):.3g}" if not drawn else name
            if name == "error" and drawn:
                text = f"error, to {limits[name]:.2g}"
            ImageDraw.Draw(head).text((4, 3), text, fill="black")
            panel = np.concatenate([np.asarray(head), large])
            drawn.append(np.pad(panel, ((0, 4), (4, 4), (0, 0)), constant_values=255))
        frames.append(np.concatenate(drawn, 1))
    return frames


def line(name: str) -> str:
    """A linestyle: what is another one cut off lies upon it wherever nothing is cut."""
    return "--" if name.endswith("low-pass") else "-"


def draw_spectra(
    report: Report,
    spectra: Mapping[str, tuple[np.ndarray, np.ndarray]],
    true_late: np.ndarray,
) -> None:
    """Error after a step, and amplitudes late in the rollout, over the wavenumber.

    Args:
        spectra: both by name, `[seeds, K]` each.
        true_late: the truth's late amplitudes `[K]`.
    """
    caption = (
        "Left: amplitudes of prediction minus truth after one step. Right: amplitudes of the "
        "rollouts themselves over their last quarter. Median and range over seeds."
    )
    titles = ("Error after one step", "Late in the rollout")
    numbers = np.arange(1, len(true_late))
    with picture(report, "spectra", caption, titles=titles) as (left, right):
        for name, both in spectra.items():
            shade = colour(name)
            for ax, amplitudes in zip((left, right), both, strict=True):
                low, middle, high = np.quantile(amplitudes[:, 1:], (0.0, 0.5, 1.0), axis=0)
                ax.semilogy(numbers, middle, line(name), color=shade, label=named(name))
                ax.fill_between(numbers, low, high, color=shade, alpha=0.2, linewidth=0)
        right.semilogy(numbers, true_late[1:], color="black", linestyle="--", label="truth")
        right.set_ylim(bottom=max(float(true_late[1:].min()), 1e-7) / 3)
        for ax in (left, right):
            ax.set_xlabel("wavenumber, waves along the longest axis")
        left.set_ylabel("mean amplitude, |rfft|")
