"""The training loop against a plain Python loop, and what happens between chunks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_loop import given, run_context

from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.loop import Trained, evenly, train_loop
from jaxrl_rollouts.record.context import RunContext

TRACES: list[int] = []
DATA = {"x": jax.random.normal(jax.random.key(0), (16, 2)), "y": jnp.arange(16.0) / 16}


def descend(state: dict, data: dict) -> tuple[dict, dict]:
    """A step of noisy gradient descent on a random minibatch."""
    TRACES.append(1)
    pick, shake, key = jax.random.split(state["key"], 3)
    rows = jax.random.randint(pick, (4,), 0, 16)

    def loss(w: jax.Array) -> jax.Array:
        return jnp.square(data["x"][rows] @ w - data["y"][rows]).mean()

    value, gradient = jax.value_and_grad(loss)(state["w"])
    w = state["w"] - 0.1 * gradient + 0.01 * jax.random.normal(shake, (2,))
    return {"w": w, "key": key, "n": state["n"] + 1}, {"loss": value, "n": state["n"]}


def start(seeds: int = 2) -> dict:
    keys = jax.random.split(jax.random.key(7), seeds)
    return {"w": jnp.ones((seeds, 2)), "key": keys, "n": jnp.zeros((seeds,), jnp.int32)}


def test_chunks_are_a_python_loop_over_iterations_and_seeds() -> None:
    losses, finals, step = np.zeros((7, 2)), [], jax.jit(descend)
    for seed in range(2):
        state = jax.tree.map(lambda x, seed=seed: x[seed], start())
        for i in range(7):
            state, metrics = step(state, DATA)
            losses[i, seed] = metrics["loss"]
        finals.append(state["w"])
    trained = train_loop(descend, given, start(), DATA, iterations=7, chunk=1, stage="a")
    np.testing.assert_allclose(trained.state["w"], np.stack(finals), rtol=1e-5)
    iterations, found = trained.history.curve("loss")
    assert iterations.tolist() == list(range(1, 8))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    # The same iterations in chunks of three, the last one shorter, recorded as means.
    chunked = train_loop(descend, given, start(), DATA, iterations=7, chunk=3, stage="a")
    np.testing.assert_allclose(chunked.state["w"], trained.state["w"], rtol=1e-5)
    iterations, found = chunked.history.curve("loss")
    assert iterations.tolist() == [3, 6, 7]
    means = [losses[:3].mean(0), losses[3:6].mean(0), losses[6]]
    np.testing.assert_allclose(found, means, rtol=1e-5)


def test_the_same_update_compiles_once() -> None:
    train_loop(descend, given, start(), DATA, iterations=6, chunk=3, stage="a")
    count = len(TRACES)
    again = train_loop(descend, given, start(), DATA, iterations=12, chunk=3, stage="b")
    assert len(TRACES) == count
    assert int(again.state["n"][0]) == 12
    train_loop(
        descend, given, start(3), DATA, iterations=3, chunk=3, stage="a"
    )  # other shapes do compile
    assert len(TRACES) > count


def test_data_may_be_on_the_host_and_the_callers_state_is_not_consumed() -> None:
    state, on_host = start(), jax.tree.map(np.asarray, DATA)
    here, there = (
        train_loop(descend, given, state, data, iterations=3, chunk=3, stage="a")
        for data in (on_host, DATA)
    )
    np.testing.assert_array_equal(here.state["w"], there.state["w"])
    np.testing.assert_array_equal(state["w"], 1.0)
    assert jax.random.split(state["key"][0]).shape == (2,)


@pytest.mark.parametrize(("every", "asked"), [(None, [7]), (3, [3, 6, 7]), (6, [6, 7])])
def test_when_to_evaluate(every: int | None, asked: list[int]) -> None:
    seen = []

    def evaluate(state: dict, iteration: int) -> dict:
        seen.append((iteration, int(state["n"][0])))
        return {"return": state["w"][:, 0]}

    options = dict(iterations=7, chunk=3, stage="a", evaluate=evaluate, evaluate_every=every)
    trained = train_loop(descend, given, start(), DATA, **options)
    assert seen == [(i, i) for i in asked]
    iterations, values = trained.history.curve("return")
    assert iterations.tolist() == asked
    np.testing.assert_array_equal(values[-1], trained.state["w"][:, 0])
    assert trained.history.curve("loss")[0].tolist() == [3, 6, 7]


def test_evaluations_are_spread_evenly_and_rounded() -> None:
    assert [sorted(evenly(*x)) for x in ((7, 3), (6, 3), (2, 5))] == [[2, 5, 7], [2, 4, 6], [1, 2]]
    at, look = evenly(7, 3), lambda state, iteration: {"return": state["w"][:, 0]}
    options = dict(iterations=7, stage="a", evaluate=look, evaluate_at=at)
    trained = train_loop(descend, given, start(), DATA, **options)
    assert trained.history.curve("return")[0].tolist() == [2, 5, 7]


def test_an_evaluation_has_no_name_of_a_metric() -> None:
    """Else one curve mixes what is measured with what is trained on, as LEQ's returns once did."""

    def evaluate(state: dict, iteration: int) -> dict:
        return {"loss": state["w"][:, 0]}

    with pytest.raises(ConfigError, match="loss.*expected names that no metric has"):
        train_loop(descend, given, start(), DATA, iterations=7, stage="a", evaluate=evaluate)


