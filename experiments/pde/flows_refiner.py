"""PDE-Refiner on two Kolmogorov flows, a smooth one and a turbulent one.

Refinement repairs wavenumbers whose amplitude is below the error of MSE training. The smooth flow
has such wavenumbers, the turbulent one hardly: the same network, updates and seeds on both, beside
persistence, the best linear map and MSE training behind a low-pass that costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.pde.operators import FnoConfig
from jaxrl_rollouts.pde.study.pictures import FRAMES, line
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..catalogue import LISTINGS
from ..kit.colours import colour
from ..kit.draw import curve_with_band
from .flows_refiner_cells import (
    ARMS,
    FlowsConfig,
    FlowStudy,
    kolmogorov,
    per_flow,
    top_third,
)
from .ks import SOURCE
from .ks_refiner import pearson

OURS = "the project's question"
PAYS = 1.05  # T(0.8) over another method's
TIMES = {"mean curve": "time_curve", "per trajectory": "time_each"}


def run(config: FlowsConfig, context: RunContext) -> Report:
    """Solve the flows, train and roll every arm, compare."""
    study = per_flow(config, context)

    def train(flow: str, arm: str, stage: str) -> Cell:
        return study(flow).cell(arm, stage)

    axes = {"flow": config.flows, "arm": ARMS}
    cells = run_grid(axes, train, context, seeds=config.seeds)
    flows = {name: study(name) for name in config.flows}
    report = Report.of(context, config.seeds)
    report.table("flows", [_flow(found, cells) for found in flows.values()])
    columns = {f"T(0.8) of the vorticity, {what}": time for what, time in TIMES.items()}
    columns |= {
        "one-step MSE": lambda cell: cell["one_step", :, -1],
        "error, top third of the shells": lambda cell: top_third(cell["first_error", :, -1, :]),
        "low-pass from": lambda cell: cell.extra.get("cut"),
        "seconds to train": lambda cell: cell.seconds,
    }
    report.table("arms", cells.rows(columns))
    refined = {name: cells[name, "refiner"] for name in config.flows}
    report.table("along refinement", [_along(name, cell) for name, cell in refined.items()])
    _claims(report, config.flows, cells)
    _draw_shells(report, flows, cells)
    _draw_correlation(report, flows, cells)
    _draw_frames(report, flows, cells)
    _draw_samples(report, flows, cells)
    report.note(
        f"{config.seeds} seeds, {config.training.updates} gradient steps on batches of "
        f"{config.training.batch}; {config.tested} test trajectories of {config.steps} steps. The "
        "coarser noise is as loud as a step's change in the top third of the shells, the finest "
        f"{config.quieter:g} times quieter; both were chosen from training fields before anything "
        "was trained."
    )
    return report


def ratio(cells: Grid, flow: str, arm: str, time: str, base: str) -> np.ndarray:
    """An arm's time over another's, `[seeds]`."""
    return cells[flow, arm][time] / cells[flow, base][time]


def repaired(cells: Grid, flow: str) -> np.ndarray:
    """The refiner's error in the top third of the shells over MSE training's, `[seeds]`."""
    error = {
        arm: top_third(cells[flow, arm]["first_error", :, -1, :]) for arm in ("mse", "refiner")
    }
    return error["refiner"] / error["mse"]


def _flow(found: FlowStudy, cells: Grid) -> dict:
    mse, finest, coarser = cells[found.name, "mse"], *found.noises
    return {
        "flow": found.name,
        "viscosity": getattr(found.config, found.name).parameter[0],
        "time per step": float(found.train.dt.mean()),
        "change per step over deviation": float(found.looks.increment.mean() / found.looks.std),
        "tail over the largest amplitude": found.looks.tail,
        "coarser noise variance": coarser,
        "finest noise variance": finest,
        "refiner's error over MSE's, top third": summarize(repaired(cells, found.name)),
        "MSE's T(0.8), mean curve": summarize(mse["time_curve"]),
    }


def _along(name: str, cell: Cell) -> dict:
    row: dict = {"flow": name}
    for call in range(cell["one_step"].shape[1]):
        row[f"MSE after {call}"] = summarize(cell["one_step", :, call])
        row[f"top third after {call}"] = summarize(top_third(cell["first_error", :, call, :]))
    return row


def _claims(report: Report, flows: Sequence[str], cells: Grid) -> None:
    claim = claims(report, SOURCE)
    top = "error of a step in the top third of the shells over MSE training's"
    if "smooth" in flows:
        name = "refinement repairs the smooth flow"
        claim(name, repaired(cells, "smooth"), at_most=0.2, means=top)
    for flow in flows:
        for base in ("mse", "mse, low-pass"):
            times = [ratio(cells, flow, "refiner", time, base) for time in TIMES.values()]
            means = f"the lower of both T(0.8) of the vorticity over {base}'s"
            name = f"refinement lengthens rollouts of the {flow} flow beyond {base}"
            claim(name, np.minimum(*times), at_least=PAYS, means=means)
        cell = cells[flow, "refiner"]
        horizons = zip(cell["predicted_horizon", :, :], cell["true_horizon", :, :], strict=True)
        means = "Pearson correlation of predicted and true horizon"
        agreement = [pearson(*pair) for pair in horizons]
        claim(f"samples know how long a rollout of the {flow} flow lasts", agreement, at_least=0.5,
              means=means)  # fmt: skip
    if "turbulent" in flows:
        claim, name = claims(report, OURS), "and hardly the turbulent one"
        means = f"{top}, more than a fifth"
        claim(name, repaired(cells, "turbulent"), at_least=0.2, means=means)


def _draw_shells(report: Report, flows: Mapping[str, FlowStudy], cells: Grid) -> None:
    caption = (
        "Error of one step by shell, standardised fields, median and range over seeds; grey: the "
        "fields' own amplitudes; dotted: the refiner before any refinement."
    )
    titles = [f"{name} flow" for name in flows]
    with picture(report, "shells", caption, titles=titles, height=3.2, sharey=True) as axes:
        for ax, (name, found) in zip(axes, flows.items(), strict=True):
            true = found.amplitude()[1:]
            k = np.arange(1, len(true) + 1)
            ax.semilogy(k, true, color="#777777", linewidth=3, alpha=0.5, label="field")
            for arm in ("linear", "mse", "refiner"):
                cell = cells[name, arm]
                if not cell.diverged:
                    error = cell["first_error", :, -1, 1:]
                    shade = colour(arm)
                    ax.semilogy(k, np.median(error, 0), color=shade, label=arm)
                    ax.fill_between(k, error.min(0), error.max(0), color=shade, alpha=0.2)
            if not cells[name, "refiner"].diverged:
                before = np.median(cells[name, "refiner"]["first_error", :, 0, 1:], 0)
                ax.semilogy(k, before, ":", color=colour("refiner"))
            ax.set_xlabel("shell")
        axes[0].set_ylabel("mean |rfft|")


def _draw_correlation(report: Report, flows: Mapping[str, FlowStudy], cells: Grid) -> None:
    caption = "Correlation of the vorticity with the truth's, mean over trajectories, by seeds."
    titles = [f"{name} flow" for name in flows]
    with picture(report, "correlation", caption, titles=titles, height=3.0, sharey=True) as axes:
        for ax, (name, found) in zip(axes, flows.items(), strict=True):
            for arm in ARMS:
                cell = cells[name, arm]
                if not cell.diverged:
                    values = cell["vorticity"].mean(2)
                    time = found.times(values.shape[1])
                    curve_with_band(ax, time, values, arm, linestyle=line(arm))
            level(ax, 0.8, linestyle=":")
            ax.set_xlabel("time")
        axes[0].set_ylabel("correlation")


def _draw_frames(report: Report, flows: Mapping[str, FlowStudy], cells: Grid) -> None:
    caption = (
        "Vorticity of one test trajectory, and rollouts from its first frame, first seed; from "
        f"left to right: {', '.join(flows)}."
    )
    shown = ("truth", "mse", "refiner")
    rows = {name: _rollouts(found, cells) for name, found in flows.items()}
    steps = min(len(of_flow["truth"]) for of_flow in rows.values())
    at = sorted({int(t) for t in np.geomspace(1, steps, FRAMES).round()})
    times = [f"{found.train.dt.mean() * t:.3g}" for found in flows.values() for t in at]
    titles = times + [""] * (len(times) * (len(shown) - 1))
    size = {"columns": len(times), "width": 1.1, "height": 1.2, "sharex": True, "sharey": True}
    with picture(report, "rollouts", caption, titles=titles, legend=False, **size) as axes:
        for column, (name, t) in enumerate((name, t) for name in flows for t in at):
            limit = float(np.abs(rows[name]["truth"]).max())
            for row, arm in enumerate(shown):
                ax = axes[row * len(times) + column]
                field = rows[name][arm][t - 1].T
                ax.imshow(field, vmin=-limit, vmax=limit, cmap="RdBu_r", origin="lower")
                ax.grid(visible=False)
                ax.set_xticks([])
                ax.set_yticks([])
                if column == 0:
                    ax.set_ylabel(arm, fontsize=8)


def _rollouts(found: FlowStudy, cells: Grid) -> dict[str, np.ndarray]:
    """The truth of the first test trajectory and rollouts of it, `[T, *space]`, standardised."""
    truth = found.truth()
    arms = {arm: cells[found.name, arm] for arm in ("mse", "refiner")}
    none = np.full_like(truth, np.nan)
    return {"truth": truth} | {
        arm: none if cell.diverged else cell.extra["rollout"] for arm, cell in arms.items()
    }


def _draw_samples(report: Report, flows: Mapping[str, FlowStudy], cells: Grid) -> None:
    caption = (
        "Standard deviation over the refiner's samples, and root mean square error of their mean; "
        "interquartile mean over seeds."
    )
    titles = [f"{name} flow" for name in flows]
    with picture(report, "samples", caption, titles=titles, height=2.8, sharey=True) as axes:
        for ax, (name, found) in zip(axes, flows.items(), strict=True):
            cell = cells[name, "refiner"]
            if not cell.diverged:
                for label, metric in (("spread of samples", "spread"), ("error", "error")):
                    values = cell[f"sampled_{metric}"]
                    time = found.times(values.shape[1])
                    curve_with_band(ax, time, values, label)
            ax.set_yscale("log")
            ax.set_xlabel("time")


_TINY = {"points": 16, "trajectories": 6, "frames": 8, "chunk": 6}
PRESETS = {
    "smoke": FlowsConfig(
        smooth=replace(kolmogorov(0.025, 0.2, 4, burn_in=1.0), **_TINY),
        turbulent=replace(kolmogorov(0.01, 0.2, 4, burn_in=1.0), **_TINY),
        tested=4, seeds=2, fno=FnoConfig(4, 1, 4, 8), steps=8, samples=2,
        training=TrainingConfig(updates=20, batch=4, warmup=2, per_iteration=10),
    ),
    "cpu": FlowsConfig(training=TrainingConfig(updates=3000, batch=8, rate=3e-3, warmup=100)),
}  # fmt: skip
EXPERIMENT = LISTINGS["flows_refiner"].experiment(FlowsConfig, PRESETS, run)
