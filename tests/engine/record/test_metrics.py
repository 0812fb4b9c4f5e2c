from __future__ import annotations

import csv
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.record.history import Record
from jaxrl_rollouts.record.loggers import CsvLogger, JsonlLogger, make_loggers
from jaxrl_rollouts.record.progress import Progress, brief


def test_jsonl_records(tmp_path: Path) -> None:
    logger = JsonlLogger(tmp_path / "m.jsonl")
    logger.log("agent", np.int32(10), {"loss": np.float32([0.5, np.nan]), "n": 3})
    (record,) = logger.read()
    assert record.pop("time") > 1e9
    assert record == {"stage": "agent", "step": 10, "loss": [0.5, None], "n": [3.0]}
    with pytest.raises(ValueError, match="reserved name step"):
        logger.log("a", 1, {"step": 1.0})
    assert len(logger.read()) == 1


@given(torn=st.integers(1, 200))
def test_jsonl_goes_on_after_kill(tmp_path_factory: Any, torn: int) -> None:
    path = tmp_path_factory.mktemp("m") / "m.jsonl"
    logger = JsonlLogger(path)
    for step in range(4):
        logger.log("agent", step, {"loss": [step, step]})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines)[: -min(torn, len(lines[-1]))])
    again = JsonlLogger(path)
    assert [r["step"] for r in again.read()] == [0, 1, 2]
    again.log("agent", 3, {"loss": [9, 9]})
    assert [r["loss"] for r in again.read()] == [[0, 0], [1, 1], [2, 2], [9, 9]]


def records(*steps: int) -> list[Record]:
    return [Record(s, {"loss": np.array([s, -s]), "n": np.array([np.nan])}) for s in steps]


def filled(kind: Any, path: Path, stages: tuple[str, ...] = ("agent",)) -> Any:
    logger = kind(path)
    for stage in stages:
        for record in records(1, 2, 3):
            logger.log(stage, *record)
    return logger


def steps_in(path: Path, kind: Any) -> list[tuple[str, int]]:
    text = path.read_text()
    if kind is JsonlLogger:
        return [(r["stage"], r["step"]) for r in map(json.loads, text.splitlines())]
    rows = list(csv.DictReader(io.StringIO(text)))
    found = list(dict.fromkeys((r["stage"], int(r["step"])) for r in rows))
    assert len(rows) == 3 * len(found)
    return found


