"""When does refinement lengthen rollouts? Ways to spend one training budget, compared.

At small budgets one small network shares K + 1 tasks and the refiner's energetic wavenumbers are
worse than plain MSE training's, so its rollouts are shorter. Every arm here costs the same number
of gradient steps in all; a first model counts with what it was trained for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import Experiment, RunContext
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.refiner import RefinerConfig, make_refiner
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.statistics import summarize

from .ks_evaluation import Evaluated, evaluate, high_correlation_times, true_spectrum
from .ks_pictures import draw_correlation, draw_spectra
from .ks_presets import CPU, SMOKE
from .ks_study import KsData, StudyConfig, make_network, prepare, train_emulator

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"
PyTree = Any


class Arm(NamedTuple):
    """One way to spend the budget.

    Attributes:
        what: for the table.
        changes: of the paper's refiner; None for plain MSE training.
        levels: refinements, with noise chosen from the first model's error; None for the paper's.
        first: `shared` (one network, trained at once), `warm` (one network, trained by MSE for
            half the budget before) or `own` (a network trained by MSE for half the budget, and
            another one that only refines).
    """

    what: str
    changes: dict[str, Any] | None = None
    levels: int | None = None
    first: str = "shared"


ZEROS = {"first": "zeros"}
HALF = ZEROS | {"first_share": 0.5}
ARMS = {
    "mse": Arm("one-step MSE"),
    "refiner": Arm("the paper's: noise at the first call, equal shares", {}),
    "zeros": Arm("zeros at the first call", ZEROS),
    "share": Arm("and half the samples at the first call", HALF),
    "weight": Arm("zeros, and 10 times the loss at the first call", ZEROS | {"first_weight": 10.0}),
    "floor": Arm("half the samples, one noise chosen from the error", HALF, 1),
    "warm": Arm("the same, warm start from MSE", HALF, 1, "warm"),
    "own_1": Arm("own network for the first call, one noise from the error", ZEROS, 1, "own"),
    "own_2": Arm("own network for the first call, two noises from the error", ZEROS, 2, "own"),
}


@dataclass(frozen=True)
class CrossingConfig:
    """What every arm shares; `study.training.updates` is the budget.

    Attributes:
        arms: names out of `ARMS`; mse must be among them.
        refiner: the paper's.
        over_error: finest chosen noise variance, in first models' mean square errors (in units of
            the scaled residual, on training windows).
        between: ratio of two chosen noise variances.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    over_error: float = 3.0
    between: float = 10.0

    def validate(self) -> None:
        if "mse" not in self.arms or set(self.arms) - set(ARMS):
            raise ConfigError("arms", self.arms, f"mse and names out of {', '.join(ARMS)}")
        if self.over_error <= 0:
            raise ConfigError("over_error", self.over_error, "above 0")
        if self.between <= 1:
            raise ConfigError("between", self.between, "above 1")
        if self.study.training.updates % (2 * self.study.training.per_iteration):
            expected = f"a multiple of {2 * self.study.training.per_iteration}"
            raise ConfigError("study.training.updates", self.study.training.updates, expected)


class First(NamedTuple):
    """MSE training for half the budget, `[seeds, ...]`, and its error on training windows."""

    emulator: Emulator
    params: PyTree
    error: float


