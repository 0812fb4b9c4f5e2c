"""What a training stage measured, as a file that survives `kill -9` and resumes exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Record(NamedTuple):
    """Metrics after `iteration` iterations; each value has one number per seed, `[seeds]`."""

    iteration: int
    metrics: dict[str, np.ndarray]


class History:
    """Records of one stage, kept in memory and, given a path, one JSON line each.

    Args:
        path: the file; None keeps the records in memory only.
        upto: drop records of later iterations, and a last line torn by a crash.
    """

    def __init__(self, path: Path | None = None, *, upto: int = 0) -> None:
        self.path = path
        self.records = [r for r in _read(path) if r.iteration <= upto] if path else []
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a kill here must not lose what no checkpoint could bring back.
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_text("".join(map(_line, self.records)))
            os.replace(temporary, path)

    def append(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        # As the file will give it back (float64): a resumed run must report the same digits.
        kept = {k: np.asarray(np.atleast_1d(v).tolist()) for k, v in metrics.items()}
        record = Record(iteration, kept)
        self.records.append(record)
        if self.path:
            with self.path.open("a") as file:
                file.write(_line(record))

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


def _read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:  # torn by a crash while writing: what follows is re-run
            break
        metrics = {name: np.asarray(value) for name, value in data["metrics"].items()}
        records.append(Record(data["iteration"], metrics))
    return records