def test_finished_stops_early_for_good(tmp_path: Path) -> None:
    context = run_context(tmp_path)

    def finished(metrics: Any) -> bool:
        return bool((metrics["n"] >= 4).all())  # of a chunk's mean, [seeds]

    options = dict(iterations=30, chunk=3, stage="a", finished=finished, context=context)
    trained = train_loop(
        descend, given, start(), DATA, evaluate=lambda s, i: {"at": [i, i]}, **options
    )
    assert trained.state["n"].tolist() == [6, 6] and trained.history.last("at").tolist() == [6, 6]
    again = train_loop(descend, given, start(), DATA, evaluate=None, **options)
    assert again.state["n"].tolist() == [6, 6]
    np.testing.assert_array_equal(again.state["w"], trained.state["w"])
    assert again.history.last("at").tolist() == [6, 6]


def test_a_complete_stage_is_loaded_and_not_run_again(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    first = train_loop(
        descend, given, start(), DATA, iterations=4, chunk=3, stage="a", context=context
    )

    def never(state: Any, data: Any) -> Any:
        raise AssertionError("ran again")

    second = train_loop(
        never, given, start(), DATA, iterations=4, chunk=3, stage="a", context=context
    )
    np.testing.assert_array_equal(first.state["w"], second.state["w"])
    assert second.history.curve("loss")[0].tolist() == [3, 4]
    assert second.run_seconds == pytest.approx(first.run_seconds)
    more = train_loop(
        descend, given, start(), DATA, iterations=7, chunk=3, stage="a", context=context
    )
    assert more.state["n"].tolist() == [7, 7]


@pytest.mark.parametrize(("length", "looks"), [(4, 2), (5, 2), (3, 5)])
def test_a_finished_stage_trains_on_as_if_it_had_been_begun_longer(
    tmp_path: Path, length: int, looks: int
) -> None:
    def run(context: RunContext, times: int) -> Trained:
        return train_loop(
            descend, given, start(), DATA, iterations=length * times, stage="a", context=context,
            evaluate=lambda state, _: {"w": np.asarray(state["w"][:, 0])},
            evaluate_at=evenly(length * times, looks * times),
        )  # fmt: skip

    whole, parts = run(run_context(tmp_path / "whole"), 3), run_context(tmp_path / "parts")
    trained = [run(parts, times) for times in (1, 2, 3)][-1]
    np.testing.assert_array_equal(trained.state["w"], whole.state["w"])
    for name in ("loss", "w"):
        for found, expected in zip(
            trained.history.curve(name), whole.history.curve(name), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_looks_stay_where_they_were_after_a_chunk_that_was_cut_short(tmp_path: Path) -> None:
    def run(context: RunContext, iterations: int) -> Trained:
        return train_loop(
            descend, given, start(), DATA, iterations=iterations, chunk=3, stage="a",
            evaluate=lambda state, _: {"w": np.asarray(state["w"][:, 0])}, evaluate_every=3,
            context=context,
        )  # fmt: skip

    whole, parts = run(run_context(tmp_path / "whole"), 9), run_context(tmp_path / "parts")
    longer = [run(parts, iterations) for iterations in (4, 9)][-1]
    assert whole.history.curve("w")[0].tolist() == [3, 6, 9]
    assert longer.history.curve("w")[0].tolist() == [3, 4, 6, 9]
    np.testing.assert_array_equal(longer.state["w"], whole.state["w"])


def test_wall_seconds_are_all_of_them(tmp_path: Path) -> None:
    begun, context = time.perf_counter(), run_context(tmp_path)

    def slow(state: Any, iteration: int) -> dict[str, Any]:
        time.sleep(0.05)
        return {"w": np.asarray(state["w"][:, 0])}

    trained = train_loop(
        descend, given, start(), DATA, iterations=2, stage="a", evaluate=slow, context=context
    )
    spent = time.perf_counter() - begun
    least = 0.05 + trained.compile_seconds + trained.run_seconds
    assert least <= trained.wall_seconds <= spent


def test_a_stage_of_another_configuration(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    train_loop(descend, given, start(), DATA, iterations=3, chunk=3, stage="a", context=context)
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        train_loop(
            descend, given, start(5), DATA, iterations=3, chunk=3, stage="a", context=context
        )


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def log(self, stage: str, step: int, metrics: Any) -> None:
        self.calls.append((stage, step, sorted(metrics), np.shape(metrics["loss"])))

    def restore(self, stage: str, records: Any) -> None:
        self.calls.append(("restore", stage, [record.iteration for record in records]))

    def close(self) -> None: ...


def test_loggers_hear_of_every_chunk(tmp_path: Path) -> None:
    recorder = Recorder()
    context = run_context(tmp_path, loggers=(recorder,))
    train_loop(descend, given, start(), DATA, iterations=4, chunk=3, stage="fit", context=context)
    chunks = [("fit", 3, ["loss", "n"], (2,)), ("fit", 4, ["loss", "n"], (2,))]
    assert recorder.calls == [("restore", "fit", []), *chunks]


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"iterations": 0}, "iterations"),
        ({"iterations": 3, "chunk": 0}, "iterations, chunk"),
        ({"iterations": 9, "chunk": 3, "evaluate_every": 4}, "evaluate_every"),
        ({"iterations": 9, "chunk": 3, "evaluate_at": (3, 4)}, "evaluate_at"),
    ],
)
def test_bad_arguments(options: dict, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        train_loop(descend, given, start(), DATA, stage="a", **options)


def begin(key: jax.Array, data: dict) -> dict:
    return {"w": data["at"] + jax.random.normal(key, (2,)), "key": key, "n": jnp.int32(0)}


def towards(state: dict, data: dict) -> tuple[dict, dict]:
    state, metrics = descend(state, data)
    return state, metrics | {"gap": jnp.abs(state["w"] - data["at"]).sum()}


PER_SEED = {"x": False, "y": False, "at": True}


def test_what_is_per_seed_is_seen_by_its_seed_alone(tmp_path: Path) -> None:
    keys, at = jax.random.split(jax.random.key(3), 3), jnp.arange(6.0).reshape(3, 2)
    data = DATA | {"at": at}
    options = dict(iterations=4, chunk=2, stage="fit")
    context = run_context(tmp_path)
    both = train_loop(towards, begin, keys, data, per_seed=PER_SEED, context=context, **options)
    for i in range(3):
        alone = DATA | {"at": at[i]}
        one = train_loop(towards, begin, keys[i : i + 1], alone, **options)
        np.testing.assert_allclose(one.state["w"][0], both.state["w"][i], rtol=1e-6)
    # The whole of it can be per seed as well.
    copies = jax.tree.map(lambda x: jnp.stack([x] * 3), DATA) | {"at": at}
    copied = train_loop(towards, begin, keys, copies, per_seed=True, **options)
    np.testing.assert_allclose(copied.state["w"], both.state["w"], rtol=1e-6)
    # It is no part of what a resumed run reads.
    resumed = train_loop(towards, begin, keys, data, per_seed=PER_SEED, context=context, **options)
    np.testing.assert_array_equal(resumed.state["w"], both.state["w"])
    saved = list(context.folder.stage("fit").rglob("*"))
    assert saved and not any("at" in path.name.split(".") for path in saved)
    np.testing.assert_array_equal(at, jnp.arange(6.0).reshape(3, 2))  # not donated either


def test_rows_per_seed_must_be_as_many_as_seeds() -> None:
    data = DATA | {"at": jnp.zeros((2, 2))}
    with pytest.raises(ConfigError, match=r"data per seed: found \[\(2, 2\)\].*3 seeds"):
        train_loop(
            towards,
            begin,
            jax.random.split(jax.random.key(0), 3),
            data,
            per_seed=PER_SEED,
            iterations=1,
            stage="a",
        )