def half(training: TrainingConfig) -> TrainingConfig:
    """The same schedule in half the updates."""
    return replace(training, updates=training.updates // 2, warmup=training.warmup // 2)


def train_first(config: CrossingConfig, data: KsData, context: RunContext) -> First:
    """The first model of the arms that have one."""
    study = config.study
    emulator = _mse(study)
    trained = train_emulator("mse_half", emulator, half(study.training), study, data.train, context)
    # Training's own loss at its end: no test trajectory is looked at to choose a noise.
    losses = trained.history.curve("loss")[1]
    error = float(losses[-max(1, len(losses) // 20) :].mean())
    return First(emulator, trained.state.average, error)


def _mse(study: StudyConfig) -> Emulator:
    return make_one_step(make_network(study), OneStepConfig(residual_scale=study.residual_scale))


def refiner_of(config: CrossingConfig, arm: Arm, first: First | None) -> RefinerConfig:
    """Settings of an arm; noise levels from the first model's error where it asks for that."""
    changes = dict(arm.changes or {}) | {"residual_scale": config.study.residual_scale}
    if arm.levels is not None:
        assert first is not None
        lowest = min(config.over_error * first.error, 0.5)
        highest = min(lowest * config.between ** (arm.levels - 1), 0.9)
        changes |= {"steps": arm.levels, "min_noise_variance": lowest}
        changes |= {"max_noise_variance": highest if arm.levels > 1 else None}
    return replace(config.refiner, **changes)


class Result(NamedTuple):
    """An arm that was run; `refiner` is None for plain MSE training."""

    arm: Arm
    found: Evaluated
    refiner: RefinerConfig | None
    updates: int
    seconds: float


def run_arm(
    name: str, config: CrossingConfig, data: KsData, context: RunContext, first: First | None
) -> Result:
    """Train and roll one arm."""
    arm, study, training = ARMS[name], config.study, config.study.training
    if arm.changes is None:
        emulator = _mse(study)
        trained = train_emulator(name, emulator, training, study, data.train, context)
        found = evaluate(name, [emulator], trained.state.average, study, data, context)
        return Result(arm, found, None, training.updates, trained.run_seconds)
    settings, net = refiner_of(config, arm, first), make_network(study)
    after = first.emulator if first is not None and arm.first == "own" else None
    stages = [
        make_refiner(net, replace(settings, applied=n), after=after)
        for n in range(settings.steps + 1)
    ]
    emulator, start = stages[-1], None
    if arm.first != "shared":
        assert first is not None
        training, start = half(training), first.params
    if arm.first == "own":
        keys = jax.random.split(jax.random.fold_in(jax.random.key(study.seed), 7), study.seeds)
        start = (first.params, jax.vmap(net.init)(keys))  # type: ignore[union-attr]
    trained = train_emulator(name, emulator, training, study, data.train, context, start=start)
    found = evaluate(name, stages, trained.state.average, study, data, context)
    return Result(arm, found, settings, training.updates, trained.run_seconds)


def run(config: CrossingConfig, context: RunContext) -> Report:
    """Run every arm, compare with MSE training."""
    study = config.study
    data = prepare(study, context)
    needs_first = [n for n in config.arms if ARMS[n].levels is not None]
    first = train_first(config, data, context) if needs_first else None
    results = {name: run_arm(name, config, data, context, first) for name in config.arms}
    report = Report.of(context, study.seeds)
    clocks = {n: high_correlation_times(r.found.correlation, data.dt) for n, r in results.items()}
    report.table("arms", [_row(n, r, clocks[n], clocks["mse"]) for n, r in results.items()])
    for name in config.arms[1:]:
        report.claim(
            Claim.at_least(
                f"{name} crosses", values=clocks[name][0] / clocks["mse"][0], threshold=1.05,
                source=SOURCE, expected=f"T(0.8) over MSE training's: {ARMS[name].what}",
            )
        )  # fmt: skip
    found = {name: r.found for name, r in results.items()}
    draw_correlation(report, data, found)
    draw_spectra(report, found, true_spectrum(study, data))
    report.note(
        f"Every arm has {study.training.updates} gradient steps on batches of "
        f"{study.training.batch}; warm and own arms spend half of them on a first model. "
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}."
    )
    if first is not None:
        report.note(
            f"The first model's mean square error at the end of its training is {first.error:.3g} "
            f"of a step's variance; chosen noise variances are {config.over_error:g} times that."
        )
    return report


def _row(name: str, r: Result, clock: tuple, mse: tuple) -> dict:
    said = r.refiner
    return {
        "arm": name, "what": r.arm.what,
        "calls": 1 if said is None else said.steps + 1,
        "finest noise variance": None if said is None else said.min_noise_variance,
        "T(0.8), mean curve": summarize(clock[0]),
        "over MSE": summarize(clock[0] / mse[0]),
        "T(0.8), per trajectory": summarize(clock[1]),
        "over MSE, per trajectory": summarize(clock[1] / mse[1]),
        "one-step MSE, first call": summarize(r.found.one_step[:, 0]),
        "one-step MSE": summarize(r.found.one_step[:, -1]),
        "seconds to train": r.seconds,
    }  # fmt: skip


EXPERIMENT = Experiment(
    name="ks_crossing",
    summary="which way of spending a training budget makes PDE-Refiner's rollouts longer",
    source=SOURCE,
    config_type=CrossingConfig,
    presets={
        "smoke": CrossingConfig(
            study=SMOKE, refiner=RefinerConfig(min_noise_variance=1e-6),
            arms=("mse", "refiner", "warm", "own_2"),
        ),
        "cpu-long": CrossingConfig(
            study=replace(CPU, training=TrainingConfig(updates=20_000)),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
    },
    run=run,
)  # fmt: skip
