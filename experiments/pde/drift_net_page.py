"""Tables, claims and pictures of `drift_net`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.compare.timing import Rates
from jaxrl_rollouts.pde.metrics import mean_spectrum
from jaxrl_rollouts.pde.study.pictures import draw_frames
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.colours import colour
from ..kit.draw import curve_with_band
from .drift_net_cells import BASELINES, MIXERS, PARTS, DriftNetConfig, Flows

SOURCE = "DRIFT-Net (ICLR 2026), tables of NS-SL and NS-PwC, ablations"
PUBLISHED = (158.0, 118.0)  # training steps per second of DRIFT-Net and scOT, hardware unknown
BETTER, WORSE = 0.95, 1.1  # what counts as an effect


def make_report(
    report: Report,
    config: DriftNetConfig,
    cells: Grid,
    rates: Rates,
    flows: Mapping[str, Flows],
) -> None:
    """Everything that the page shows."""
    for start in config.starts:
        here = _named(cells, start)
        report.table(start, [_row(name, cell, config) for name, cell in here.items()])
        rows = [_shell_row(name, cell, flows[start]) for name, cell in here.items()]
        report.table(f"{start}, shells", rows)
    report.table("training speed", _speed_rows(rates, config))
    first = config.starts[0]
    parts = {"drift": cells[first, "updates", "drift"]}
    parts |= {part: cells[first, "updates", part] for part in PARTS}
    _claims(report, config, cells, parts)
    report.table("parts of the mixer", [_part_row(n, c, parts["drift"]) for n, c in parts.items()])
    _draw_errors(report, config, cells)
    _draw_shells(report, config, cells, flows)
    _draw_drift(report, config, cells, flows)
    shown = [("updates", name) for name in ("drift", "attention", "conv")] + [("seconds", "fno")]
    rolled = {name: cells[first, matching, name] for matching, name in shown}
    truth = np.asarray(flows[first].data.test.fields[0, 1 : config.steps + 1, 0])
    alive = {name: cell["rollout"] for name, cell in rolled.items() if not cell.diverged}
    draw_frames(report, truth, alive, config.test.dt[0], "time")
    report.note(
        f"Vorticity of decaying flows on {config.train.points} x {config.train.points} points, "
        f"solved on {config.train.finer} times as many along each axis and cut off in Fourier "
        f"space; {config.train.trajectories} trajectories x {config.train.frames} frames to train "
        f"on, {config.test.trajectories} x {config.test.frames} to test on, {config.test.dt[0]:g} "
        f"apart. Frames after the first {config.train.frames} of a test trajectory are later than "
        "any trained on."
    )
    report.note(
        f"DRIFT's mixer and those with as many updates: {config.training.updates} gradient steps "
        f"on batches of {config.training.batch}, mean square error of a step. As many seconds: "
        "updates in the ratio of the measured speeds, all seeds side by side, timed in turns."
    )


def one_step(cell: Cell) -> np.ndarray:
    """Relative L1 of a step in %, median over test steps, `[seeds]`."""
    return 100.0 * np.median(cell["one_step_l1", :, :], -1)


def rolled(cell: Cell, step: int) -> np.ndarray:
    """Relative L1 in % after so many steps, median over trajectories, `[seeds]`."""
    return 100.0 * np.median(cell["relative_l1", :, step - 1 : step, :], (1, 2))


def energy_gap(cell: Cell) -> np.ndarray:
    """|E - E_true| / E_true in % over the last tenth, median over trajectories, `[seeds]`."""
    gap = np.abs(cell["energy", :, :, :])
    return 100.0 * np.median(gap[:, -max(1, gap.shape[1] // 10) :], (1, 2))


def shell_errors(cell: Cell, amplitude: np.ndarray) -> np.ndarray:
    """Error of a step over the field's amplitude, by shell from 1 on, `[seeds, K - 1]`."""
    return cell["first_error", :, -1, 1:] / np.maximum(amplitude[1:], 1e-12)


def _named(cells: Grid, start: str) -> dict[str, Cell]:
    """Cells of one kind of flow by what tables call them."""
    called = {"updates": "{}", "seconds": "{}, equal seconds", "none": "{}"}
    return {called[m].format(name): cell for (m, name), cell in cells.at(data=start).items()}


def _steps(config: DriftNetConfig) -> list[int]:
    """After which steps rollouts are read."""
    return sorted({min(20, config.steps), min(100, config.steps)})


def _row(name: str, cell: Cell, config: DriftNetConfig) -> dict[str, Any]:
    trained = not cell.diverged and cell.history is not None
    row: dict[str, Any] = {
        "arm": name,
        "parameters": int(cell.extra["parameters"]) if trained else None,
        "updates": int(cell.extra["updates"]) if trained else None,
        "seconds to train": cell.seconds if trained else None,
        "one step L1 %": summarize(one_step(cell)),
    }
    for step in _steps(config):
        row[f"{step} steps L1 %"] = summarize(rolled(cell, step))
    return row | {
        "energy gap %": summarize(energy_gap(cell)),
        "vorticity correlation, last step": summarize(cell["vorticity", :, -1, :].mean(-1)),
        "structure function": summarize(np.median(cell["structure", :, :], -1)),
    }


def _amplitude(flows: Flows) -> np.ndarray:
    """Mean amplitudes of the test fields by shell, `[K]`."""
    return np.asarray(mean_spectrum(flows.data.test.fields[:, 1:], space_dims=2))


def _shell_row(name: str, cell: Cell, flows: Flows) -> dict[str, Any]:
    """Thirds of the shells."""
    errors = shell_errors(cell, _amplitude(flows))
    thirds = np.array_split(np.arange(errors.shape[1]), 3)
    row: dict[str, Any] = {"arm": name}
    for part in thirds:
        label = f"shells {part[0] + 1} to {part[-1] + 1}"
        row[f"{label}, error over amplitude"] = summarize(errors[:, part].mean(1))
    return row


