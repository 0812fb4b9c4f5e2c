"""Tables, claims and pictures of `few_steps`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves
from jaxrl_rollouts.offline.study.page import note_made
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report

from .few_steps_cells import IN_LOOP, MANY, TOLD, Config, points
from .few_steps_ring import centres

GOAL = "the project's goals"
RELABELLING = "relabelling with a model of the same rows"
PILOT = "a pilot of one seed in two dimensions"
HALF = 0.5  # of the teacher's error at equal calls
POINTS = 5.0  # that agents may lose
FASTER = 8.0  # times as many samples per second
NEAR = 1.25
WINDOWS = 1.5  # times the teacher's error without churn
RIGHT = 1.25  # times the error of 255 calls, for few calls told anew
GAP = 1.2  # times the action gap of many steps
SLOWER = 1.25  # times the seconds, for rows drawn in the loop


DRAWN = {  # lines of the picture of the ring, by net and sampler
    ("teacher", "Euler"): "teacher, Euler",
    ("teacher", "Heun"): "teacher, Heun",
    ("teacher", "2M from 10"): "teacher, 2M",
    ("mean, p = 0", "jumps"): "MeanFlow, p = 0",
    ("mean, p = 1", "jumps"): "MeanFlow, p = 1",
    ("consistency", "jumps"): "consistency",
    ("unified", "jumps"): "unified",
}


class Results(NamedTuple):
    """All that was measured; parts that the configuration leaves out are None."""

    ring: tuple[Grid, dict[str, np.ndarray], dict[str, np.ndarray]] | None = None
    rows: Grid | None = None
    floor: float = np.nan  # distance of two draws of real rows
    apart: np.ndarray | None = None
    calls: Mapping[str, int] | None = None  # by sampler of rows
    agents: Grid | None = None
    ends: tuple[float, float] | None = None
    windows: Grid | None = None


def page(report: Report, config: Config, setting: Setting | None, found: Results) -> None:
    """Tables, claims and pictures."""
    if found.ring is not None:
        ring_part(report, config, *found.ring)
    if found.rows is not None:
        rows_part(report, config, found)
    if found.agents is not None:
        agents_part(report, config, setting, found)
    if found.windows is not None:
        windows_part(report, config, found.windows)
    if setting is not None:
        note_made(report, [setting.dataset])


def best(cells: Mapping[Any, Cell], metric: str, allowed: Callable[[Any], bool]) -> np.ndarray:
    """The lowest of a metric, seed by seed, among the cells that are allowed."""
    return np.min([cell[metric] for key, cell in cells.items() if allowed(key)], axis=0)


def ring_part(
    report: Report,
    config: Config,
    grid: Grid,
    real: dict[str, np.ndarray],
    shown: dict[str, np.ndarray],
) -> None:
    columns = {"sliced Wasserstein": "distance", "off mode": "off_mode"}
    fresh: dict[str, Any] = {"net": "fresh rows", "sampler": "", "calls": None}
    fresh |= {name: real[metric] for name, metric in columns.items()}
    report.table("ring", [*grid.rows(columns), fresh])
    claim = claims(report, PILOT)
    for n in (4, 8):
        if n not in config.ring.calls:
            continue
        student = grid[f"consistency, S = {n}", "jumps", n]["distance"]
        teacher = best(grid, "distance", lambda k, n=n: k[0] == "teacher" and k[2] <= n)
        means = f"sliced Wasserstein over that of the teacher's best solver in at most {n} calls"
        text = f"ring: a student in {n} jumps is twice as near as its teacher in as many calls"
        claim(text, student / teacher, at_most=HALF, means=means)
    one = [grid[f"mean, p = {p}", "jumps", 1] for p in (0, 1)]
    text = "ring: MeanFlow's published weight gives sharper modes"
    means = "share off mode with p = 1 over that with p = 0, one call"
    claim(text, one[1]["off_mode"] / one[0]["off_mode"], at_most=0.5, means=means)
    text = "ring: and wrong masses"
    means = "sliced Wasserstein with p = 1 over that with p = 0, one call"
    claim(text, one[1]["distance"] / one[0]["distance"], at_least=1.25, means=means)
    draw_ring(report, grid, real, shown)


def draw_ring(
    report: Report, grid: Grid, real: dict[str, np.ndarray], shown: dict[str, np.ndarray]
) -> None:
    lines: dict[str, dict[int, Cell]] = {}
    for (net, sampler, calls), cell in grid.items():
        family = "consistency" if net.startswith("consistency") else net
        if (family, sampler) in DRAWN and "no teacher" not in net and calls < 255:
            lines.setdefault(DRAWN[family, sampler], {})[calls] = cell
    caption = "Eight normals on a ring: what a call buys. Dashed: solvers. Black: fresh rows."
    labels = {"distance": "sliced Wasserstein", "off_mode": "share off mode"}
    draw_over_calls(report, "ring", caption, lines, labels, real)
    chosen = dict(list(shown.items())[:8])
    caption = "Samples of the first seed; crosses are the modes."
    size: dict[str, Any] = {"width": 1.9, "height": 1.9}
    titles = [name.replace(": ", ":\n") for name in chosen]
    with picture(
        report, "samples", caption, titles=titles, columns=4, legend=False, **size
    ) as axes:
        for ax, rows in zip(axes, chosen.values(), strict=True):
            ax.plot(*rows[:1500].T, ".", markersize=1, color=PALETTE[0])
            ax.plot(*centres().T, "x", markersize=3, color="black")
            ax.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), xticks=[], yticks=[], aspect="equal")


def draw_over_calls(
    report: Report,
    name: str,
    caption: str,
    lines: Mapping[str, Mapping[int, Cell]],
    labels: Mapping[str, str],
    known: Mapping[str, np.ndarray] | Cell,
) -> None:
    """A panel per metric: lines of cells by calls, solvers dashed, and what is known as a level."""
    with picture(report, name, caption, titles=("", ""), width=3.6, height=3.2) as axes:
        for ax, (metric, label) in zip(axes, labels.items(), strict=True):
            for shade, (line, cells) in zip(PALETTE, lines.items(), strict=False):
                means = [cell[metric].mean() for cell in cells.values()]
                style = "s--" if line.startswith("teacher") else "o-"
                ax.plot(list(cells), means, style, color=shade, label=line, markersize=3)
            level(ax, known[metric].mean())
            ax.set(xscale="log", yscale="log", xlabel="calls", ylabel=label)
            ax.set_xticks([1, 2, 4, 8, 15], ["1", "2", "4", "8", "15"])
            ax.minorticks_off()


def rows_part(report: Report, config: Config, found: Results) -> None:
    grid, samples, calls = found.rows, config.seeds * config.rows, found.calls
    assert grid is not None and calls is not None and found.apart is not None
    columns = {
        "samples/s": lambda cell: samples / float(cell["seconds"].mean()),
        "sliced Wasserstein": "distance",
        "next observation": "next_observation",
        "its median": "median",
        "reward": "reward",
    }
    table = grid.rows(columns)
    for row, name in zip(table, grid, strict=True):
        row["calls"] = calls[name]
    table = [{k: row[k] for k in ("sampler", "calls", *columns)} for row in table]
    report.table("transitions", table)
    report.note(
        f"Transitions of {config.dataset}: errors of the next observation and of the reward are "
        "squares in the data's variances, against the true simulator; two draws of real rows are "
        f"{found.floor:.3g} apart. Seconds are for {config.seeds} seeds' draws side by side. "
        f"What is {TOLD} has the samples' states and actions; rewards and next observations are "
        f"those of one network {config.networks.hidden} fitted to the dataset."
    )
    draw_rows(report, grid, calls)
    claim = claims(report, GOAL)
    text = "EDM's sampler and the linear path's agree"
    means = "mean difference of samples of one denoiser from the same noise, 256 levels"
    claim(text, found.apart, at_most=1e-3, means=means, source="the conversion, exact on paper")
    if 8 in config.calls:
        eight, many = grid["teacher, Heun on EDM's levels, 15"], grid[MANY]
        text = "8 levels without churn are nearly as near as 128 with it"
        means = "sliced Wasserstein of 15 calls over that of 255"
        claim(text, eight["distance"] / many["distance"], at_most=NEAR, means=means)
    for n in (4, 8):
        if n not in config.calls:
            continue
        student = grid[f"student, {n}"]
        for metric, word in {"distance": "near", "next_observation": "right"}.items():
            teacher = best(grid, metric, lambda k, n=n: k.startswith("teacher") and calls[k] <= n)
            what = "sliced Wasserstein" if metric == "distance" else "next observation's error"
            means = f"{what} over that of the teacher's best solver in at most {n} calls"
            text = f"a student in {n} jumps is twice as {word} as its teacher in as many calls"
            claim(text, student[metric] / teacher, at_most=HALF, means=means)
        text = f"a student in {n} jumps is at least {FASTER:g} times as fast as 128 levels"
        speed = float((grid[MANY]["seconds"] / student["seconds"]).mean())
        means = "samples per second over those of 255 calls"
        claim(text, speed, at_least=FASTER, means=means)
        told = grid[f"student, {TOLD}, {n}"]
        text = f"a student in {n} jumps, told anew, is as right as 128 levels"
        means = "next observation's error over that of 255 calls as sampled"
        ratio = told["next_observation"] / grid[MANY]["next_observation"]
        claim(text, ratio, at_most=RIGHT, means=means, source=RELABELLING)
        text = f"and at least {FASTER:g} times as fast in {n} jumps, telling included"
        speed = float((grid[MANY]["seconds"] / told["seconds"]).mean())
        means = "samples per second over those of 255 calls"
        claim(text, speed, at_least=FASTER, means=means, source=RELABELLING)


def draw_rows(report: Report, grid: Grid, calls: Mapping[str, int]) -> None:
    """Distance and error over calls: solvers, students, and 255 calls as a level."""
    lines: dict[str, dict[int, Cell]] = {}
    for name, cell in grid.items():
        line = name.rpartition(", ")[0]
        if MANY not in name and line not in ("teacher, 2M", "teacher, Heun on EDM's levels"):
            lines.setdefault(line, {})[calls[name]] = cell
    caption = "Transitions: what a call buys. Dashed: solvers. Black: 128 levels with churn."
    labels = {"distance": "sliced Wasserstein", "next_observation": "next observation's error"}
    draw_over_calls(report, "transitions", caption, lines, labels, grid[MANY])


def agents_part(report: Report, config: Config, setting: Setting | None, found: Results) -> None:
    grid, scored = found.agents, {}
    assert setting is not None and grid is not None and found.rows is not None
    table = []
    for arm, cell in grid.items():
        scored[arm] = points(setting, found.ends, cell["return"])
        row: dict[str, Any] = {"rows": arm, "return": cell["return"], "points": scored[arm]}
        row |= {"of": scored[arm] - scored["real rows"]} if arm != "real rows" else {}
        for name in ("drawing", "training"):
            row[f"{name}, s"] = float(cell[name].mean())
        table.append(row | {"rows drawn": float(cell["drawn"].mean())})
    for row in table:
        if "of" in row:
            row["beside real rows"] = row.pop("of")
    report.table("agents", table)
    add_clock(report, clock_rows(grid))
    unit = "normalised score" if found.ends is None else "0 is a random policy, 100 the expert"
    report.note(
        f"TD3+BC after {config.updates} updates on {config.samples} rows per seed and nothing "
        f"else, or on {config.refresh} drawn anew after every {config.per_iteration} updates "
        f"inside the compiled loop. Points: {unit}. Seconds are for {config.seeds} seeds side by "
        "side, without compilation."
    )
    claim, last, middle = claims(report, GOAL, grid.values()), config.calls[-1], config.calls[-2]
    timed = claims(report, GOAL)  # no values of critics
    for n in (last, middle):
        text = f"agents on rows of {n} jumps lose nothing to those on 128 levels"
        means = "points minus those on rows of 255 calls, seed by seed"
        claim(text, scored[f"student, {n}"] - scored[MANY], at_least=-POINTS, means=means)
        told, also = scored[f"student, {TOLD}, {n}"], {"source": RELABELLING}
        text = f"agents on rows of {n} jumps told anew lose nothing to those on 128 levels"
        claim(text, told - scored[MANY], at_least=-POINTS, means=means, **also)
        text = f"agents on rows of {n} jumps told anew lose nothing to those on real rows"
        means = "points minus those on the dataset's rows, seed by seed"
        claim(text, told - scored["real rows"], at_least=-POINTS, means=means, **also)
    for n in (middle,):
        once, loop = grid[f"student, {n}"], grid[f"student, {n}, {IN_LOOP}"]
        text = f"{n} jumps: rows drawn in the loop earn more than rows drawn once"
        means = "points minus those on rows drawn before, seed by seed"
        values = scored[f"student, {n}, {IN_LOOP}"] - scored[f"student, {n}"]
        claim(text, values, at_least=0.0, means=means)
        spent = [float((c["training"] + c["drawing"]).mean()) for c in (loop, once)]
        text = f"{n} jumps: and take hardly longer"
        means = "seconds of training and drawing over those with rows drawn before"
        timed(text, spent[0] / spent[1], at_most=SLOWER, means=means)
    caption = "TD3+BC on real rows, on rows drawn once, told anew (dashed), and drawn in the loop."
    with picture(report, "agents", caption, width=5.4, height=3.2) as (ax,):
        curves(ax, {arm: cell for arm, cell in grid.items() if TOLD not in arm}, "return")
        shades = {str(line.get_label()): str(line.get_color()) for line in ax.get_lines()}
        for arm, cell in grid.items():  # in the colour of what they were told of
            if TOLD in arm:
                shade = shades[arm.replace(f", {TOLD}", "")]
                line: dict[str, Any] = {"colour_name": shade, "linestyle": "--"}
                curve_with_band(ax, *cell.curve("return"), arm, **line)
        ax.set_ylabel("return")


def windows_part(report: Report, config: Config, grid: Grid) -> None:
    settings = config.windows
    table = [
        {
            "sampler": name,
            "coefficient": coefficient,
            "action gap": cell["gap", :, i],
            "next observation": cell["error", :, i],
            "its median": cell["median", :, i],
            "sliced Wasserstein": cell["distance", :, i],
        }
        for name, cell in grid.items()
        for i, coefficient in enumerate(settings.coefficients)
    ]
    report.table("windows", table)
    report.note(
        f"Windows of {settings.length} states, {settings.windows} per seed and sampler, guided "
        "towards the scripted expert by the calibrated rule; the action gap is the mean of "
        "(a - pi(s))^2, and guidance also moves the distance from the data, as it should."
    )
    claim = claims(report, GOAL)
    for n in settings.calls:
        few, plain = grid[f"{n} jumps"], grid["128 levels"]
        text = f"windows: {n} jumps make hardly more errors"
        means = "next observation's error over that of 128 levels without churn, unguided"
        claim(text, few["error", :, 0] / plain["error", :, 0], at_most=WINDOWS, means=means)
        for i, coefficient in enumerate(settings.coefficients):
            if coefficient:
                text = f"windows: {n} jumps guided by {coefficient:g} are as near to the policy"
                means = "action gap over that of 128 levels with churn at the same coefficient"
                ratio = few["gap", :, i] / grid["128 levels with churn"]["gap", :, i]
                claim(text, ratio, at_most=GAP, means=means)
    caption = "Guided windows: nearness to the policy and truth, in many steps and in few jumps."
    with picture(report, "windows", caption, titles=("", ""), height=3.0) as axes:
        for ax, metric in zip(axes, ("gap", "error"), strict=True):
            for i, (name, cell) in enumerate(grid.items()):
                shade = PALETTE[i % len(PALETTE)]
                style = "s--" if "steps" in name or "levels" in name else "o-"
                ax.plot(settings.coefficients, cell[metric].mean(0), style, color=shade, label=name)
            ax.set_xlabel("coefficient")
            ax.set_xticks(settings.coefficients)
        axes[0].set_ylabel("action gap")
        axes[1].set_ylabel("next observation's error")
