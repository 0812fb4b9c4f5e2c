"""Settings of `ks_ablation`, and what is trained and rolled at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.look import Evaluated, high_correlation_times
from jaxrl_rollouts.pde.study.train import KsData, StudyConfig, prepare
from jaxrl_rollouts.record.context import RunContext

from .ks_refiner import KsConfig, train_and_roll

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
    """The base (its sweep is empty), and every other value of every sweep."""
    base = config.study
    yield Setting("", 0.0, BOTH, {}, {})
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


class Point(NamedTuple):
    """One method at one setting."""

    setting: Setting
    method: str
    found: Evaluated
    dt: float

    @property
    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """How long rollouts last, `[seeds]`: by the mean curve, and mean over trajectories."""
        return high_correlation_times(self.found.correlation, self.dt)

    @property
    def tail(self) -> np.ndarray:
        """One-step error of the highest wavenumbers, `[seeds]`."""
        return self.found.first_error[:, -1, -13:].mean(1)


def run_setting(config: AblationConfig, setting: Setting, context: RunContext) -> Iterator[Point]:
    """Train and roll the setting's methods."""
    study = replace(config.study, **setting.study)
    data = prepare(study, context)
    count = max(1, round(setting.share * len(data.train.fields)))
    data = data._replace(train=type(data.train)(*(x[:count] for x in data.train)))
    study = replace(study, residual_scale=step_scale(data, study))
    for method in setting.methods:
        kept = replace(config.refiner, **setting.refiner)
        where = f"{setting.sweep or 'base'}-{setting.value:g}".replace(" ", "_")
        e = train_and_roll(
            method, KsConfig(BOTH, study, kept), data, context, sampled=False,
            stage=f"{where}-{method}",
        )  # fmt: skip
        yield Point(setting, method, e.found, data.dt)


def step_scale(data: KsData, study: StudyConfig) -> float:
    """Standard deviation of a step's change in the training data, two digits: the residual's c."""
    fields = np.asarray(data.train.fields[:256])
    change = fields[:, study.every :] - fields[:, : -study.every]
    return float(f"{change.std():.2g}")
