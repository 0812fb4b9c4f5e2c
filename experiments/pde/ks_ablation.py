"""What PDE-Refiner's settings do on Kuramoto-Sivashinsky, one at a time.

Noise floor, number of refinements, step size, history, share of the training data and
resolution, each a small sweep around one base setting with all seeds side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import Experiment, RunContext
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.pictures import colour, figure, legend
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.statistics import summarize

from .ks_evaluation import Evaluated, high_correlation_times
from .ks_presets import CPU, SMOKE, small_domain
from .ks_refiner import SOURCE, KsConfig, train_and_roll
from .ks_study import KsData, StudyConfig, prepare

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


def run(config: AblationConfig, context: RunContext) -> Report:
    """Every sweep: a table and a panel."""
    points = [p for s in settings(config) for p in run_setting(config, s, context)]
    base = {p.method: p for p in points if not p.setting.sweep}
    sweeps = list(dict.fromkeys(p.setting.sweep for p in points if p.setting.sweep))
    report = Report.of(context, config.study.seeds)
    clocks = {}
    for sweep in sweeps:
        clocks[sweep] = _clocks(config, sweep, points, base)
        report.table(sweep, [_row(sweep, *found) for found in clocks[sweep]])
    _draw(report, clocks, high_correlation_times(base["mse"].found.correlation, base["mse"].dt)[0])
    for claim in _claims(config, points, base):
        report.claim(claim)
    report.note(
        f"Base: noise floor {config.refiner.min_noise_variance:g}, {config.refiner.steps} "
        f"refinements, step {base['mse'].dt:g}, {config.study.points} points, all "
        f"{config.study.train.trajectories} training trajectories, "
        f"{config.study.training.updates} updates; {config.study.test.trajectories} test ones."
    )
    return report


class Clocked(NamedTuple):
    """One method at one value of a sweep, and how long its rollouts last.

    Attributes:
        curve, each: `[seeds]`, T(0.8) of the mean curve and mean over trajectories.
    """

    method: str
    value: float
    point: Point
    curve: np.ndarray
    each: np.ndarray


def _clocks(
    config: AblationConfig, sweep: str, points: list[Point], base: dict[str, Point]
) -> list[Clocked]:
    """A sweep with the base in its place, by method and value."""
    found = [(p.method, p.setting.value, p) for p in points if p.setting.sweep == sweep]
    swept = [m for m in BOTH if any(m == method for method, _, _ in found)]
    found += [(m, base_value(config, sweep), base[m]) for m in swept]
    found.sort(key=lambda one: (swept.index(one[0]), one[1]))
    return [Clocked(*f, *high_correlation_times(f[2].found.correlation, f[2].dt)) for f in found]


def _row(sweep: str, method: str, value: float, p: Point, curve: Any, each: Any) -> dict:
    return {
        sweep: value, "method": method, "T(0.8), mean curve": summarize(curve),
        "T(0.8), per trajectory": summarize(each),
        "one-step MSE": summarize(p.found.one_step[:, -1]),
        "highest wavenumbers' error": summarize(p.found.first_error[:, -1, -13:].mean(1)),
    }  # fmt: skip


def _draw(report: Report, clocks: dict[str, list[Clocked]], mse: np.ndarray) -> None:
    made, axes = figure(2, -(-len(clocks) // 2), titles=tuple(clocks))
    for found, ax in zip(clocks.values(), axes, strict=False):
        values = sorted({f.value for f in found})
        methods = list(dict.fromkeys(f.method for f in found))
        for method in methods:
            mine = [f for f in found if f.method == method]
            at, shade = [f.value for f in mine], colour(method)
            ax.plot(at, [f.curve.mean() for f in mine], "o-", color=shade, label=method)
            for x, f in zip(at, mine, strict=True):
                ax.plot([x] * len(f.curve), f.curve, ".", color=shade, alpha=0.5)
        if "mse" not in methods:
            ax.axhline(mse.mean(), color=colour("mse"), linestyle="--", label="mse, base")
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{v:g}" for v in values])
        ax.minorticks_off()
        ax.set_ylim(bottom=0.0)
        ax.set_ylabel("T(0.8), mean curve")
    legend(made, axes)
    report.picture("sweeps", made, "High-correlation time over every setting; points are seeds.")


def _claims(config: AblationConfig, points: list[Point], base: dict[str, Point]) -> Iterator[Claim]:
    """Orders the paper's figures have; lengths depend on the budget."""
    tails = {
        p.setting.value: p.found.first_error[:, -1, -13:].mean(1)
        for p in points
        if p.setting.sweep == "noise floor"
    }
    if tails:
        highest = max(tails)
        yield Claim.at_least(
            "the noise floor sets the error of the highest wavenumbers", source=SOURCE,
            values=tails[highest] / base["refiner"].found.first_error[:, -1, -13:].mean(1),
            threshold=3.0, expected=f"error at a floor of {highest:g} over that of the base",
        )  # fmt: skip
    times = {
        (p.setting.sweep, p.setting.value, p.method): high_correlation_times(
            p.found.correlation, p.dt
        )[0]
        for p in points
    }
    own = {m: high_correlation_times(p.found.correlation, p.dt)[0] for m, p in base.items()}
    for history in config.histories:
        yield Claim.at_most(
            f"a history of {history} shortens MSE training's rollouts", source=SOURCE,
            values=times["history", history, "mse"] / own["mse"], threshold=0.95,
            expected="T(0.8) over that with one frame",
        )  # fmt: skip
    if config.shares:
        least = min(config.shares)
        ratios = [
            t["refiner"] / t["mse"]
            for t in ({m: times["share of the data", least, m] for m in BOTH}, own)
        ]
        yield Claim.at_least(
            "refinement helps most with little data", source=SOURCE,
            values=ratios[0] / ratios[1], threshold=1.05,
            expected=f"refiner over MSE with {100 * least:g} % of the data, over that with all",
        )  # fmt: skip


EXPERIMENT = Experiment(
    name="ks_ablation",
    summary="noise floor, refinements, step size, history, data and resolution of PDE-Refiner",
    source=SOURCE,
    config_type=AblationConfig,
    presets={
        "smoke": AblationConfig(
            study=replace(SMOKE, steps=10), refiner=RefinerConfig(min_noise_variance=1e-6),
            noise_variances=(1e-3,), refinements=(), every=(2,), histories=(2,), shares=(0.25,),
            points=(),
        ),
        # Frames 0.4 apart: two of them are the base's step.
        "cpu": AblationConfig(
            study=replace(
                CPU, seeds=2, every=2, steps=120, sampled_steps=60,
                train=replace(small_domain(1024, 71, 0), dt=(0.4, 0.4), burn_in=200, substeps=8),
                test=replace(small_domain(256, 245, 1), dt=(0.4, 0.4), burn_in=200, substeps=8),
                training=TrainingConfig(updates=5000),
            ),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
    },
    run=run,
)  # fmt: skip
