"""Metrics of a training stage: a readable file, and in every checkpoint the authoritative copy."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from .files import append, replacing


class Record(NamedTuple):
    """Metrics after `iteration` iterations; each value has one number per seed, `[seeds]`."""

    iteration: int
    metrics: dict[str, np.ndarray]


class Records(Sequence[Record]):
    """Records, each held as one array where its metrics are alike: 20,000 take a few megabytes."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._rows: list[tuple[int, tuple[str, ...], Sequence[np.ndarray] | np.ndarray]] = []
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        names, values = tuple(record.metrics), tuple(record.metrics.values())
        alike = len({(value.dtype, value.shape) for value in values}) == 1
        names = self._names.setdefault(names, names)
        self._rows.append((record.iteration, names, np.stack(values) if alike else values))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        iteration, names, values = self._rows[index]
        return Record(iteration, dict(zip(names, values, strict=True)))


class History:
    """Records of one stage, kept in memory and, given a path, one JSON line each.

    Args:
        path: the file; None keeps the records in memory only.
        upto: drop records of later iterations, and what a crash or a disk has damaged.
        kept: text of the records in a checkpoint, which overrides the file.

    Warns:
        UserWarning: the file lacks some of `kept`.
    """

    def __init__(self, path: Path | None = None, *, upto: int = 0, kept: str | None = None) -> None:
        self.path = path
        there = path.read_bytes() if path and path.exists() else b""
        if kept is not None and path and not there.startswith(kept.encode()):
            warnings.warn(f"{path}: damaged, taken from the checkpoint", stacklevel=2)
        lines = there if kept is None else kept.encode()
        self.records = Records(r for r in _read(lines) if r.iteration <= upto)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a kill here must not lose what no checkpoint could bring back.
            with replacing(path) as file:
                file.write(self.text)

    def __repr__(self) -> str:
        if not self.records:
            return "History(no records)"
        iteration, metrics = self.records[-1]
        names = ", ".join(metrics)
        return f"History({len(self.records)} records, the last of iteration {iteration}: {names})"

    @property
    def text(self) -> str:
        """All records, a JSON object a line."""
        return "".join(map(_line, self.records))

    def append(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        # As the file will give it back (float64): a resumed run must report the same digits.
        kept = {k: np.asarray(np.atleast_1d(v).tolist()) for k, v in metrics.items()}
        record = Record(iteration, kept)
        self.records.append(record)
        if self.path:
            append(self.path, _line(record))

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


def _read(lines: bytes) -> Iterable[Record]:
    for line in lines.splitlines():
        try:
            data = json.loads(line)
            metrics = {name: np.asarray(value) for name, value in data["metrics"].items()}
            record = Record(int(data["iteration"]), metrics)
        except (ValueError, KeyError, TypeError, AttributeError):  # torn: what follows is re-run
            return
        yield record
