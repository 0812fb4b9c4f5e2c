"""`jaxrl-rollouts pde train FILE`: from a file of fields to a trained emulator and a report.

It is an experiment like the others, so that its runs resume and its reports are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from jaxrl_rollouts.configs import number, positive, step_size
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .commands import TRAIN
from .constant import changing, check_changing, check_constant
from .emulator import persistence
from .equations import equation
from .fieldset import FieldSet, take_trajectories
from .files import complete, read_fields
from .objectives import OneStep, OneStepConfig
from .operators import DriftConfig, FnoConfig, ResnetConfig, UnetConfig
from .refiner import RefinerConfig
from .study.beside import Baseline, Beside, linear, low_pass, solver, solver_conditions
from .study.fit import Fitted, fit, hold_fields
from .study.flow import find_flow
from .study.page import make_report
from .study.train import StudyConfig, StudyData
from .study.units import standardised
from .training import TrainingConfig


@dataclass(frozen=True)
class TrainConfig:
    """What `pde train` does.

    Attributes:
        file: trajectories in the layout of PDEArena (on one axis or NavierStokes2D), The Well,
            PDEBench, PDEgym or APEBench, or a plain array (.npy, .npz with u, dt, dx, ...).
            Channels that are constant in time (a force, a mask) are seen and not predicted.
        test: another file, to test on; left out, the last trajectories of `file`.
        test_share: their share.
        objective: refiner, mse, pushforward, unrolled, sobolev, correction or prediction.
        network: resnet, unet, fno or drift; its sizes have options of their own.
        updates: gradient steps.
        batch: windows per gradient step.
        rate: learning rate after the warm-up.
        seeds: emulators trained side by side.
        seed: decides everything that is drawn.
        history: frames an emulator sees.
        every: frames of the file per step.
        conditions: what emulators are told: dt, dx and parameters of the file; left out, those
            that differ between trajectories.
        stream: leave the fields on the disk and read windows while training: auto, where they do
            not fit into memory; always; never.
        steps: of the test rollouts; left out, as long as the test trajectories are.
        baselines: beside persistence: linear, the best linear map per wavenumber; low_pass, a
            one-step emulator cut off where its error in training exceeds the field (beside the
            refiner one is trained for it, and stands there uncut, too, and where there are walls
            alone); solver, where the equation is known.
        equation: of the file, where it does not say it: windows are then moved only along axes
            along which it is the same everywhere.
        shift_axes: axes, from 0, along which windows are moved instead: those along which the
            equation is the same everywhere and whose ends are joined.
        boundaries: periodic, wall or open, for all axes or one for each, where the file does not
            say it, as plain arrays.
        dt: time between frames, where the file does not say it.
        dx: distance between points, for all axes or one for each, where the file does not say it.
        resnet: its sizes.
        unet: its sizes.
        fno: its sizes.
        drift: its sizes; fields of two axes only.
        refiner: PDE-Refiner's settings.
    """

    file: str = ""
    test: str = ""
    test_share: float = number(0.2, above=0, below=1)
    objective: Literal["refiner"] | OneStep = "refiner"
    network: Literal["resnet", "unet", "fno", "drift"] = "resnet"
    updates: int = positive(5000)
    batch: int = positive(32)
    rate: float = step_size(1e-3)
    seeds: int = positive(2)
    seed: int = 0
    history: int = positive(1)
    every: int = positive(1)
    conditions: tuple[str, ...] | None = None
    stream: Stream = "auto"
    steps: int | None = positive(None)
    baselines: tuple[Baseline, ...] = ("linear", "low_pass", "solver")
    equation: str = ""
    shift_axes: tuple[int, ...] | None = None
    boundaries: tuple[Literal["periodic", "wall", "open"], ...] = ()
    dt: float | None = number(None, above=0)
    dx: tuple[float, ...] = number((), above=0)
    resnet: ResnetConfig = field(default_factory=ResnetConfig)
    unet: UnetConfig = field(default_factory=UnetConfig)
    fno: FnoConfig = field(default_factory=FnoConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)


def prepare(config: TrainConfig) -> list[str]:
    """Look into the files before anything is written; what they hold."""
    train_set, test_set = split(config)
    count, frames, channels, *grid = train_set.shape
    return [
        f"{train_set.path.name}: {train_set.layout}, {count:,} trajectories to train on and "
        f"{test_set.shape[0]:,} to test on, {frames} frames, {channels} channel(s), "
        f"{' x '.join(map(str, grid))} points" + constant_line(train_set)
    ]


def constant_line(found: FieldSet) -> str:
    """Which channels the file itself says are constant; "" where none are."""
    names = [found.channels[i] for i in found.constant]
    return f"; constant, not predicted: {', '.join(names)}" if names else ""


def unread(config: TrainConfig) -> list[str]:
    """Settings of the other networks and of the refiner where there is none; what is measured."""
    hidden = [name for name in ("resnet", "unet", "fno", "drift") if name != config.network]
    measured = ["refiner.residual_scale", "refiner.applied"]
    return hidden + (measured if config.objective == "refiner" else ["refiner"])


def run(config: TrainConfig, context: RunContext) -> Report:
    """Train, save the emulator, roll it and what stands beside it over the test trajectories."""
    train_set, test_set = split(config)
    fitted = fitted_to(config, config.objective, train_set, context)
    own = fitted.emulator
    train_set, test_set = (s._replace(constant=tuple(own.constant)) for s in (train_set, test_set))
    fitted.save(context.folder.path / "emulator")
    study, data = tested(config, fitted, test_set, context)
    beside = Beside(own, train_set, test_set, study, data, config.every, context)
    arms = {config.objective: beside.judge(config.objective, own.emulator, fitted.params)}
    notes = []
    if "low_pass" in config.baselines:
        one_step, name = own, config.objective
        if name == "refiner":
            one_step, name = fitted_to(config, "mse", train_set, context).emulator, "mse"
            arms[name] = beside.judge(name, one_step.emulator, one_step.params)
        if beside.periodic:
            arms[f"{name}, low-pass"], cuts = low_pass(beside, name, one_step)
            notes.append(cut_note(name, cuts, arms[name].late.shape[-1]))
    if "linear" in config.baselines and beside.periodic:
        arms["linear"] = linear(beside, config.stream)
    if {"linear", "low_pass"} & {*config.baselines} and not beside.periodic:
        notes.append("The linear map and the low-pass are left out: they need circles, not walls.")
    if "solver" in config.baselines and test_set.equation:
        arms["solver"] = solver(beside)
    arms["persistence"] = beside.judge("persistence", persistence(config.history), ())
    report = Report.of(context, config.seeds)
    make_report(report, fitted, train_set, study, data, arms)
    for note in notes:
        report.note(note)
    return report


def fitted_to(
    config: TrainConfig, objective: str, train_set: FieldSet, context: RunContext
) -> Fitted:
    """An emulator of an objective, trained as the settings say."""
    refines = objective == "refiner"
    chosen: Any = config.refiner if refines else OneStepConfig(objective=objective)  # type: ignore[arg-type]
    return fit(
        chosen,
        train_set,
        network=getattr(config, config.network),
        conditions=config.conditions,
        history=config.history,
        every=config.every,
        updates=config.updates,
        seeds=config.seeds,
        key=config.seed,
        training=TrainingConfig(
            batch=config.batch,
            rate=config.rate,
            final_rate=config.rate / 100,
            shift_axes=config.shift_axes,
        ),
        stage=objective,
        context=context,
        stream=config.stream,
    )


def cut_note(name: str, cuts: np.ndarray, count: int) -> str:
    """Where the low-pass cuts."""
    found = sorted({int(cut) for cut in cuts})
    if found == [count]:
        return f"The low-pass cuts nothing: no wavenumber of {name}'s step is all error."
    return (
        f"The low-pass drops wavenumbers from {' or '.join(map(str, found))} on, where {name}'s "
        "error after a step of training exceeds the field."
    )


def split(config: TrainConfig) -> tuple[FieldSet, FieldSet]:
    """Trajectories to train and to test on, both checked.

    Raises:
        ConfigError: no file.
        DataError: fields that cannot be trained on, or too few of them.
    """
    if not config.file:
        raise ConfigError(
            "file", "nothing", "a file of trajectories: jaxrl-rollouts pde train FILE"
        )
    found = _read(config, config.file)
    check_changing(found)
    if config.test:
        other = _read(config, config.test)
        if other.shape[2:] != found.shape[2:]:
            expected = f"those of {found.path.name}, {list(found.shape[2:])}"
            raise DataError(other.path, "channels, points", list(other.shape[2:]), expected)
        _check_solver(config, other)
        return found, other
    count = max(1, round(config.test_share * found.shape[0]))
    if found.shape[0] <= count:
        raise DataError(
            found.path, "trajectories", found.shape[0], f"more than the {count} to test on"
        )
    _check_solver(config, found)
    rows = slice(0, -count), slice(-count, None)
    train_set, test_set = (take_trajectories(found, part) for part in rows)
    return train_set, test_set


def _check_solver(config: TrainConfig, found: FieldSet) -> None:
    """What the solver needs is asked for before anything is trained."""
    if found.equation and "solver" in config.baselines:
        solver_conditions(found, config.every)


def _read(config: TrainConfig, file: str) -> FieldSet:
    named = equation(config.equation).name if config.equation else ""
    found = complete(read_fields(file), config.boundaries, config.dt, config.dx)
    return found._replace(equation=named or found.equation)


def tested(
    config: TrainConfig, fitted: Fitted, test: FieldSet, context: RunContext
) -> tuple[StudyConfig, StudyData]:
    """How the evaluation goes, and its trajectories, in units of the training data.

    Raises:
        DataError: trajectories too short for the rollouts, or others than the run began with.
    """
    own = fitted.emulator
    u = np.asarray(test.read(slice(None), slice(0, None, config.every)), np.float32)
    check_constant(test.path, u, own.constant, own.names)
    u, moving = u[:, :, list(own.changing)] if own.constant else u, changing(test)
    hold_fields(test, u, "test", context)
    fields = standardised(test, u, own.units, own.conditions, own.constant)
    longest = u.shape[1] - config.history
    steps = config.steps or longest
    if not 0 < steps <= longest:
        expected = f"more than {(steps + config.history - 1) * config.every}"
        raise DataError(test.path, "frames", test.shape[1], expected, "ask for fewer --steps")
    study = StudyConfig(
        seeds=config.seeds,
        seed=config.seed,
        history=config.history,
        points=own.grid[0],
        steps=steps,
    )
    none = np.zeros(len(u))
    return study, StudyData(fields, fields, own.dt or 1.0, none, own.units, find_flow(moving))


EXPERIMENT = TRAIN.experiment(
    config_type=TrainConfig,
    presets={
        "smoke": TrainConfig(
            updates=20,
            batch=8,
            resnet=ResnetConfig(width=8, blocks=1, dilations=(1, 2), embedding=8),
        ),
        "cpu": TrainConfig(),
    },
    run=run,
)
