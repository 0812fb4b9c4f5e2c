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
from .files import plain, write_atomically
from .history import Record
from .opening import append, drop_torn_line
from .progress import Progress as Progress

Metrics = Mapping[str, Any]
_RESERVED = ("stage", "step", "time")


class Logger(Protocol):
    """Anything that takes records."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """Take one record; values are scalars or `[seeds]` arrays."""

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        """Where a run goes on: of `stage` these records stay, and no others."""

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
        append(self.path, "".join(self._lines(stage, step, round(time.time(), 3), metrics)))

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        _restore(self.path, stage, records, self._lines, self._row)

    @staticmethod
    def _lines(stage: str, step: int, now: float | None, metrics: Metrics) -> list[str]:
        record = {"stage": stage, "step": int(step), "time": now}
        record |= {name: _seeds(value) for name, value in metrics.items()}
        return [json.dumps(plain(record), allow_nan=False) + "\n"]

    @staticmethod
    def _row(line: str) -> _Row:
        record = json.loads(line)
        rest = {name: value for name, value in record.items() if name not in _RESERVED}
        return _Row(record["stage"], int(record["step"]), rest)

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
            append(path, self.header)

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        append(self.path, "".join(self._lines(stage, step, round(time.time(), 3), metrics)))

    def restore(self, stage: str, records: Sequence[Record]) -> None:
        _restore(self.path, stage, records, self._lines, self._row, self.header)

    @staticmethod
    def _lines(stage: str, step: int, now: float | None, metrics: Metrics) -> list[str]:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(
            (stage, int(step), now, name, seed, value)
            for name, values in metrics.items()
            for seed, value in enumerate(_seeds(values))
        )
        return lines.getvalue().splitlines(keepends=True)

    @staticmethod
    def _row(line: str) -> _Row:
        stage, step, _, *rest = next(csv.reader([line]))
        return _Row(stage, int(step), rest)

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

    def restore(self, stage: str, records: Sequence[Record]) -> None:
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


class _Row(NamedTuple):
    """What a line of a file says; `rest` is all but the time."""

    stage: str
    step: int
    rest: Any


def _restore(
    path: Path,
    stage: str,
    records: Sequence[Record],
    lines_of: Callable[[str, int, float | None, Metrics], list[str]],
    row_of: Callable[[str], _Row],
    header: str = "",
) -> None:
    """Leave of a stage in a file the lines of `records`, and put back those that are damaged.

    Lines keep their time; one that is put back has none.

    Warns:
        UserWarning: some were damaged or missing.
    """
    before, own, after, damaged = _sorted_lines(path, stage, row_of, header)
    kept = []
    for record in records:
        expected = lines_of(stage, record.iteration, None, record.metrics)
        lines = own.get(record.iteration, [])
        if [row_of(line) for line in lines] != [row_of(line) for line in expected]:
            damaged += bool(own)  # where there are none they never went to this file
            lines = expected
        kept += lines
    text = "".join([header, *before, *kept, *after])
    if damaged:
        warnings.warn(
            f"{path}: {damaged} records were damaged, and are put right where they can be",
            stacklevel=3,
        )
    if text.encode() != (path.read_bytes() if path.exists() else b""):
        write_atomically(path, text)


def _sorted_lines(
    path: Path, stage: str, row_of: Callable[[str], _Row], header: str
) -> tuple[list[str], dict[int, list[str]], list[str], int]:
    """Lines before those of a stage, its own by step, those after; how many cannot be read."""
    before: list[str] = []
    own: dict[int, list[str]] = {}
    after: list[str] = []
    damaged = 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        try:
            text = line.decode()
            if header and text == header:
                continue
            row = row_of(text)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            damaged += 1
            continue
        if row.stage == stage:
            own.setdefault(row.step, []).append(text)
        else:
            (after if own else before).append(text)
    return before, own, after, damaged
