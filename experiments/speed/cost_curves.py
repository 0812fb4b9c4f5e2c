"""What more costs: seconds and bytes over rows, seeds, members, horizon and grid points.

Every kind of work is built at all sizes of its axis, then all sizes are timed in turns; compiling
is timed apart. Bytes are what XLA plans for the compiled program (`compare/costs.py`); of reading a
file, the most that numpy held. What should be linear from where to where is stated in `PROMISES`,
written before the first run.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.compare.costs import Curve, draw_cost, linear_range, measure, slopes, tell
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.timing import note_load, start_report
from jaxrl_rollouts.pde.operators import FnoConfig, ResnetConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from .cost_curves_cells import AXES, Config, Work, works

Curves = Mapping[tuple[str, str], Curve]  # by axis and name of the work


class Promise(NamedTuple):
    """A slope in log-log from one size to another: 1 is linear, 0 does not depend on the size.

    Attributes:
        axis, work: whose.
        what: seconds or bytes.
        start, end: sizes.
        low, high: bounds; None is open.
    """

    axis: str
    work: str
    what: str
    start: int
    end: int
    low: float | None
    high: float | None


def linear(axis: str, work: str, what: str, start: int, end: int) -> Promise:
    return Promise(axis, work, what, start, end, 0.8, 1.2)


PROMISES = (
    linear("rows", "reading a file", "seconds", 100_000, 2_000_000),
    linear("rows", "reading a file", "bytes", 100_000, 2_000_000),
    linear("rows", "normalising", "seconds", 100_000, 2_000_000),
    # A quarter over 2.3 decades: batches from two million rows take at most four times as long.
    Promise("rows", "batches", "seconds", 10_000, 2_000_000, None, 0.25),
    # A tenth: at most 1.7 times.
    Promise("rows", "gradient steps", "seconds", 10_000, 2_000_000, None, 0.1),
    linear("seeds", "gradient steps", "seconds", 8, 64),
    linear("seeds", "gradient steps", "bytes", 8, 64),
    Promise("seeds", "gradient steps", "seconds", 1, 64, None, 1.0),
    linear("members", "an epoch of the fit", "seconds", 10, 100),
    linear("members", "an epoch of the fit", "bytes", 10, 100),
    # A member per row: a hundred members take at most twice the time of five.
    Promise("members", "rollouts, a member per row", "seconds", 5, 100, None, 0.23),
    linear("members", "rollouts, all members asked", "seconds", 10, 100),
    linear("horizon", "rollouts", "seconds", 10, 1000),
    linear("horizon", "rollouts", "bytes", 100, 1000),
    *(
        linear("points", f"{net}: gradient steps", "seconds", 256, 2048)
        for net in ("resnet", "unet", "fno")
    ),
    *(linear("points", f"{net}: a roll", "seconds", 256, 2048) for net in ("resnet", "fno")),
    linear("points", "resnet: gradient steps", "bytes", 256, 2048),
    linear("points", "unet: gradient steps", "bytes", 256, 2048),
)


def run(config: Config, context: RunContext) -> Report:
    """All curves."""
    report = start_report(context, config, {})
    curves: dict[tuple[str, str], Curve] = {}
    spans = []
    # A name that `RunFolder.tidy` removes, if it is killed.
    with tempfile.TemporaryDirectory(".tmp", ".files-", context.folder.path) as folder:
        for work in works(config, Path(folder)):
            label, sizes = f"{work.name} by {work.axis}", getattr(config, work.sizes or work.axis)
            curve = measure(context, label, work.build, sizes, repeats=config.repeats)
            curves[work.axis, work.name] = curve
            spans.append(span_row(work, curve))
            reasons = {"flatter": work.flatter, "steeper": work.steeper}
            report.note(f"{label}: {tell(curve, work.axis, **reasons)}.")
            jax.clear_caches()  # programs of other sizes are not needed again
    for axis in AXES:
        rows = [row for (at, name), curve in curves.items() if at == axis
                for row in cost_rows(axis, name, curve)]  # fmt: skip
        report.table(axis, rows)
    report.table("where it is linear", spans)
    claim_promises(report, curves)
    draw(report, curves)
    note_meaning(report, config)
    note_load(report, "at the end")
    return report


def cost_rows(axis: str, name: str, curve: Curve) -> list[dict[str, Any]]:
    """A row per size, with the slopes from the size before."""
    columns = {
        axis: curve.sizes.tolist(),
        "seconds": curve.time,
        "slope": [None, *slopes(curve.sizes, curve.time)],
        "MB": curve.bytes / 1e6,
        "slope of MB": [None, *slopes(curve.sizes, curve.bytes)],
        "rise MB": [None if math.isnan(rise) else rise / 1e6 for rise in curve.rise],
        "kept MB": curve.kept / 1e6,
        "compile s": curve.compile_seconds,
    }
    values = zip(*columns.values(), strict=True)
    return [{"work": name, **dict(zip(columns, row, strict=True))} for row in values]


def span_row(work: Work, curve: Curve) -> dict[str, Any]:
    """Where seconds and bytes are linear, and the slopes over all sizes."""
    ends = int(curve.sizes[0]), int(curve.sizes[-1])
    row: dict[str, Any] = {"work": work.name, "by": work.axis}
    for what, values in (("seconds", curve.time), ("bytes", curve.bytes)):
        span = linear_range(curve.sizes, values)
        row[f"{what} linear"] = "nowhere" if span is None else f"{span[0]:,} to {span[1]:,}"
        row[f"slope of {what}"] = float(curve.between(*ends, values)[0])
    return row


def claim_promises(report: Report, curves: Curves) -> None:
    """Those of `PROMISES` whose sizes were measured."""
    for promise in PROMISES:
        axis, work, what, start, end, low, high = promise
        curve = curves.get((axis, work))
        if curve is None or not {start, end} <= set(curve.sizes.tolist()):
            continue
        slope = curve.between(start, end, curve.bytes if what == "bytes" else None)
        means = f"slope of {what} in log-log; 1 is linear, 0 does not depend on {axis}"
        bound: dict[str, Any] = {"at_most": high}
        kind = f"{what} grow at most with the power {high:g}"
        if low is not None and high is not None:
            bound, kind = {"between": (low, high)}, f"{what} are linear"
        name = f"{work}: {kind} from {start:,} to {end:,} {axis}"
        add_claim(report, name, slope, means=means, source=GOALS, statistic="median", **bound)


def draw(report: Report, curves: Curves) -> None:
    """A picture per axis: seconds and megabytes in log-log, dotted what proportional would be."""
    for axis in AXES:
        caption = f"Cost by {axis}; dotted: proportional to the last point. Medians of one call."
        size: dict[str, Any] = {"titles": ("Seconds of a call", "Megabytes"), "width": 3.8}
        with picture(report, axis, caption, **size) as (left, right):
            for (at, name), curve in curves.items():
                if at == axis:
                    draw_cost(left, curve.sizes, curve.time, name)
                    draw_cost(right, curve.sizes, curve.bytes / 1e6, name)
            for ax in (left, right):
                ax.set_xlabel(axis)


def cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Level -> bytes of the first core's data caches, where the operating system tells."""
    found = {}
    for index in sorted(folder.glob("index*")):
        kind, level, size = ((index / n).read_text().strip() for n in ("type", "level", "size"))
        if kind != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = 1024 * int(size[:-1])
    return found


