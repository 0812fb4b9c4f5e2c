"""Predicted against measured peak memory of trainings that are large in one way or another.

Every training runs in a process of its own, whose highest resident memory is asked of the
operating system at the end; before each of its stages `train_loop` has said what it will take
(`jaxrl_rollouts/memory.py`), and the highest of these is the prediction.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts import devices, memory
from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.config_json import from_json
from jaxrl_rollouts.configs import layers, positive
from jaxrl_rollouts.errors import StorageError
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

MODULE = "jaxrl_rollouts.experiments.benchmarks.memory"
WITHIN = 20.0  # percent
DATASET = "pendulum-mixed"
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
    """TD3+BC on a file in D4RL's layout, which both cells that read one share."""
    path = folder / "rows.hdf5"
    if not path.exists():  # in a process of its own: making it takes memory, too
        child = os.fork()
        if child == 0:
            write_d4rl(path, random_rows(config.rows))
            os._exit(0)
        os.waitpid(child, 0)
    os.environ["JAXRL_ROLLOUTS_ROWS"] = str(folder / "streamed")
    method = recipe("td3_bc", "small", hidden_dims=config.hidden_dims, steps=config.steps)
    train(load(path, stream=stream), method, environment="none", **LOOKS, context=run)


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
    """Bytes: `imports` before any data, `data` on all devices, `predicted` and measured `peak`."""
    devices.use_cores()
    imports = memory.resident()
    with Run.open(folder / name.replace(" ", "-"), progress=False) as run:
        cells(config)[name](config, folder, run)
    # What the process had at some time before is no prediction.
    largest = max(run.needs.values(), key=lambda need: need.expected)
    peak = memory.measured_peak()
    return {"imports": imports, "data": largest.data, "predicted": largest.expected, "peak": peak}


def run(config: Config, context: RunContext) -> Report:
    """One process after the other."""
    report, rows, names = start_report(context, config, {}), [], list(cells(config))
    # A name that `RunFolder.tidy` removes, if it is killed.
    with (
        tempfile.TemporaryDirectory(".tmp", ".files-", context.folder.path) as folder,
        Progress("memory", total=len(names), unit="trainings", enabled=context.progress) as bar,
    ):
        for name in names:
            poll(context, f"before {name}")
            rows.append(row_of(name, in_a_process(name, config, Path(folder))))
            bar.advance(1, {})
    report.table("peak memory", rows)
    for row in rows:
        name, error = row["training"], row["error %"]
        means = "predicted over measured, in percent"
        add_claim(report, name, error, between=(-WITHIN, WITHIN), means=means, source=GOALS)
    report.note(
        "Measured is the most resident memory that the process had (getrusage), with Python, jax "
        "and compiled programs; predicted the highest of what its stages were said to take before "
        "each began. Without is what the process had before it knew any data."
    )
    return report


def in_a_process(name: str, config: Config, folder: Path) -> dict[str, float]:
    """What a process that does nothing else prints last."""
    command = [sys.executable, "-m", MODULE, name, json.dumps(asdict(config)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise StorageError(f"the process that measures {name}", RuntimeError(last))
    return json.loads(done.stdout.strip().splitlines()[-1])


def row_of(name: str, measured: dict[str, float]) -> dict[str, object]:
    predicted, peak = measured["predicted"], measured["peak"]
    return {
        "training": name,
        "without MB": measured["imports"] / 1e6,
        "data MB": measured["data"] / 1e6,
        "predicted MB": predicted / 1e6,
        "measured MB": peak / 1e6,
        "error %": 100.0 * (predicted / peak - 1.0),
    }


TINY = Config(2000, 2, 2, 3, 16, 20, (8,), (8,))
PRESETS = {"smoke": TINY, "cpu": Config()}
EXPERIMENT = LISTINGS["memory"].experiment(Config, PRESETS, run)

if __name__ == "__main__":
    given = from_json(Config, json.loads(sys.argv[2]), "the configuration")
    print(json.dumps(measured(sys.argv[1], given, Path(sys.argv[3]))))
