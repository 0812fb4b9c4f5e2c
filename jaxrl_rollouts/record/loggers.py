"""Where numbers go while a run is training: files and trackers (the bar is in `progress`).

A record is `(stage, step, {name: [seeds] values})`. Nothing here touches the network unless W&B is
asked for by name.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..configs import unknown
from ..errors import MissingExtraError
from .files import append, drop_torn_line, plain, write_atomically
from .history import Record
from .progress import Progress as Progress

Metrics = Mapping[str, Any]
_RESERVED = ("stage", "step", "time")


class Logger(Protocol):
    """Anything that takes records."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """Take one record; values are scalars or `[seeds]` arrays."""

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        """Where a run resumes: of `stage` these records stay, and no others."""

    def close(self) -> None:
        """Write out what is pending."""


class _Row(NamedTuple):
    """Parsed line of a file; `rest` is all but the time."""

    stage: str
    step: int
    rest: Any


class _FileLogger:
    """Lines in a file; an existing one is continued, without an incomplete last line."""

    header = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_torn_line(path)
        if self.header and not (path.exists() and path.stat().st_size):
            append(path, self.header)

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        append(self.path, "".join(self._lines(stage, step, round(time.time(), 3), metrics)))

    def close(self) -> None:
        """Nothing is pending."""

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        """Leave of a stage the lines of `records`, and put back those that are damaged.

        Lines keep their time; one that is put back has none.

        Warns:
            UserWarning: some were damaged or missing.
        """
        old = self.path.read_bytes() if self.path.exists() else b""
        before, own, after, damaged = self._sorted(stage, old)
        kept = []
        for record in records:
            expected = self._lines(stage, record.iteration, None, record.metrics)
            lines = own.get(record.iteration, [])
            if [self._row(line) for line in lines] != [self._row(line) for line in expected]:
                damaged += bool(own)  # where there are none they never went to this file
                lines = expected
            kept += lines
        if damaged:
            found = f"{damaged} records were damaged, and are put right where they can be"
            warnings.warn(f"{self.path}: {found}", stacklevel=2)
        text = "".join([self.header, *before, *kept, *after])
        if text.encode() != old:
            write_atomically(self.path, text)

    def _sorted(self, stage: str, old: bytes) -> tuple[list, dict[int, list[str]], list, int]:
        """Lines before a stage's, its own by step, those after; how many cannot be read."""
        own: dict[int, list[str]] = {}
        before: list[str] = []
        after: list[str] = []
        damaged = 0
        for line in old.splitlines(keepends=True):
            try:
                text = line.decode()
                row = None if text == self.header else self._row(text)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
                damaged += 1
                continue
            if row is not None and row.stage == stage:
                own.setdefault(row.step, []).append(text)
            elif row is not None:
                (after if own else before).append(text)
        return before, own, after, damaged

    def _lines(self, stage: str, step: int, now: float | None, metrics: Metrics) -> list[str]:
        """The lines of a record."""
        raise NotImplementedError

    def _row(self, line: str) -> _Row:
        """Text of a line."""
        raise NotImplementedError


class JsonlLogger(_FileLogger):
    """One JSON object a line: `stage`, `step`, `time` (Unix seconds) and a list per metric."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        clash = [name for name in _RESERVED if name in metrics]
        if clash:
            raise ValueError(f"metrics: found the reserved name {clash[0]}, expected another")
        super().log(stage, step, metrics)

    def _lines(self, stage: str, step: int, now: float | None, metrics: Metrics) -> list[str]:
        record = {"stage": stage, "step": int(step), "time": now}
        record |= {name: _seeds(value) for name, value in metrics.items()}
        return [json.dumps(plain(record), allow_nan=False) + "\n"]

    def _row(self, line: str) -> _Row:
        record = json.loads(line)
        rest = {name: value for name, value in record.items() if name not in _RESERVED}
        return _Row(record["stage"], int(record["step"]), rest)

    def read(self) -> list[dict[str, Any]]:
        """The records so far."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


class CsvLogger(_FileLogger):
    """Tidy rows `stage,step,time,metric,seed,value`, for pandas and spreadsheets."""

    header = "stage,step,time,metric,seed,value\n"

    def _lines(self, stage: str, step: int, now: float | None, metrics: Metrics) -> list[str]:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(
            (stage, int(step), now, name, seed, value)
            for name, values in metrics.items()
            for seed, value in enumerate(_seeds(values))
        )
        return lines.getvalue().splitlines(keepends=True)

    def _row(self, line: str) -> _Row:
        stage, step, _, *rest = next(csv.reader([line]))
        return _Row(stage, int(step), rest)


class TensorBoardLogger:
    """Event files for TensorBoard (extra `tensorboard`): the mean, and each seed below it."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        for name, value in _scalars(stage, metrics).items():
            self._writer.add_scalar(name, value, int(step))

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        """Event files only grow; TensorBoard shows the newest point of a step."""

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """A Weights & Biases run (extra `wandb`); `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, folder: Path, name: str) -> None:
        import wandb

        # The run's own name is its id: a resumed run continues its curves.
        self._run = wandb.init(
            project="jaxrl-rollouts", name=name, id=name, resume="allow", dir=str(folder)
        )

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        # Stages count their own steps, W&B needs one that only grows: leave the axis to a column.
        self._run.log({**_scalars(stage, metrics), f"{stage}/step": int(step)})

    def restore(self, stage: str, records: Sequence[Record]) -> None:
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
    """The names without repetitions, once it is certain that they can be opened."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in _LOGGERS:
            raise unknown("--logger", name, _LOGGERS)
        if name in _NEEDS and importlib.util.find_spec(_NEEDS[name]) is None:
            raise MissingExtraError(f"--logger {name}", _NEEDS[name], name)
    return wanted


def make_loggers(names: Iterable[str], folder: Path) -> tuple[Logger, ...]:
    """Open the named loggers (jsonl, csv, tensorboard, wandb) in a run folder."""
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