def note_meaning(report: Report, config: Config) -> None:
    """What the numbers are."""
    caches = ", ".join(f"{name} {size / 1e6:.3g} MB" for name, size in cache_bytes().items())
    report.note(
        f"Linear is a slope of 0.8 to 1.2 between neighbours. {config.repeats} rounds, in each of "
        "which every size is timed once; short work is repeated for 0.05 s. Compiling is timed "
        "apart" + (f". Data caches of a core: {caches}." if caches else ".")
    )
    report.note(
        "MB are arguments, results and temporary buffers of the compiled program as XLA plans "
        "them, on all devices; of reading a file, the most that Python and numpy held at once "
        "(tracemalloc). Rise is measured: by how much the process grew in a call, which is results "
        "and buffers without arguments, less what it had freed and kept before. Kept are the "
        "states that go from call to call, the weights that are rolled and the file. None of it "
        "counts Python, jax and compiled programs themselves."
    )
    small = f"{config.few_rows:,} rows"
    report.note(
        f"A call is {config.updates} gradient steps or batches of {config.batch} rows (SAC, nets "
        f"{' x '.join(map(str, config.hidden))}); an epoch over {small}; a rollout of "
        f"{config.rolled} rows ({config.steps} steps by members, {config.ensemble} members by "
        f"horizon); {config.emulator_updates} gradient steps of PDE-Refiner at batch "
        f"{config.fields}, or {config.emulator_steps} steps of {config.fields} fields. Reading is "
        "from the system's page cache, not from a disk."
    )


TINY: dict[str, Any] = {"rows": (500, 2000), "seeds": (1, 2), "members": (1, 2), "horizon": (1, 4)}
TINY |= {"points": (16, 32), "batch": 8, "updates": 2, "hidden": (8,), "few_rows": 600}
TINY |= {"ensemble_hidden": (8,), "ensemble": 2, "rolled": 8, "steps": 2, "fields": 2}
TINY |= {"unet_points": (), "resnet": ResnetConfig(8, 1, (1,))}
TINY |= {"fno": FnoConfig(8, 1, 4, 8), "emulator_updates": 1, "emulator_steps": 1, "repeats": 2}
PRESETS = {"smoke": Config(**TINY), "cpu": Config()}
EXPERIMENT = LISTINGS["cost_curves"].experiment(Config, PRESETS, run)
