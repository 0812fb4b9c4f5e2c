"""Settings of `ks_ablation`, and what is trained and rolled at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import StudyConfig, prepare
from jaxrl_rollouts.record.context import RunContext

from ..kit.grid import Cell, Grid, run_grid
from .ks_cells import train_cell

BOTH = ("mse", "refiner")


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
        for value in self.every:
            if (self.study.steps * self.study.every) % value:
                expected = f"divisors of {self.study.steps * self.study.every} frames"
                raise ConfigError("every", value, expected)
        for setting in settings(self):
            replace(self.study, **setting.study).validate()
            replace(self.refiner, **setting.refiner).validate()


class Setting(NamedTuple):
    """One setting: the sweep it is of, its value, the methods run, what it changes."""

    sweep: str
    value: float
    methods: tuple[str, ...]
    study: dict[str, Any]
    refiner: dict[str, Any]
    share: float = 1.0


def settings(config: AblationConfig) -> Iterator[Setting]:
    """The base (its sweep is `base`), and every other value of every sweep."""
    base = config.study
    yield Setting("base", 0.0, BOTH, {}, {})
    for variance in config.noise_variances:
        change = {"min_noise_variance": variance}
        yield Setting("noise floor", variance, ("refiner",), {}, change)
    for steps in config.refinements:
        yield Setting("refinements", steps, ("refiner",), {}, {"steps": steps})
    for every in config.every:
        steps = base.steps * base.every // every
        change = {"every": every, "steps": steps, "sampled_steps": min(base.sampled_steps, steps)}
        yield Setting("step size", every, BOTH, change, {})
    for history in config.histories:
        yield Setting("history", history, BOTH, {"history": history}, {})
    for share in config.shares:
        yield Setting("share of the data", share, BOTH, {}, {}, share)
    for points in config.points:
        yield Setting("points", points, BOTH, {"points": points}, {})


def base_value(config: AblationConfig, sweep: str) -> float:
    """Where the base lies in a sweep."""
    return {
        "noise floor": config.refiner.min_noise_variance, "refinements": config.refiner.steps,
        "step size": config.study.every, "history": config.study.history,
        "share of the data": 1.0, "points": config.study.points,
    }[sweep]  # fmt: skip


def train_settings(config: AblationConfig, context: RunContext) -> Grid:
    """Train and roll every setting's methods; axes are sweep, value and method."""
    points = {(s.sweep, s.value, method): s for s in settings(config) for method in s.methods}

    def train(sweep: str, value: float, method: str, stage: str) -> Cell:
        setting = points[sweep, value, method]
        study = replace(config.study, **setting.study)
        data = prepare(study, context).first(setting.share)
        study = replace(study, residual_scale=data.step_scale(study.every))
        refiner = replace(config.refiner, **setting.refiner)
        return train_cell(method, study, refiner, data, context, stage)

    axes = ("sweep", "value", "method")
    return run_grid(axes, train, context, seeds=config.study.seeds, points=points)


def along(config: AblationConfig, cells: Grid, sweep: str) -> Grid:
    """A sweep with the base in its place, by value and method."""
    base, swept = cells.at(sweep="base", value=0.0), cells.at(sweep=sweep)
    methods = [m for m in BOTH if any(method == m for _, method in swept)]
    at_base = {(base_value(config, sweep), m): base[m] for m in methods}
    both = dict(swept) | at_base
    order = sorted(both, key=lambda point: (methods.index(point[1]), point[0]))
    return Grid((sweep, "method"), {point: both[point] for point in order})
