"""What is kept of a training: the policies of the best evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

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
    keep = KeepBest(evaluate, "s", None)
    assert keep.best(state(0)) is None
    for iteration in (1, 2, 3, 4):
        given = state(iteration)
        assert keep(given, iteration)["length"].tolist() == [1, 1]
        given.agent.actor["w"].delete()  # as the loop donates it
    check(keep.best(state(0)))


def test_what_is_evaluated_again_after_a_resume_changes_nothing(tmp_path: Path) -> None:
    """A run that is killed between an evaluation and its checkpoint does that evaluation twice."""
    folder = RunFolder(tmp_path, "toy", "test", {}, "", {})
    for session in ((1,), (1, 2, 3), (2, 3, 4), ()):
        keep = KeepBest(evaluate, "s", RunContext(folder, progress=False))
        for iteration in session:
            keep(state(iteration), iteration)
    check(keep.best(state(0)))
