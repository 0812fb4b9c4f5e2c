"""Predicted against measured peak memory of trainings that are large in one way or another.

Every training runs in a process of its own, whose highest resident memory is asked of the
operating system at the end; before each of its stages `train_loop` has said what it will take
(`jaxrl_rollouts/memory.py`), and the highest of these is the prediction.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.configs import layers, positive
from jaxrl_rollouts.errors import StorageError
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.record.loggers import Progress
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from .timing import start_report

CELLS = "jaxrl_rollouts.experiments.benchmarks.memory_cells"
WITHIN = 20.0  # percent


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


NAMES = {
    "memory": "{rows:,} rows in memory",
    "disk": "{rows:,} rows on the disk",
    "seeds": "{seeds} seeds of RAVL",
    "members": "{members} members",
    "horizon": "horizon {horizon:,}",
    "refiner": "PDE-Refiner, {points} points",
}


def run(config: Config, context: RunContext) -> Report:
    """One process after the other."""
    report, rows = start_report(context, config, {}), []
    # A name that `RunFolder.tidy` removes, if it is killed.
    with (
        tempfile.TemporaryDirectory(".tmp", ".files-", context.folder.path) as folder,
        Progress("memory", total=len(NAMES), unit="trainings", enabled=context.progress) as bar,
    ):
        for cell, name in NAMES.items():
            poll(context, f"before {name.format(**asdict(config))}")
            measured = in_a_process(cell, config, Path(folder))
            rows.append(row_of(name.format(**asdict(config)), measured))
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


def in_a_process(cell: str, config: Config, folder: Path) -> dict[str, float]:
    """What a cell prints last."""
    command = [sys.executable, "-m", CELLS, cell, json.dumps(asdict(config)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise StorageError(f"the process that measures {cell}", RuntimeError(last))
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
