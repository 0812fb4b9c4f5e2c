"""Where numbers go while a run is training: files and trackers (the bar is in `progress`).

A record is `(stage, step, {name: [seeds] values})`. Nothing here touches the network unless W&B is
asked for by name.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..configs import unknown
from ..errors import MissingExtraError
from .folder import drop_torn_line, plain
from .progress import Progress as Progress

Metrics = Mapping[str, Any]
_RESERVED = ("stage", "step", "time")


class Logger(Protocol):
    """Anything that takes records."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """Take one record; values are scalars or `[seeds]` arrays."""

    def truncate(self, stage: str, step: int) -> None:
        """Forget records of `stage` after `step`: a resumed run will write them again."""

    def close(self) -> None:
        """Write out what is pending."""


class JsonlLogger:
    """One JSON object a line: `stage`, `step`, `time` (Unix seconds) and a list per metric.

    Opening an existing file goes on with it; a last line torn by `kill -9` is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_torn_line(path)

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        clash = [name for name in _RESERVED if name in metrics]
        if clash:
            raise ValueError(f"metrics: found the reserved name {clash[0]}, expected another")
        record = {"stage": stage, "step": int(step), "time": round(time.time(), 3)}
        record |= {name: _seeds(value) for name, value in metrics.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(record), allow_nan=False) + "\n")

    def truncate(self, stage: str, step: int) -> None:
        def keep(line: str) -> bool:
            record = json.loads(line)
            return record["stage"] != stage or record["step"] <= step

        _filter_lines(self.path, keep)

    def read(self) -> list[dict[str, Any]]:
        """The records so far."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        """Nothing is pending."""


class CsvLogger:
    """Tidy rows `stage,step,time,metric,seed,value`, for pandas and spreadsheets."""

    header = "stage,step,time,metric,seed,value\n"

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_torn_line(path)
        if not path.exists() or path.stat().st_size == 0:
            path.write_text(self.header, encoding="utf-8")

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        now = round(time.time(), 3)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                (stage, int(step), now, name, seed, value)
                for name, values in metrics.items()
                for seed, value in enumerate(_seeds(values))
            )

    def truncate(self, stage: str, step: int) -> None:
        def keep(line: str) -> bool:
            if line == self.header:
                return True
            name, at, *_, value = next(csv.reader([line]))
            float(value)
            return name != stage or int(at) <= step

        _filter_lines(self.path, keep)

    def close(self) -> None:
        """Nothing is pending."""


class TensorBoardLogger:
    """Event files for TensorBoard (extra `tensorboard`): the mean, and each seed below it."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        for name, value in _scalars(stage, metrics).items():
            self._writer.add_scalar(name, value, int(step))

    def truncate(self, stage: str, step: int) -> None:
        """Event files only grow; TensorBoard shows the newest point of a step."""

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """A Weights & Biases run (extra `wandb`); `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, folder: Path, name: str) -> None:
        import wandb

        # The run's own name is its id: resumed, it goes on where it was.
        self._run = wandb.init(
            project="jaxrl-rollouts", name=name, id=name, resume="allow", dir=str(folder)
        )

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        # Stages count their own steps, W&B wants one that only grows: leave the axis to a column.
        self._run.log({**_scalars(stage, metrics), f"{stage}/step": int(step)})

    def truncate(self, stage: str, step: int) -> None:
        """W&B keeps what it was sent."""

    def close(self) -> None:
        self._run.finish()


_LOGGERS: Mapping[str, Callable[[Path], Logger]] = {
    "jsonl": lambda folder: JsonlLogger(folder / "metrics.jsonl"),
    "csv": lambda folder: CsvLogger(folder / "metrics.csv"),
    "tensorboard": lambda folder: TensorBoardLogger(folder / "tensorboard"),
    "wandb": lambda folder: WandbLogger(folder, folder.name),
}


_NEEDS = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # logger (and extra) -> package


def check_loggers(names: Iterable[str]) -> list[str]:
    """The names without repetitions, once it is certain that they can be opened.

    Raises:
        ConfigError: an unknown name.
        MissingExtraError: its package is not installed.
    """
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in _LOGGERS:
            raise unknown("--logger", name, _LOGGERS)
        if name in _NEEDS and importlib.util.find_spec(_NEEDS[name]) is None:
            raise MissingExtraError(f"--logger {name}", _NEEDS[name], name)
    return wanted


def make_loggers(names: Iterable[str], folder: Path) -> tuple[Logger, ...]:
    """Open the named loggers (jsonl, csv, tensorboard, wandb) in a run folder.

    Raises:
        ConfigError, MissingExtraError: as `check_loggers`; nothing is opened then.
    """
    return tuple(_LOGGERS[name](folder) for name in check_loggers(names))


def _seeds(value: Any) -> list[float]:
    return np.atleast_1d(np.asarray(value, np.float64)).reshape(-1).tolist()


def _scalars(stage: str, metrics: Metrics) -> dict[str, float]:
    scalars = {}
    for name, value in metrics.items():
        values = _seeds(value)
        scalars[f"{stage}/{name}"] = float(np.mean(values))
        if len(values) > 1:
            scalars |= {f"{stage}/{name}/seed_{i}": v for i, v in enumerate(values)}
    return scalars


def _filter_lines(path: Path, keep: Callable[[str], bool]) -> None:
    """Keep some lines of a file, and of those that cannot be read none."""
    if not path.exists():
        return
    kept, unreadable, count = [], 0, 0
    for line in path.read_bytes().splitlines(keepends=True):
        count += 1
        try:
            if keep(line.decode()):
                kept.append(line)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            unreadable += 1
    if unreadable:
        warnings.warn(f"{path}: dropped {unreadable} damaged lines", stacklevel=2)
    if len(kept) < count:
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(b"".join(kept))
        os.replace(temporary, path)
