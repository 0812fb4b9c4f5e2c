"""Ways to spend one training budget on Kuramoto-Sivashinsky; `ks_crossing` compares them.

Every arm takes the same number of gradient steps in all; a first model counts with what it was
trained for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.refiner import RefinerConfig, make_refiner
from jaxrl_rollouts.pde.study import look, train
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData, make_network
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .ks import cell_of, train_cell


class Arm(NamedTuple):
    """One way to spend the budget.

    Attributes:
        what: for the table.
        changes: of the paper's refiner; None for plain MSE training.
        levels: refinements, with noise chosen from the first model's error; None for the paper's.
        first: `shared` (one network, trained at once), `warm` (one network, trained by MSE
            before, and then at the rate with which that ended) or `own` (a network trained by MSE,
            and another one that only refines).
        over: finest chosen noise variance, in first models' mean square errors; None for the
            configuration's.
        before: share of the budget that goes to the first model, if there is one.
        after: share that goes to what follows it; None for the rest.
    """

    what: str
    changes: dict[str, Any] | None = None
    levels: int | None = None
    first: str = "shared"
    over: float | None = None
    before: float = 0.5
    after: float | None = None

    @property
    def then(self) -> float:
        """Share of the budget after the first model's."""
        return 1.0 - self.before if self.after is None else self.after


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
    "tail": Arm(
        "own network for the first call with 90 % of the budget, one noise far below its error",
        ZEROS, 1, "own", 0.1, 0.9,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class CrossingConfig:
    """What every arm shares; `study.training.updates` is the budget.

    Attributes:
        arms: names out of `ARMS`; mse must be among them.
        study: data, networks and trainings.
        refiner: the paper's.
        over_error: finest chosen noise variance, in first models' mean square errors (in units of
            the scaled residual, on training windows).
        between: ratio of two chosen noise variances.
        budgets: smaller shares of the budget at which MSE training and the refiner are compared.
        solved_from: wavenumbers from which on the true solver steps in place of the emulator.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    over_error: float = 3.0
    between: float = 10.0
    budgets: tuple[float, ...] = (0.25, 0.5)
    solved_from: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 10)

    def validate(self) -> None:
        if "mse" not in self.arms or set(self.arms) - set(ARMS):
            raise ConfigError("arms", self.arms, f"mse and names out of {', '.join(ARMS)}")
        if self.over_error <= 0:
            raise ConfigError("over_error", self.over_error, "above 0")
        if self.between <= 1:
            raise ConfigError("between", self.between, "above 1")
        if any(not 0 < share < 1 for share in self.budgets):
            raise ConfigError("budgets", self.budgets, "shares between 0 and 1")
        for share in self.parts():
            part(self.study.training, share)
        test = self.study.test
        one_domain = all(low == high for low, high in (test.extent, test.dt, test.parameter))
        if self.solved_from and (
            min(self.solved_from) < 0 or not one_domain or self.study.history > 1
        ):
            expected = "wavenumbers, and one domain, step and viscosity"
            hint = "leave it empty where trajectories differ, or emulators see several frames"
            raise ConfigError("solved_from", self.solved_from, expected, hint)

    def parts(self) -> Iterator[float]:
        """Every share of the budget that some training takes."""
        yield from self.budgets
        for arm in (ARMS[name] for name in self.arms):
            if arm.levels is not None:
                yield from (arm.before, arm.then)


def part(training: TrainingConfig, share: float) -> TrainingConfig:
    """The same schedule in a share of the updates.

    Raises:
        ConfigError: that is no whole number of the loop's iterations.
    """
    updates = round(training.updates * share)
    if updates < 1 or updates % training.per_iteration:
        expected = f"{share:g} of it a multiple of {training.per_iteration}"
        raise ConfigError("study.training.updates", training.updates, expected)
    return replace(training, updates=updates, warmup=int(training.warmup * share))


def following(arm: Arm, training: TrainingConfig) -> TrainingConfig:
    """What follows an arm's first model. A warm start goes on at the rate that it ended with."""
    rest = part(training, arm.then)
    return replace(rest, rate=rest.final_rate, warmup=0) if arm.first == "warm" else rest


class First(NamedTuple):
    """MSE training for a share of the budget, `[seeds, ...]`, and its error on training windows."""

    emulator: Emulator
    params: PyTree
    error: float


def first_model(
    share: float,
    config: CrossingConfig,
    data: StudyData,
    context: RunContext | None,
    stage: str = "",
) -> First:
    """Train by MSE for a share of the budget; arms that begin with the same one share its stage."""
    study, stage = config.study, stage or f"mse_{share:g}"
    emulator = train.make_emulator("mse", study)
    training = part(study.training, share)
    trained = train.train_emulator(stage, emulator, study, data.train, context, training=training)
    # Training's own loss at its end: no test trajectory is looked at to choose a noise.
    losses = trained.history.curve("loss")[1]
    error = float(losses[-max(1, len(losses) // 20) :].mean())
    return First(emulator, trained.state.average, error)


def refiner_of(config: CrossingConfig, arm: Arm, first: First | None) -> RefinerConfig:
    """Settings of an arm; noise levels from the first model's error where it asks for that."""
    changes = dict(arm.changes or {}) | {"residual_scale": config.study.residual_scale}
    if arm.levels is not None:
        assert first is not None
        lowest = min((arm.over or config.over_error) * first.error, 0.5)
        highest = min(lowest * config.between ** (arm.levels - 1), 0.9)
        changes |= {"steps": arm.levels, "min_noise_variance": lowest}
        changes |= {"max_noise_variance": highest if arm.levels > 1 else None}
    return replace(config.refiner, **changes)


def train_arm(
    arm: Arm,
    config: CrossingConfig,
    data: StudyData,
    context: RunContext | None,
    stage: str,
    before: str = "",
) -> Cell:
    """Train and roll one arm.

    Args:
        arm: how it spends the budget.
        config, data: the budget, and on what.
        context: of the run; None keeps nothing.
        stage: the arm's folder in the run.
        before: the first model's; left out, one that arms with an equal share have in common.

    Returns:
        A cell whose `refiner` is None for plain MSE training. That has `time_solved` and
        `time_solved_each`, `[seeds]` by wavenumber: T(0.8) where the solver steps from there on.
    """
    study = config.study
    training, start, refiner = study.training, None, None
    first = None if arm.levels is None else first_model(arm.before, config, data, context, before)
    emulator = train.make_emulator("mse", study)
    if arm.changes is not None:
        refiner = refiner_of(config, arm, first)
        after = first.emulator if first and arm.first == "own" else None
        emulator = make_refiner(make_network(study), refiner, after=after)
    if first is not None and arm.first != "shared":
        training, start = following(arm, training), first.params
    if first is not None and arm.first == "own":
        start = (first.params, jax.vmap(make_network(study).init)(train.per_seed_keys(study, 7)))
    outcome = look.train_and_roll(
        stage, emulator, study, data, context, training=training, start=start
    )
    extra: dict[str, Any] = {"refiner": refiner}
    if arm.changes is None:
        solved = _solved(stage, emulator, outcome.params, config, data, context)
        extra["time_solved"] = {lowest: times[0] for lowest, times in solved.items()}
        extra["time_solved_each"] = {lowest: times[1] for lowest, times in solved.items()}
    return cell_of(outcome, data.dt, extra)


def _solved(
    stage: str,
    emulator: Emulator,
    params: PyTree,
    config: CrossingConfig,
    data: StudyData,
    context: RunContext | None,
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Both T(0.8) `[seeds]` of rollouts whose wavenumbers from each number on are stepped truly."""

    def measure(lowest: int) -> dict[str, np.ndarray]:
        rolled = look.correlation_solved_from(emulator, params, config.study, data, lowest)
        return {"correlation": rolled}

    times = {}
    for lowest in config.solved_from:
        kept = remember(context, stage, f"solved_from_{lowest}", partial(measure, lowest))
        times[lowest] = look.high_correlation_times(kept["correlation"], data.dt)
    return times


def train_at_budget(
    method: str, share: float, config: CrossingConfig, data: StudyData, context: RunContext
) -> Cell:
    """MSE training or the paper's refiner with a share of the budget."""
    study, stage = config.study, f"{method}_{share:g}"  # a first model's, where there is one
    refiner = None if method == "mse" else refiner_of(config, ARMS[method], None)
    training = part(study.training, share)
    return train_cell(method, study, refiner, data, context, stage, training=training)
