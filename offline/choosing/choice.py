"""What `choose` found: a verdict, in text, a picture, JSON and a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.files import write_atomically, write_json_atomically
from jaxrl_rollouts.reports.pictures import PALETTE, figure, legend, save_png
from jaxrl_rollouts.reports.text import format_number

from .models import Models
from .verdict import DEPLOY, REJECT, TOO_FAR, TRY, UNKNOWN, Check, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADES = {DEPLOY: PALETTE[2], TRY: PALETTE[0], UNKNOWN: "#777777", REJECT: PALETTE[1]}
MOST = 40  # policies in a picture


@dataclass(frozen=True, repr=False, eq=False)
class Choice:
    """What `choose` found.

    Attributes:
        table: a row for each policy, in the order given.
        verdict: overall verdict: `deploy NAME`, `try first: A, B`, `undecided` or `do not deploy`.
        behaviour: the data's own value with its interval: low, value, high.
        check: the estimator on the data itself.
        discount, level: discount of the values, level of the intervals.
        data: name of the log.
        estimator: that which gives the intervals.
        note: why that is not the first one requested; "" where it is.
        draws: `[P, D]`, joint bootstrap samples of the values.
        models: fitted world models, for the next call; None without that estimator.
        over_time: for each policy, `beyond` over time; empty without models.
        true: values in the true environment, in the table's order; empty where none were measured.
        scores: scores of the estimates against them, by name.
    """

    table: list[Row]
    verdict: str
    behaviour: tuple[float, float, float]
    check: Check
    discount: float
    level: float
    data: str
    estimator: str
    draws: np.ndarray
    note: str = ""
    models: Models | None = None
    over_time: tuple[np.ndarray, ...] = ()
    true: tuple[float, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return text(self)

    def save(self, file: str | Path) -> Path:
        """Write `choose.json`, with a table `.csv` and a picture `.png` beside it."""
        return save(self, Path(file))

    def trials(self, k: int) -> tuple[tuple[str, ...], float]:
        """Which `k` policies to try in the true environment, and the expected value of their best.

        Greedy on `E max_{i in S} J_i` over the joint draws: policies whose errors are shared are
        not tried beside each other. Those beyond the trust limit follow when no other is left.

        Raises:
            ConfigError: `k` below 1.
        """
        if k < 1:
            raise ConfigError("trials", k, "at least 1")
        left = [
            i
            for i, row in enumerate(self.table)
            if row.verdict != REJECT and row.value == row.value
        ]
        chosen: list[int] = []
        best = np.full(self.draws.shape[1], -np.inf)
        while left and len(chosen) < k:
            within = [i for i in left if not self.table[i].beyond > TOO_FAR] or left
            means = [np.maximum(best, self.draws[i]).mean() for i in within]
            chosen.append(within[int(np.argmax(means))])
            left.remove(chosen[-1])
            best = np.maximum(best, self.draws[chosen[-1]])
        names = tuple(self.table[i].policy for i in chosen)
        return names, float(best.mean()) if chosen else float("nan")


def text(found: Choice) -> str:
    """The verdict, a line for each policy, and the check."""
    low, value, high = (format_number(x) for x in found.behaviour)
    lines = [found.verdict, ""]
    width = max(len(row.policy) for row in found.table)
    lines += [_line(row, width) for row in found.table]
    lines += [f"{'the data':{width}}  {value} [{low}, {high}]", "", checked(found)]
    lines.append(
        f"Values by {found.estimator}, discount {found.discount:g}, {found.level:.0%} intervals; "
        "their width is not calibrated on benchmarks yet."
    )
    lines += [found.note] if found.note else []
    return "\n".join(lines)


def checked(found: Choice) -> str:
    """The check, in a sentence."""
    check = found.check
    word = "passed" if check.passed else "failed"
    return (
        f"Check {word}: estimates of {check.parts} parts of the data are off by {check.off:+.3g} "
        f"in the middle (allowed {check.allowed:.3g}), with a spread of {check.spread:.3g}."
    )


def _line(row: Row, width: int) -> str:
    parts = [f"{row.policy:{width}}"]
    if math.isfinite(row.value):
        parts.append(
            " [".join(map(format_number, (row.value, row.low))) + f", {format_number(row.high)}]"
        )
    if math.isfinite(row.beyond):
        parts.append(f"beyond {row.beyond:.0%}")
    if row.members:
        parts.append(f"members {row.members}")
    for name, value in zip(
        ("fqe", "is", "dr", "dice"), (row.fqe, row.is_, row.dr, row.dice), strict=True
    ):
        if math.isfinite(value):
            parts.append(f"{name} {format_number(value)}")
    return "  ".join([*parts, f"{row.verdict}: {row.why}"])


def as_row(row: Row) -> dict[str, object]:
    """A row by the names of its columns; a number that does not exist is None."""
    found = {name.rstrip("_"): value for name, value in row._asdict().items()}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in found.items()
    }


def save(found: Choice, file: Path) -> Path:
    """Write JSON, and a table and a picture beside it.

    Raises:
        ConfigError: a file that does not end in .json, or no folder to write it in.
    """
    if file.suffix != ".json" or not file.parent.is_dir():
        raise ConfigError("out", str(file), "a name that ends in .json, in an existing folder")
    rows = [as_row(row) for row in found.table]
    names = ("verdict", "data", "estimator", "note", "discount", "level")
    facts: dict[str, object] = {name: getattr(found, name) for name in names}
    if found.true:
        rows = [{**row, "true": value} for row, value in zip(rows, found.true, strict=True)]
        facts["scores"] = dict(found.scores)
    facts["behaviour"] = dict(zip(("low", "value", "high"), found.behaviour, strict=True))
    facts["check"] = {**found.check._asdict(), "passed": found.check.passed}
    write_json_atomically(file, {**facts, "rows": rows})
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(file.with_suffix(".csv"), table.getvalue())
    save_png(draw(found), file.with_suffix(".png"))
    return file


def draw(found: Choice) -> Figure:
    """Intervals over the data's band; the estimators against each other; trust over time."""
    rows = [(i, row) for i, row in enumerate(found.table) if math.isfinite(row.value)][:MOST]
    pairs = [row for _, row in rows if math.isfinite(row.fqe)]
    panels = ["Value", *["Two estimators"] * bool(pairs), *["Within trust"] * bool(found.over_time)]
    height = max(2.6, 0.22 * len(rows) + 1.0)
    made, axes = figure(1, len(panels), titles=panels, height=height, title=found.verdict)
    low, value, high = found.behaviour
    axes[0].axvspan(low, high, color="#777777", alpha=0.25, linewidth=0)
    axes[0].axvline(value, color="#777777", linewidth=1.0)
    for place, (_, row) in enumerate(rows):
        axes[0].hlines(place, row.low, row.high, color=SHADES[row.verdict], linewidth=2.5)
        axes[0].plot(row.value, place, "o", color=SHADES[row.verdict], markersize=4)
    axes[0].set_yticks(range(len(rows)), [row.policy for _, row in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    axes[0].set_xlabel("discounted value, grey: the data")
    for name, shade in SHADES.items():
        if any(row.verdict == name for _, row in rows):
            axes[0].plot([], [], "o-", color=shade, label=name)
    if pairs:
        for row in pairs:
            axes[1].plot(row.value, row.fqe, "o", color=SHADES[row.verdict], markersize=4)
        axes[1].axline((value, value), slope=1, color="black", linewidth=0.8, linestyle=":")
        axes[1].set(xlabel=f"by {found.estimator}", ylabel="by fqe")
    if found.over_time:
        for place, row in rows:
            beyond = found.over_time[place]
            steps = np.flatnonzero(np.isfinite(beyond))
            # Few steps were looked at each time: a mean over twenty of them shows the course.
            groups = np.array_split(steps, min(20, len(steps)))
            at = [group.mean() for group in groups]
            axes[-1].plot(at, [1 - beyond[g].mean() for g in groups], color=SHADES[row.verdict])
        axes[-1].set(xlabel="step", ylabel="share of steps", ylim=(-0.02, 1.02))
    legend(made, axes)
    return made
