"""What PDE-Refiner's settings do on Kuramoto-Sivashinsky, one at a time.

Noise floor, number of refinements, step size, history, share of the training data and
resolution, each a small sweep around one base setting with all seeds side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import StudyConfig, prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from ..kit.colours import colour
from ..kit.draw import sweep
from .ks import CPU, REFINER, SMOKE, SOURCE, small_domain, train_cell

BOTH = ("mse", "refiner")
COLUMNS = {
    "T(0.8), mean curve": "time_curve",
    "T(0.8), per trajectory": "time_each",
    "one-step MSE": lambda cell: cell["one_step", :, -1],
    "highest wavenumbers' error": lambda cell: tail(cell),
}


@dataclass(frozen=True)
class AblationConfig:
    """Values of every sweep; the base setting is run once and belongs to all of them.

    Attributes:
        study, refiner: the base. Rollouts of another step size last as long.
        noise_variances, refinements: of the refiner.
        every: frames of the files per step.
        histories: frames an emulator sees.
        shares: of the training trajectories.
        points: of the emulators' grid.
    """

    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    noise_variances: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-7)
    refinements: tuple[int, ...] = (1, 2, 4, 8)
    every: tuple[int, ...] = (1, 4)
    histories: tuple[int, ...] = (2,)
    shares: tuple[float, ...] = (0.03, 0.1, 0.3)
    points: tuple[int, ...] = (32,)

    def validate(self) -> None:
        if any(not 0 < share <= 1 for share in self.shares):
            raise ConfigError("shares", self.shares, "each above 0, at most 1")
        frames = self.study.steps * self.study.every
        for value in self.every:
            if frames % value:
                raise ConfigError("every", value, f"divisors of {frames} frames")
        for setting in settings(self):
            check(replace(self.study, **setting.study))
            check(replace(self.refiner, **setting.refiner))


class Setting(NamedTuple):
    """One setting: the sweep it is of, its value, the methods run, what it changes."""

    sweep: str
    value: float
    methods: tuple[str, ...] = BOTH
    study: Mapping[str, Any] = {}
    refiner: Mapping[str, Any] = {}
    share: float = 1.0


def settings(config: AblationConfig) -> Iterator[Setting]:
    """The base (its sweep is `base`), and every other value of every sweep."""
    base = config.study
    yield Setting("base", 0.0)
    for variance in config.noise_variances:
        change = {"min_noise_variance": variance}
        yield Setting("noise floor", variance, ("refiner",), refiner=change)
    for steps in config.refinements:
        yield Setting("refinements", steps, ("refiner",), refiner={"steps": steps})
    for every in config.every:
        steps = base.steps * base.every // every
        change = {"every": every, "steps": steps, "sampled_steps": min(base.sampled_steps, steps)}
        yield Setting("step size", every, study=change)
    for history in config.histories:
        yield Setting("history", history, study={"history": history})
    for share in config.shares:
        yield Setting("share of the data", share, share=share)
    for points in config.points:
        yield Setting("points", points, study={"points": points})


def along(config: AblationConfig, cells: Grid, sweep: str) -> Grid:
    """A sweep with the base in its place, by value and method."""
    study, refiner = config.study, config.refiner
    base_values = {
        "noise floor": refiner.min_noise_variance,
        "refinements": refiner.steps,
        "step size": study.every,
        "history": study.history,
        "share of the data": 1.0,
        "points": study.points,
    }
    base, swept = cells.at(sweep="base", value=0.0), cells.at(sweep=sweep)
    methods = [m for m in BOTH if any(method == m for _, method in swept)]
    both = dict(swept) | {(base_values[sweep], m): base[m] for m in methods}
    order = sorted(both, key=lambda point: (methods.index(point[1]), point[0]))
    return Grid((sweep, "method"), {point: both[point] for point in order})


def run(config: AblationConfig, context: RunContext) -> Report:
    """Train and roll every setting's methods, compare, draw."""
    points = {(s.sweep, s.value, method): s for s in settings(config) for method in s.methods}

    def train(sweep: str, value: float, method: str, stage: str) -> Cell:
        setting = points[sweep, value, method]
        study = replace(config.study, **setting.study)
        data = prepare(study, context).first(setting.share)
        study = replace(study, residual_scale=data.step_scale(study.every))
        refiner = replace(config.refiner, **setting.refiner)
        return train_cell(method, study, refiner, data, context, stage)

    axes, seeds = ("sweep", "value", "method"), config.study.seeds
    cells = run_grid(axes, train, context, seeds=seeds, points=points)
    report = Report.of(context, seeds)
    sweeps = {name: along(config, cells, name) for name, _, _ in cells if name != "base"}
    for name, grid in sweeps.items():
        report.table(name, grid.rows(COLUMNS))
    base = cells.at(sweep="base", value=0.0)
    _draw(report, sweeps, base["mse"]["time_curve"].mean())
    _claims(report, config, cells, base)
    dt, study = prepare(config.study, context).dt, config.study
    report.note(
        f"Base: noise floor {config.refiner.min_noise_variance:g}, {config.refiner.steps} "
        f"refinements, step {dt:g}, {study.points} points, all {study.train.trajectories} training "
        f"trajectories, {study.training.updates} updates; {study.test.trajectories} test ones."
    )
    return report


