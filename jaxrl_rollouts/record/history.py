"""What a training stage measured, as a file for people and, in every checkpoint, as what counts."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .opening import append, replacing


class Record(NamedTuple):
    """Metrics after `iteration` iterations; each value has one number per seed, `[seeds]`."""

    iteration: int
    metrics: dict[str, np.ndarray]


class History:
    """Records of one stage, kept in memory and, given a path, one JSON line each.

    Args:
        path: the file; None keeps the records in memory only.
        upto: drop records of later iterations, and what a crash or a disk has damaged.
        kept: the text of the records up to there as a checkpoint has it, whatever the file says.

    Warns:
        UserWarning: the file lacks some of `kept`.
    """

    def __init__(self, path: Path | None = None, *, upto: int = 0, kept: str | None = None) -> None:
        self.path = path
        there = path.read_bytes() if path and path.exists() else b""
        if kept is not None and path and not there.startswith(kept.encode()):
            warnings.warn(f"{path}: damaged, taken from the checkpoint", stacklevel=2)
        lines = there if kept is None else kept.encode()
        self.records = [r for r in _read(lines) if r.iteration <= upto]
        self._lines = [_line(record) for record in self.records]
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a kill here must not lose what no checkpoint could bring back.
            with replacing(path) as file:
                file.write(self.text)

    @property
    def text(self) -> str:
        """All records, a JSON object a line."""
        return "".join(self._lines)

    def append(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        # As the file will give it back (float64): a resumed run must report the same digits.
        kept = {k: np.asarray(np.atleast_1d(v).tolist()) for k, v in metrics.items()}
        record = Record(iteration, kept)
        self.records.append(record)
        self._lines.append(_line(record))
        if self.path:
            append(self.path, self._lines[-1])

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Iterations `[records]` and values `[records, seeds]` of the records that have `name`."""
        entries = [(r.iteration, r.metrics[name]) for r in self.records if name in r.metrics]
        if not entries:
            known = sorted({key for record in self.records for key in record.metrics})
            raise KeyError(f"{name}: not recorded; recorded are {known}")
        return np.array([i for i, _ in entries]), np.stack([v for _, v in entries])

    def last(self, name: str) -> np.ndarray:
        """The newest value of a metric, `[seeds]`."""
        return self.curve(name)[1][-1]


def _line(record: Record) -> str:
    metrics = {name: value.tolist() for name, value in record.metrics.items()}
    return json.dumps({"iteration": record.iteration, "metrics": metrics}) + "\n"


def _read(lines: bytes) -> list[Record]:
    records = []
    for line in lines.splitlines():
        try:
            data = json.loads(line)
            metrics = {name: np.asarray(value) for name, value in data["metrics"].items()}
            records.append(Record(int(data["iteration"]), metrics))
        except (ValueError, KeyError, TypeError, AttributeError):  # torn: what follows is re-run
            break
    return records
