"""A stage's history: one line per record, exact, and safe against kills."""

from __future__ import annotations

import os
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.record.history import History


def filled(path: Path | None, count: int = 3) -> History:
    history = History(path)
    for i in range(1, count + 1):
        loss = np.float32([1 / 3, np.pi]) / np.float32(i)
        history.append(
            10 * i, {"loss": loss, "rate": 0.1 * i} | ({"return": [i, -i]} if i > 1 else {})
        )
    return history


@pytest.mark.parametrize("on_disk", [False, True])
def test_curves(tmp_path: Path, on_disk: bool) -> None:
    history = filled(tmp_path / "stage" / "history.jsonl" if on_disk else None)
    iterations, losses = history.curve("loss")
    assert iterations.tolist() == [10, 20, 30] and losses.shape == (3, 2)
    assert history.curve("return")[0].tolist() == [20, 30]  # not recorded at first
    assert history.last("return").tolist() == [3, -3] and history.last("rate").shape == (1,)
    with pytest.raises(KeyError, match="lost: not recorded.*loss.*rate.*return"):
        history.curve("lost")


def test_reading_back_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    written = filled(path)
    read = History(path, upto=30)
    for a, b in zip(written.records, read.records, strict=True):
        assert a.iteration == b.iteration and a.metrics.keys() == b.metrics.keys()
        for name in a.metrics:
            np.testing.assert_array_equal(a.metrics[name], b.metrics[name])


def test_records_after_the_checkpoint_are_dropped_for_good(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    assert [r.iteration for r in History(path, upto=20).records] == [10, 20]
    resumed = History(path, upto=99)
    resumed.append(30, {"loss": [0.0, 0.0]})
    assert History(path, upto=99).curve("loss")[0].tolist() == [10, 20, 30]
    assert not History(path).records and path.read_text() == ""  # a new start


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_a_torn_last_line_is_dropped(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    path.write_bytes(path.read_bytes()[:-lost])
    history = History(path, upto=30)
    whole = [10, 20, 30] if lost == 1 else [10, 20]  # only the newline is gone
    assert [r.iteration for r in history.records] == whole
    history.append(40, {"loss": [1.0, 1.0]})
    assert History(path, upto=40).curve("loss")[0].tolist() == [*whole, 40]


@pytest.mark.parametrize("content", [b"", b"{\xff", None, "short", "other"])
def test_what_the_checkpoint_has_counts(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "history.jsonl"
    kept = filled(path).text
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(kept[:-9] if content == "short" else kept.replace("20", "21"))
    with pytest.warns(UserWarning, match="history.jsonl: damaged, taken from the checkpoint"):
        again = History(path, upto=30, kept=kept)
    assert path.read_text() == again.text == kept
    path.write_text(kept + '{"iteration": 40, "metrics": {}}\n')  # newer: cut without a word
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        History(path, upto=30, kept=kept)
    assert path.read_text() == kept


def test_a_kill_while_the_file_is_rewritten_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    before = path.read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        History(path, upto=20)
    assert path.read_bytes() == before


def test_a_day_of_records_takes_a_few_megabytes() -> None:
    """20,000 records of twelve metrics and four seeds hold 7.7 MB of numbers."""
    history, values = History(), np.arange(4.0)
    tracemalloc.start()
    for iteration in range(1, 20_001):
        history.append(iteration, {f"metric_{k}": values + k for k in range(12)})
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 16e6
    assert history.records[-1].metrics["metric_3"].tolist() == [3.0, 4.0, 5.0, 6.0]
    assert [record.iteration for record in history.records[-2:]] == [19_999, 20_000]
