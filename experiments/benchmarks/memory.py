"""Predicted against measured peak memory of trainings that are large in one way or another.

Every training runs in a process of its own, whose highest resident memory is asked of the
operating system at the end; before each of its stages `train_loop` has said what it will take
(`jaxrl_rollouts/memory.py`), and the highest of these is the prediction.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts import devices, memory
from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.configs import layers, positive
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.data.d4rl import write_d4rl
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.methods import MethodName
from jaxrl_rollouts.offline.neubay.posterior import PosteriorConfig
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.record.loggers import Progress
from jaxrl_rollouts.record.run import Run
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from .speed import random_rows
from .timing import start_report

WITHIN = 20.0  # percent
DATASET, ROWS = "pendulum-mixed", "rows.hdf5"
LOOKS: dict[str, Any] = {"seeds": 2, "evaluations": 1, "episodes": 2}


@dataclass(frozen=True)
class Config:
    """How large; networks are small, so that the sizes that count show.

    Attributes:
        rows: of the file, in memory and on the disk.
        seeds: of RAVL.
        members: of an ensemble as wide as NEUBAY's.
        horizon: of the rollouts of a model-based agent.
        points: of the grid of a PDE-Refiner.
        steps: gradient steps of each.
        hidden_dims: layers of agents.
        member_hidden: layers of members.
    """

    rows: int = positive(2_000_000)
    seeds: int = positive(64)
    members: int = positive(100)
    horizon: int = positive(1000)
    points: int = positive(256)
    steps: int = positive(500)
    hidden_dims: tuple[int, ...] = layers((64, 64))
    member_hidden: tuple[int, ...] = layers((200, 200, 200, 200))


def on_rows(config: Config, folder: Path, run: Run, *, stream: Stream) -> None:
    """TD3+BC on a file in D4RL's layout."""
    os.environ["JAXRL_ROLLOUTS_ROWS"] = str(folder / "streamed")
    method = recipe("td3_bc", "small", hidden_dims=config.hidden_dims, steps=config.steps)
    data = load(folder / ROWS, stream=stream)
    train(data, method, environment="none", **LOOKS, context=run)


def model_based(
    config: Config, folder: Path, run: Run, *, name: MethodName, seeds: int = 2, **more: Any
) -> None:
    """Small networks, and world models of one epoch that all seeds share."""
    agent, world = {"hidden_dims": config.hidden_dims}, {"max_epochs": 1, "shared": True}
    method = recipe(name, "small", agent=agent, world=world, steps=config.steps, **more)
    looks: Any = LOOKS | {"seeds": seeds}
    train(DATASET, method, **looks, context=run)


def many_members(config: Config, folder: Path, run: Run) -> None:
    """NEUBAY's ensemble, two epochs."""
    count = {"members": config.members, "elites": config.members}
    sizes = {"hidden_dims": config.member_hidden, "max_epochs": 2}
    ensemble = replace(PosteriorConfig().ensemble, **count, **sizes)
    fit_world_models(ensemble, load(DATASET), context=run)


def refiner(config: Config, folder: Path, run: Run) -> None:
    """A ResNet on travelling waves."""
    place = np.linspace(0, 2 * np.pi, config.points, endpoint=False)
    phase = np.random.default_rng(0).uniform(0, 6, (64, 1, 1))
    waves = np.sin(place + 0.3 * np.arange(40)[:, None] + phase)
    steps = max(config.steps // 10, 1)
    fit("refiner", from_arrays(waves, dt=0.1), steps=steps, context=run)


Train = Callable[[Config, Path, Run], None]


def cells(config: Config) -> dict[str, Train]:
    """What is trained, by name."""
    long = {"length": config.horizon, "batch_size": 100}
    return {
        f"{config.rows:,} rows in memory": partial(on_rows, stream="never"),
        f"{config.rows:,} rows on the disk": partial(on_rows, stream="always"),
        f"{config.seeds} seeds of RAVL": partial(model_based, name="ravl", seeds=config.seeds),
        f"{config.members} members": many_members,
        f"horizon {config.horizon:,}": partial(model_based, name="base", rollouts=long),
        f"PDE-Refiner, {config.points} points": refiner,
    }


def measured(name: str, config: Config, folder: Path) -> dict[str, float]:
    """A row, of a training in a process that does nothing else."""
    devices.use_cores()
    imports = memory.resident()
    with Run.open(folder / name.replace(" ", "-"), progress=False) as run:
        cells(config)[name](config, folder, run)
    # What the process had at some time before is no prediction.
    largest = max(run.needs.values(), key=lambda need: need.expected)
    peak = memory.measured_peak()
    sizes = {"without": imports, "data": largest.data, "predicted": largest.expected}
    row = {f"{key} MB": size / 1e6 for key, size in {**sizes, "measured": peak}.items()}
    return row | {"error %": 100.0 * (largest.expected / peak - 1.0)}


def run(config: Config, context: RunContext) -> Report:
    """One process after the other."""
    report, rows, names = start_report(context, config, {}), [], list(cells(config))
    # A name that `RunFolder.tidy` removes, if it is killed.
    with (
        tempfile.TemporaryDirectory(".tmp", ".files-", context.folder.path) as folder,
        Progress("memory", total=len(names), unit="trainings", enabled=context.progress) as bar,
    ):
        write_d4rl(Path(folder) / ROWS, random_rows(config.rows))
        for name in names:
            poll(context, f"before {name}")
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                found = alone.submit(measured, name, config, Path(folder)).result()
            rows.append({"training": name, **found})
            bar.advance(1, {})
    report.table("peak memory", rows)
    for row in rows:
        means = "predicted over measured, in percent"
        bounds: Any = {"between": (-WITHIN, WITHIN), "means": means, "source": GOALS}
        add_claim(report, row["training"], row["error %"], **bounds)
    report.note(
        "Measured is the most resident memory that the process had (getrusage), with Python, jax "
        "and compiled programs; predicted the highest of what its stages were said to take before "
        "each began. Without is what the process had before it knew any data."
    )
    return report


TINY = Config(2000, 2, 2, 3, 16, 20, (8,), (8,))
PRESETS = {"smoke": TINY, "cpu": Config()}
EXPERIMENT = LISTINGS["memory"].experiment(Config, PRESETS, run)