@pytest.mark.parametrize("kind", [JsonlLogger, CsvLogger])
def test_a_resumed_stage_loses_its_later_records_only(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "m"
    logger = filled(kind, path, ("data", "world, model", "agent"))
    logger.restore("world, model", records(1))
    text = path.read_text()
    others = [[(stage, step) for step in (1, 2, 3)] for stage in ("data", "agent")]
    assert steps_in(path, kind) == [*others[0], ("world, model", 1), *others[1]]
    logger.restore("nothing", [])
    assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("kind", [JsonlLogger, CsvLogger])
def test_damaged_records_are_put_back(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "m"
    logger = filled(kind, path, ("agent", "other"))
    whole = path.read_bytes()
    lines = [line for line in whole.splitlines(keepends=True) if b"agent" in line]
    rows = 1 if kind is JsonlLogger else 3  # of one step
    for damaged in (b"{\n", b"\xff" + lines[0], b"[]\n", b"\n", b"", lines[0].replace(b"1", b"8")):
        path.write_bytes(whole.replace(lines[0], damaged, 1))
        with pytest.warns(UserWarning, match=r"m: \d records were damaged"):
            logger.restore("agent", records(1, 2, 3))
        there = path.read_text().splitlines()
        assert len(there) == len(whole.splitlines())
        assert steps_in(path, kind) == [(x, s) for x in ("agent", "other") for s in (1, 2, 3)]
        put_back, others = there[-6 * rows : -5 * rows], there[-5 * rows :]
        assert others == whole.decode().splitlines()[-5 * rows :]  # with the times they had
        assert all('"time": null,' in line or ",1,," in line for line in put_back)
        logger.restore("agent", records(1, 2, 3))  # nothing is damaged any more
        assert path.read_text().splitlines() == there


@pytest.mark.parametrize("kind", [JsonlLogger, CsvLogger])
def test_a_file_that_comes_later_has_what_was_before(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "m"
    kind(path).restore("agent", records(1, 2))
    assert steps_in(path, kind) == [("agent", 1), ("agent", 2)]


def test_csv_is_tidy_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("stage,st")  # a torn header
    CsvLogger(path).log("a", 1, {"loss": [0.25, 0.5], "return": 7})
    with path.open("a") as file:
        file.write("a,2,0,los")  # torn
    CsvLogger(path).log("a", 2, {"loss": [1.0]})
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    found = [(int(r["step"]), r["metric"], int(r["seed"]), float(r["value"])) for r in rows]
    assert found[:2] == [(1, "loss", 0, 0.25), (1, "loss", 1, 0.5)]
    assert found[2:] == [(1, "return", 0, 7.0), (2, "loss", 0, 1.0)]


def test_make_loggers_by_name(tmp_path: Path) -> None:
    loggers = make_loggers(["jsonl", "csv", "jsonl"], tmp_path)
    assert [type(logger).__name__ for logger in loggers] == ["JsonlLogger", "CsvLogger"]
    with pytest.raises(ConfigError, match="--logger: found 'tensorbord'.*mean tensorboard"):
        make_loggers(["tensorbord"], tmp_path)


def test_tensorboard_writes_mean_and_seeds(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    (logger,) = make_loggers(["tensorboard"], tmp_path)
    logger.log("agent", 5, {"loss": [1.0, 3.0]})
    logger.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    data, found, start = file.read_bytes(), {}, 0
    while start < len(data):  # a record: length (8), crc (4), event, crc (4)
        size = int.from_bytes(data[start : start + 8], "little")
        event = Event.FromString(data[start + 12 : start + 12 + size])
        found |= {v.tag: (event.step, v.simple_value) for v in event.summary.value}
        start += size + 16
    each = {"agent/loss/seed_0": (5, 1.0), "agent/loss/seed_1": (5, 3.0)}
    assert found == {"agent/loss": (5, 2.0), **each}


class FakeWandb:
    """What `WandbLogger` uses of wandb, recording instead of sending."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def init(self, **options: Any) -> FakeWandb:
        self.sent.append(options)
        return self

    def log(self, values: dict[str, float]) -> None:
        self.sent.append(values)

    def finish(self) -> None:
        self.sent.append("finished")


def test_wandb_gets_scalars(tmp_path: Path, monkeypatch: Any) -> None:
    import sys

    fake = FakeWandb()
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: module)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    (logger,) = make_loggers(["wandb"], tmp_path)
    logger.log("agent", 5, {"loss": 2.0})
    logger.restore("agent", [])
    logger.close()
    assert fake.sent[0]["name"] == tmp_path.name
    assert fake.sent[1:] == [{"agent/loss": 2.0, "agent/step": 5}, "finished"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_extra_says_what_to_install(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf"jaxrl-rollouts\[{name}\]"):
        make_loggers(["jsonl", name], tmp_path)
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def progress(stream: io.StringIO, *steps: int, **options: Any) -> str:
    """What is shown of 100 steps."""
    with Progress("agent", 100, unit="steps", stream=stream, **options) as bar:
        for step in steps:
            bar.advance(step, {"loss": np.array([1.0, 2.0])})
    return stream.getvalue()


def test_progress_is_lines_in_a_file_and_a_bar_on_a_terminal() -> None:
    first, *_, last = progress(io.StringIO(), 30, 30, initial=40, every_seconds=0).splitlines()
    assert first.startswith("agent:  70% 70/100 steps, ") and "left  loss=1.5" in first
    assert last.startswith("agent: 100% 100/100 steps, ") and "took 0:00" in last
    assert len(progress(io.StringIO(), *[1] * 100).splitlines()) == 1, "lines are rare"
    bar = progress(Terminal(), 100)
    assert "100/100" in bar and "steps/s" in bar and "loss=1.5" in bar
    assert progress(io.StringIO(), 100, enabled=False, every_seconds=0) == ""
    progress(Closed(), 100, every_seconds=0)  # a terminal that was closed stops nothing
    assert brief({"a": 1.0, "b": [1, 2], "c": 12345.678}, limit=2) == "a=1 b=1.5"