def _speed_rows(rates: Rates, config: DriftNetConfig) -> list[dict[str, Any]]:
    rows = [
        {
            "arm": name,
            "steps/s": float(np.median(values)),
            "DRIFT's over it": float(np.median(rates["drift"] / values)),
        }
        for name, values in rates.items()
    ]
    published = PUBLISHED[0] / PUBLISHED[1]
    for row in rows:
        row["published"] = published if row["arm"] == "attention" else None
    return rows


def _part_row(name: str, cell: Cell, whole: Cell) -> dict[str, Any]:
    errors = one_step(cell)
    return {
        "arm": name,
        "one step L1 %": summarize(errors),
        "over the whole mixer's": summarize(errors / one_step(whole)),
        "parameters": None if cell.diverged else int(cell.extra["parameters"]),
    }


def _claims(report: Report, config: DriftNetConfig, cells: Grid, parts: Mapping[str, Cell]) -> None:
    claim = claims(report, SOURCE)
    for start in config.starts:
        drift = one_step(cells[start, "updates", "drift"])
        for matching in ("updates", "seconds"):
            ratio = drift / one_step(cells[start, matching, "attention"])
            means = f"relative L1 of a step over attention's; parameters and {matching} are equal"
            claim(f"DRIFT beats attention: {start}, {matching}", ratio, at_most=BETTER, means=means)
    errors = {name: one_step(cell) for name, cell in parts.items()}
    without = errors["no low mixing"]
    means = "relative L1 of a step without low mixing over that of the whole mixer"
    claim("low mixing matters", without / errors["drift"], at_least=WORSE, means=means)
    others = np.maximum(errors["no gate"], errors["no local branch"])
    means = "relative L1 of a step without low mixing over the worse of the other ablations"
    claim("low mixing matters most", without / others, at_least=1.0, means=means)


def _draw_errors(report: Report, config: DriftNetConfig, cells: Grid) -> None:
    caption = (
        "Relative L1 of a step, median over test steps: points are seeds, bars their mean. Filled: "
        "as many updates as DRIFT; open: as many seconds. Dotted: the best linear map."
    )
    size: dict[str, Any] = {"width": 4.4, "height": 3.0}
    with picture(report, "errors", caption, titles=config.starts, legend=False, **size) as axes:
        for ax, start in zip(axes, config.starts, strict=True):
            names = (*MIXERS, "fno")
            for at, name in enumerate(names):
                for matching, aside, face in (("updates", -0.14, None), ("seconds", 0.14, "none")):
                    cell = cells.cells.get((start, matching, name))
                    if cell is None or cell.diverged:
                        continue
                    errors, shade = one_step(cell), colour(name)
                    where = np.full(len(errors), at + aside)
                    style = {"color": shade, "markerfacecolor": face or shade, "markersize": 4}
                    ax.plot(where, errors, "o", **style)
                    ax.plot([at + aside], [errors.mean()], "_", color=shade, markersize=16)
            level(ax, float(one_step(cells[start, "none", "linear"]).mean()), linestyle=":")
            ax.set_xticks(range(len(names)), names)
            ax.set_ylim(bottom=0.0)
        axes[0].set_ylabel("relative L1, %")


def _draw_shells(
    report: Report, config: DriftNetConfig, cells: Grid, flows: Mapping[str, Flows]
) -> None:
    caption = "Error of a step over the field's amplitude, by length of the wave vector; updates."
    with picture(report, "shells", caption, titles=config.starts) as axes:
        for ax, start in zip(axes, config.starts, strict=True):
            amplitude = _amplitude(flows[start])
            shown = {name: cells[start, "updates", name] for name in MIXERS}
            shown |= {"fno": cells[start, "seconds", "fno"]}
            shown |= {name: cells[start, "none", name] for name in BASELINES[:2]}
            for name, cell in shown.items():
                if not cell.diverged:
                    errors = shell_errors(cell, amplitude)
                    curve_with_band(ax, np.arange(1, errors.shape[1] + 1), errors, name)
            ax.set_yscale("log")
            ax.set_xlabel("wavenumber")
        axes[0].set_ylabel("error over amplitude")


def _draw_drift(
    report: Report, config: DriftNetConfig, cells: Grid, flows: Mapping[str, Flows]
) -> None:
    start, dt = config.starts[0], config.test.dt[0]
    caption = (
        f"Rollouts of {config.steps} steps, {start}; mixers with equal updates. Left: relative L1, "
        "median over trajectories. Right: kinetic energy over the true one's, minus 1; mean over "
        "trajectories. Dotted: the end of the times trained on."
    )
    titles = ("Relative L1, %", "Kinetic energy, relative difference")
    shown = {name: cells[start, "updates", name] for name in MIXERS}
    shown |= {"fno": cells[start, "seconds", "fno"], "linear": cells[start, "none", "linear"]}
    with picture(report, "drift", caption, titles=titles) as (left, right):
        for name, cell in shown.items():
            if cell.diverged:
                continue
            errors = 100.0 * np.median(cell["relative_l1"], -1)
            time = dt * np.arange(1, errors.shape[1] + 1)
            curve_with_band(left, time, errors, name)
            curve_with_band(right, time, cell["energy"].mean(-1), name)
        left.set_yscale("log")
        right.set_yscale("symlog", linthresh=0.01)
        for ax in (left, right):
            ax.axvline(dt * (config.train.frames - 1), color="#777777", linestyle=":")
            ax.set_xlabel("time")
