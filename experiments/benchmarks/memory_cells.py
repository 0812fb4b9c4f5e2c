"""One training of `memory`, in a process that does nothing else."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts import devices, memory
from jaxrl_rollouts.config_json import from_json
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.offline.behaviours.made import load
from jaxrl_rollouts.offline.data.d4rl import write_d4rl
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.method import Method
from jaxrl_rollouts.offline.methods import MethodName
from jaxrl_rollouts.offline.neubay.posterior import PosteriorConfig
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.record.run import Run

from .memory import Config
from .speed import random_rows

DATASET = "pendulum-mixed"
LOOKS: dict[str, Any] = {"seeds": 2, "evaluations": 1, "episodes": 2}


def main(cell: str, config: Config, folder: Path) -> dict[str, float]:
    """Bytes: `imports` before any data, `data` on all devices, `predicted` and measured `peak`."""
    devices.use_cores()
    imports = memory.resident()
    with Run.open(folder / cell, progress=False) as run:
        CELLS[cell](config, folder, run)
    # What the process had at some time before is no prediction.
    largest = max(run.needs.values(), key=lambda need: need.expected)
    peak = memory.measured_peak()
    return {"imports": imports, "data": largest.data, "predicted": largest.expected, "peak": peak}


def model_based(name: MethodName, config: Config, **more: Any) -> Method:
    """Small networks, and world models of one epoch that all seeds share."""
    agent, world = {"hidden_dims": config.hidden_dims}, {"max_epochs": 1, "shared": True}
    return recipe(name, "small", agent=agent, world=world, steps=config.steps, **more)


def made_file(config: Config, folder: Path) -> Path:
    """A file in D4RL's layout; both cells that read one share it."""
    path = folder / "rows.hdf5"
    if not path.exists():  # in a process of its own: making it takes memory, too
        child = os.fork()
        if child == 0:
            write_d4rl(path, random_rows(config.rows))
            os._exit(0)
        os.waitpid(child, 0)
    return path


def on_rows(stream: Stream, config: Config, folder: Path, run: Run) -> None:
    """TD3+BC on the file."""
    os.environ["JAXRL_ROLLOUTS_ROWS"] = str(folder / "streamed")
    data = load(made_file(config, folder), stream=stream)
    method = recipe("td3_bc", "small", hidden_dims=config.hidden_dims, steps=config.steps)
    train(data, method, environment="none", **LOOKS, context=run)


def in_memory(config: Config, folder: Path, run: Run) -> None:
    """All rows and their copies on the devices."""
    on_rows("never", config, folder, run)


def on_disk(config: Config, folder: Path, run: Run) -> None:
    """Rows are read as they are drawn."""
    on_rows("always", config, folder, run)


def many_seeds(config: Config, folder: Path, run: Run) -> None:
    """RAVL, ten critics each."""
    looks: Any = LOOKS | {"seeds": config.seeds}
    train(DATASET, model_based("ravl", config), **looks, context=run)


def many_members(config: Config, folder: Path, run: Run) -> None:
    """NEUBAY's ensemble, two epochs."""
    ensemble = replace(
        PosteriorConfig().ensemble,
        members=config.members,
        elites=config.members,
        hidden_dims=config.member_hidden,
        max_epochs=2,
    )
    fit_world_models(ensemble, load(DATASET), context=run)


def long_rollouts(config: Config, folder: Path, run: Run) -> None:
    """Base, with rollouts as long as asked for, a hundred at a time."""
    rollouts = {"length": config.horizon, "batch_size": 100}
    train(DATASET, model_based("base", config, rollouts=rollouts), **LOOKS, context=run)


def refiner(config: Config, folder: Path, run: Run) -> None:
    """A ResNet on travelling waves."""
    place = np.linspace(0, 2 * np.pi, config.points, endpoint=False)
    phase = np.random.default_rng(0).uniform(0, 6, (64, 1, 1))
    waves = np.sin(place + 0.3 * np.arange(40)[:, None] + phase)
    steps = max(config.steps // 10, 1)
    fit("refiner", from_arrays(waves, dt=0.1), steps=steps, context=run)


CELLS = {
    "memory": in_memory,
    "disk": on_disk,
    "seeds": many_seeds,
    "members": many_members,
    "horizon": long_rollouts,
    "refiner": refiner,
}

if __name__ == "__main__":
    given = from_json(Config, json.loads(sys.argv[2]), "the configuration")
    print(json.dumps(main(sys.argv[1], given, Path(sys.argv[3]))))
