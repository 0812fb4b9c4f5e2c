"""What is kept of a training: the policies of the best evaluations."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import loop
from jaxrl_rollouts.offline.training import Best, KeepBest
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

RETURNS = np.array([[1.0, 5.0], [3.0, 2.0], [3.0, 9.0], [2.0, 9.0]], np.float32)


class Actor(NamedTuple):
    actor: Any


class State(NamedTuple):
    agent: Actor


def state(iteration: int) -> State:
    """Actors of two seeds that say when they were."""
    return State(Actor({"w": jnp.full((2, 3), float(iteration))}))


def evaluate(_: Any, iteration: int) -> dict[str, np.ndarray]:
    return {"return": RETURNS[iteration - 1], "length": np.ones(2)}


def check(best: Best | None) -> None:
    assert best is not None
    assert best.returns.tolist() == [3.0, 9.0]
    assert best.iterations.tolist() == [2, 3]  # the first of equal ones
    np.testing.assert_array_equal(best.actors["w"], [[2.0] * 3, [3.0] * 3])


def test_every_seed_keeps_its_best() -> None:
    keep = KeepBest(evaluate)
    assert keep.best is None
    keep.begin(state(0))
    assert keep.best is None
    for iteration in (1, 2, 3, 4):
        given = state(iteration)
        assert keep(given, iteration)["length"].tolist() == [1, 1]
        given.agent.actor["w"].delete()  # as the loop donates it
    check(keep.best)


def test_a_nan_is_kept_until_there_is_a_number() -> None:
    returns = iter([[np.nan, 1.0], [-3.0, np.nan], [np.nan, 0.5]])
    keep = KeepBest(lambda _, iteration: {"return": np.array(next(returns), np.float32)})
    keep.begin(state(0))
    for iteration in (1, 2, 3):
        keep(state(iteration), iteration)
    best = keep.best
    assert best is not None
    assert best.returns.tolist() == [-3.0, 1.0] and best.iterations.tolist() == [2, 1]


def count(state: State, data: Any) -> tuple[State, dict[str, Any]]:
    return State(Actor({"w": state.agent.actor["w"] + 1})), {}


@pytest.mark.parametrize("damaged", [(), ("4",), ("3", "4")])
def test_checkpoints_keep_it(tmp_path: Path, damaged: tuple[str, ...]) -> None:
    """Whichever checkpoint a run goes on from, the best is that of the whole run."""
    folder = RunFolder(tmp_path, "toy", "test", {}, "", {})
    begin = functools.partial(jax.tree.map, jnp.asarray)

    def train() -> KeepBest:
        keep = KeepBest(evaluate)
        options = {"iterations": 4, "stage": "s", "evaluate": keep, "evaluate_every": 1}
        context = RunContext(folder, progress=False)
        keys = State(Actor({"w": np.zeros((2, 3), np.float32)}))
        loop.train_loop(
            count, lambda key, data: begin(key), keys, **options, context=context,
            save_every_seconds=0.0,
        )  # fmt: skip
        return keep

    check(train().best)
    for step in damaged:
        file = next((tmp_path / "s" / step).rglob("d/*"))
        *rest, last = file.read_bytes()
        file.write_bytes(bytes([*rest, last ^ 255]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check(train().best)
    assert [
        f"checkpoint {step} is damaged" in str(w.message)
        for step, w in zip(reversed(damaged), said, strict=True)
    ] == [True] * len(damaged)
