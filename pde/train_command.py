"""`jaxrl-rollouts pde train FILE`: from a file of fields to a trained emulator and a report.

It is an experiment like the others, so that its runs resume and its reports are theirs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.configs import chosen, number, positive, step_size
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .commands import TRAIN
from .comparison import Baseline, Comparison, holdout, linear, low_pass, solver, solver_conditions
from .constant import check_constant
from .emulator import persistence
from .evaluation import Holdout
from .fieldset import FieldSet
from .fitting import Fitted, fit
from .frames import narrowed
from .objectives import Mse
from .operators import Resnet
from .precision import Precision, Shard
from .registries import NETWORKS, OBJECTIVES
from .report import make_report
from .split import split_files, with_validation
from .training import Training
from .training_fields import hold_fields


@dataclass(frozen=True)
class TrainConfig:
    """What `pde train` does.

    Attributes:
        file: trajectories in the layout of PDEArena (on one axis or NavierStokes2D), The Well,
            PDEBench, PDEgym or APEBench, or a plain array (.npy, .npz with u, dt, dx, ...); a
            folder, a pattern, or several separated by commas. Channels that are constant in time
            (a force, a mask) are inputs and not predicted.
        test: another file, folder, pattern or several separated by commas, to test on; left out,
            `test` of a folder in The Well's layout, else the last trajectories of each file, or the
            last frames of a single one.
        test_share: share of these test trajectories.
        objective: mse, pushforward, unrolled, sobolev, correction, refiner or crps, and its
            settings.
        network: resnet, unet, convnext, fno, transolver, or of two axes drift and poseidon, and its
            sizes.
        steps: gradient steps.
        batch: windows per gradient step.
        lr: learning rate after the warm-up.
        precision: precision of the network's computations in training: float32 or bfloat16.
        remat: compute gradients window by window and recompute activations, for large grids.
        shard: axis split over devices: seeds; batch, the windows of each step, for one seed; or
            the first axis of space, for large grids.
        seeds: emulators trained side by side.
        seed: random seed.
        validation_share: share of the training trajectories used to measure the error during
            training and to select the best weights; 0 for none.
        history: number of input frames.
        stride: frames of the file per step.
        strides: step sizes trained side by side, in frames, 1 first; `pde roll --members` then
            compares rollouts of each.
        conditions: further inputs: dt, dx and parameters of the file; left out, those
            that differ between trajectories.
        stream: leave the fields on disk and read windows while training: auto, if they do
            not fit into memory; always; never.
        on_divergence: treatment of a seed whose loss becomes non-finite: drop it and keep the
            others, or raise.
        horizon: steps of the test rollouts; left out, the length of the test trajectories.
        baselines: in addition to persistence: linear, the best linear map per wavenumber; low_pass,
            a one-step emulator, truncated in Fourier space where its training error exceeds the
            field (with a refiner, it is trained and also reported without truncation; between
            walls only without); solver, where the equation is known.
        equation: equation of the file, if the file does not name it: windows are then shifted only
            along axes of translation invariance.
        shift_axes: axes, from 0, along which windows are shifted instead: periodic axes along which
            the equation is translation-invariant.
        boundaries: periodic, wall, open, neumann or dirichlet=VALUE, for all axes or one for each
            (LOW|HIGH if its ends differ), if the file does not have it, as plain arrays.
        dt: time between frames, if the file does not have it.
        dx: distance between points, for all axes or one for each, if the file does not have it.
        axes: number of spatial axes, for a plain array with an ambiguous shape.
        every: keep every so many frames of the file, the first included; `stride` keeps the others
            as starts of windows. --dt is the time between the file's frames.
        channels: names of the channels to use; left out, all.
    """

    file: str = ""
    test: str = ""
    test_share: float = number(0.2, above=0, below=1)
    objective: Any = chosen(OBJECTIVES, Mse)
    network: Any = chosen(NETWORKS, Resnet)
    steps: int = positive(5000)
    batch: int = positive(32)
    lr: float = step_size(1e-3)
    precision: Precision = "float32"
    remat: bool = False
    shard: Shard = "seeds"
    seeds: int = positive(2)
    seed: int = 0
    validation_share: float = number(0.1, least=0, below=1)
    history: int = positive(1)
    stride: int = positive(1)
    strides: tuple[int, ...] = positive(())
    conditions: tuple[str, ...] | None = None
    stream: Stream = "auto"
    on_divergence: OnDivergence = "drop"
    horizon: int | None = positive(None)
    baselines: tuple[Baseline, ...] = ("linear", "low_pass", "solver")
    equation: str = ""
    shift_axes: tuple[int, ...] | None = None
    boundaries: tuple[str, ...] = ()
    dt: float | None = number(None, above=0)
    dx: tuple[float, ...] = number((), above=0)
    axes: int | None = number(None, least=1, most=3)
    every: int = positive(1)
    channels: tuple[str, ...] = ()


def prepare(config: TrainConfig) -> list[str]:
    """Look into the files before anything is written; what they hold."""
    train_set, test_set = split(config)
    training, validation = with_validation(config, train_set)
    _, frames, channels, *grid = train_set.shape
    validated = f"{validation.shape[0]:,} to validate on" if validation else "none to validate on"
    more = f" and {len(train_set.parts) - 1} more" if len(train_set.parts) > 1 else ""
    return [
        f"{train_set.path.name}{more}: {train_set.layout}, {training.shape[0]:,} trajectories to "
        f"train on, {validated} and {test_set.shape[0]:,} to test on, {frames} frames, "
        f"{channels} channel(s), "
        f"{' x '.join(map(str, grid))} points" + constant_line(train_set)
    ]


def constant_line(fields: FieldSet) -> str:
    """Which channels the file itself holds constant; "" where none are."""
    names = [fields.channels[i] for i in fields.constant]
    return f"; constant, not predicted: {', '.join(names)}" if names else ""


def run(config: TrainConfig, context: RunContext) -> Report:
    """Train, save the emulator, roll it and its baselines over the test trajectories."""
    train_set, test_set = split(config)
    objective = OBJECTIVES.name_of(config.objective)
    fitted = fitted_to(config, config.objective, train_set, context)
    own = fitted.emulator
    train_set, test_set = (s._replace(constant=tuple(own.constant)) for s in (train_set, test_set))
    fitted.save(context.folder.path / "emulator")
    data = held_out(config, fitted, test_set, context)
    arms = Comparison(own, train_set, test_set, data, config.stride, context)
    found = {objective: arms.measure(objective, own.emulator, fitted.params)}
    notes = []
    if train_set.shape[0] == 1 and not config.test:
        notes.append(f"The test is the last {test_set.shape[1]} frames of the one trajectory.")
    if "low_pass" in config.baselines:
        one_step, name = own, objective
        if name == "refiner":
            one_step, name = fitted_to(config, Mse(), train_set, context).emulator, "mse"
            found[name] = arms.measure(name, one_step.emulator, one_step.params)
        if arms.periodic:
            found[f"{name}, low-pass"], cuts = low_pass(arms, name, one_step)
            kept = cuts[np.isfinite(found[name].one_step[:, -1])]
            notes.append(cut_note(name, kept, found[name].late.shape[-1]))
    if "linear" in config.baselines and arms.periodic:
        found["linear"] = linear(arms, config.stream)
    if {"linear", "low_pass"} & {*config.baselines} and not arms.periodic:
        notes.append("Left out: the linear map and the low-pass, which need periodic axes.")
    if "solver" in config.baselines and test_set.equation:
        found["solver"] = solver(arms)
    found["persistence"] = arms.measure("persistence", persistence(config.history), ())
    report = Report.of(context, config.seeds)
    make_report(report, fitted, train_set, data, found)
    for note in notes:
        report.note(note)
    return report


def fitted_to(
    config: TrainConfig, objective: Any, train_set: FieldSet, context: RunContext
) -> Fitted:
    """An emulator of an objective, trained with the settings of the run."""
    training, validation = with_validation(config, train_set)
    return fit(
        objective,
        training,
        network=config.network,
        conditions=config.conditions,
        history=config.history,
        stride=config.stride,
        strides=config.strides,
        steps=config.steps,
        seeds=config.seeds,
        key=config.seed,
        training=Training(
            batch=config.batch,
            lr=config.lr,
            final_lr=config.lr / 100,
            shift_axes=config.shift_axes,
            precision=config.precision,
            remat=config.remat,
            shard=config.shard,
        ),
        validation=validation,
        stage=OBJECTIVES.name_of(objective),
        context=context,
        stream=config.stream,
        on_divergence=config.on_divergence,
    )


def cut_note(name: str, cuts: np.ndarray, count: int) -> str:
    """Where the low-pass cuts."""
    found = sorted({int(cut) for cut in cuts})
    if found == [count]:
        return f"The low-pass truncates nothing: {name}'s error exceeds the field at no wavenumber."
    return (
        f"The low-pass drops wavenumbers from {' or '.join(map(str, found))} on, where {name}'s "
        "error after a step of training exceeds the field."
    )


def split(config: TrainConfig) -> tuple[FieldSet, FieldSet]:
    """Trajectories to train and to test on, both checked; see `split_files`."""
    train_set, test_set = split_files(config)
    if test_set.equation and "solver" in config.baselines:
        # Before anything is trained: the solver may lack a condition.
        solver_conditions(test_set, config.stride)
    return train_set, test_set


def held_out(config: TrainConfig, fitted: Fitted, test: FieldSet, context: RunContext) -> Holdout:
    """The test trajectories in units of the training data, and how they are measured on."""
    own = fitted.emulator
    u = narrowed(test.read(slice(None), slice(0, None, config.stride)))
    check_constant(test.path, u, own.constant, own.names)
    u = u[:, :, list(own.changing)] if own.constant else u
    hold_fields(test, u, "test", context)
    longest = u.shape[1] - config.history
    horizon = config.horizon or longest
    if not 0 < horizon <= longest:
        expected = f"more than {(horizon + config.history - 1) * config.stride}"
        raise DataError(test.path, "frames", test.shape[1], expected, "take a shorter --horizon")
    return holdout(own, test, horizon, config.seeds, config.seed, u)


SMALL = Resnet(width=8, blocks=1, dilations=(1, 2), embedding=8)
PRESETS = {"smoke": TrainConfig(steps=20, batch=8, network=SMALL), "cpu": TrainConfig()}


def begin(preset: str, given: Callable[[str], str | None]) -> TrainConfig:
    """The preset with the objective and the network that were typed, `given(option)`."""
    start = PRESETS[preset]
    objective, network = given("--objective"), given("--network")
    return replace(
        start,
        objective=OBJECTIVES[objective]() if objective else start.objective,
        network=NETWORKS[network]() if network else start.network,
    )


def stem(file: str) -> str:
    """What a run is named by: the first of several files, a pattern without its characters."""
    first = Path(file if os.path.exists(file) else file.partition(",")[0])
    parts = first.stem, *first.parts[-2::-1]
    names = (re.sub(r"[*?\[\]]+", "", part).strip("_-.") for part in parts)
    return next(filter(None, names), "fields")


EXPERIMENT = replace(
    TRAIN.experiment(config_type=TrainConfig, presets=PRESETS, run=run),
    begin=begin,
    title=lambda config: f"{stem(config.file)}-{OBJECTIVES.name_of(config.objective)}",
)
