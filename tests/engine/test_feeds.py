"""Data that are read while a training computes: the same numbers, errors and resumes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import feeds
from jaxrl_rollouts.errors import DataError, Interrupted
from jaxrl_rollouts.feeds import Drawn, Prefetcher, blocks, mapped, must_stream, on_disk, scattered
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag

ROWS = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)


class State(NamedTuple):
    w: jax.Array
    key: jax.Array


def picks(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    pick, key = jax.random.split(key)
    return jax.random.randint(pick, (32,), 0, len(ROWS)), key


def init(key: jax.Array, data: Any) -> State:
    return State(jnp.zeros(2) + data["start"], key)


def update(state: State, data: Any) -> tuple[State, dict]:
    index, key = picks(state.key)
    rows = data.batches if isinstance(data, Drawn) else data["rows"][index]
    gradient = rows[:, :2].T @ (rows[:, :2] @ state.w - rows[:, 2])
    return State(state.w - 0.01 * gradient, key), {"size": jnp.square(state.w).sum()}


def feed(path: Path, read: Any = None) -> Prefetcher:
    plan = jax.jit(jax.vmap(picks))
    return Prefetcher({"start": jnp.ones(2)}, plan, read or (lambda i: Drawn(scattered(path, i))))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "made"))

    def fill(array: np.ndarray) -> None:
        array[:] = ROWS

    return on_disk("rows", ROWS.shape, fill)


def context(folder: Path, stop: StopFlag | None = None) -> RunContext:
    return RunContext(RunFolder.at(folder, "toy"), progress=False, stop=stop)


def keys() -> jax.Array:
    return jax.random.split(jax.random.key(3), 3)


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_feed_gives_what_rows_in_memory_give(path: Path, chunk: int) -> None:
    whole = {"start": jnp.ones(2), "rows": jnp.asarray(ROWS)}
    sizes = {"iterations": 9, "stage": "a", "chunk": chunk}
    memory = train_loop(update, init, keys(), whole, **sizes)
    fed = train_loop(update, init, keys(), feed(path), **sizes)
    np.testing.assert_array_equal(memory.state.w, fed.state.w)
    for one, other in zip(memory.history.records, fed.history.records, strict=True):
        np.testing.assert_array_equal(one.metrics["size"], other.metrics["size"])


def test_a_run_that_was_cut_goes_on_with_the_same_rows(path: Path, tmp_path: Path) -> None:
    sizes: dict = {"iterations": 8, "stage": "a"}
    whole = train_loop(update, init, keys(), feed(path), **sizes)
    stop = StopFlag()

    def cut(state: State, iteration: int) -> dict:
        stop.requested = iteration == 4
        return {}

    sizes |= {"evaluate": cut, "evaluate_every": 2}
    with pytest.raises(Interrupted):
        train_loop(
            update, init, keys(), feed(path), **sizes, context=context(tmp_path / "run", stop)
        )
    again = train_loop(update, init, keys(), feed(path), **sizes, context=context(tmp_path / "run"))
    np.testing.assert_array_equal(whole.state.w, again.state.w)


def test_what_cannot_be_read_ends_the_training_and_the_thread(path: Path) -> None:
    def read(index: np.ndarray) -> Drawn:
        raise DataError(path, "rows", "nothing", "rows")

    broken = feed(path, read)
    with pytest.raises(DataError, match="found nothing"):
        train_loop(update, init, keys(), broken, iterations=2, stage="a")
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


@pytest.mark.parametrize("sizes", [(-1, 10**6), (40, 100), (10**6, 10**6)])
def test_scattered_rows_are_those_of_the_array(
    sizes: tuple[int, int], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_NEAR", sizes[0])
    monkeypatch.setattr(feeds, "_AT_ONCE", sizes[1])
    index = np.random.default_rng(1).integers(0, len(ROWS), (5, 11))
    np.testing.assert_array_equal(scattered(path, index), ROWS[index])
    assert [part.stop for part in blocks(10, 4)] == [4, 8, 10]
    whole = mapped(path)
    monkeypatch.setattr(feeds, "mapped", lambda path: whole)
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(DataError, match="an end of the file"):
        scattered(path, np.array([1, 499]))


def test_a_file_that_was_damaged_or_not_finished_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path))
    made: list[int] = []

    def fill(array: np.ndarray) -> None:
        made.append(1)
        array[:] = 7.0

    def stops(array: np.ndarray) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_disk("a", (4, 2), stops)
    assert not list(tmp_path.iterdir())
    path = on_disk("a", (4, 2), fill)
    assert on_disk("a", (4, 2), fill) == path and len(made) == 1
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    on_disk("a", (4, 2), fill)
    assert len(made) == 2 and (mapped(path) == 7).all()


def test_data_stay_on_disk_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "free_memory", lambda: 1000)
    assert must_stream("auto", 251) and not must_stream("auto", 250)
    assert must_stream("always", 1) and not must_stream("never", 10**6)