def tail(cell: Cell) -> np.ndarray:
    """One-step error of the highest wavenumbers, `[seeds]`."""
    return cell["first_error", :, -1, -13:].mean(1)


def _draw(report: Report, sweeps: Mapping[str, Grid], mse: float) -> None:
    """T(0.8) along every sweep; `mse` is the base's."""
    caption = "High-correlation time over every setting; points are seeds."
    titles = tuple(sweeps)
    with picture(report, "sweeps", caption, titles=titles, columns=-(-len(titles) // 2)) as axes:
        for grid, ax in zip(sweeps.values(), axes, strict=True):
            methods = dict.fromkeys(method for _, method in grid)
            for method in methods:
                line = grid.at(method=method)
                sweep(ax, list(line), [c["time_curve"] for c in line.values()], method)
            if "mse" not in methods:
                ax.axhline(mse, color=colour("mse"), linestyle="--", label="mse, base")
            values = sorted({value for value, _ in grid})
            ax.set_xscale("log")
            ax.set_xticks(values, [f"{v:g}" for v in values])
            ax.minorticks_off()
            ax.set_ylim(bottom=0.0)
            ax.set_ylabel("T(0.8), mean curve")


def _claims(report: Report, config: AblationConfig, cells: Grid, base: Grid) -> None:
    """Orders the paper's figures have; lengths depend on the budget."""
    claim = claims(report, SOURCE)
    if config.noise_variances:
        highest = max(config.noise_variances)
        name = "the noise floor sets the error of the highest wavenumbers"
        means = f"error at a floor of {highest:g} over that of the base"
        ratio = tail(cells["noise floor", highest, "refiner"]) / tail(base["refiner"])
        claim(name, ratio, at_least=3.0, means=means)
    for history in config.histories:
        name = f"a history of {history} shortens MSE training's rollouts"
        ratio = cells["history", history, "mse"]["time_curve"] / base["mse"]["time_curve"]
        claim(name, ratio, at_most=0.95, means="T(0.8) over that with one frame")
    if config.shares:
        least = min(config.shares)
        few, every = (
            grid["refiner"]["time_curve"] / grid["mse"]["time_curve"]
            for grid in (cells.at(sweep="share of the data", value=least), base)
        )
        means = f"refiner over MSE with {100 * least:g} % of the data, over that with all"
        claim("refinement helps most with little data", few / every, at_least=1.05, means=means)


SMALL: dict[str, Any] = {"noise_variances": (1e-3,), "refinements": (), "every": (2,)}
SMALL |= {"histories": (2,), "shares": (0.25,), "points": ()}
FRAMES = {"dt": (0.4, 0.4), "burn_in": 200, "substeps": 8}  # two of them are the base's step
DATA = {
    "train": replace(small_domain(1024, 71, 0), **FRAMES),
    "test": replace(small_domain(256, 245, 1), **FRAMES),
}
STUDY = replace(CPU, seeds=2, every=2, steps=120, sampled_steps=60, **DATA)
PRESETS = {
    "smoke": AblationConfig(replace(SMOKE, steps=10), REFINER, **SMALL),
    "cpu": AblationConfig(replace(STUDY, training=TrainingConfig(updates=5000)), REFINER),
}
EXPERIMENT = LISTINGS["ks_ablation"].experiment(AblationConfig, PRESETS, run)
