"""NEUBAY's loop: cadence, seeds side by side, stopping and going on, settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers_neubay import CONFIG, DYNAMICS, SIZES, data, keys, made

from jaxrl_rollouts import chunks, loop
from jaxrl_rollouts.errors import ConfigError, Interrupted
from jaxrl_rollouts.offline.methods.neubay import HistoryRollouts
from jaxrl_rollouts.offline.neubay.learner import (
    OWN_WORLDS,
    buffer_bytes,
    buffer_episodes,
    make_neubay,
)
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag
from jaxrl_rollouts.trees import stack


def leaves(state: Any) -> list[np.ndarray]:
    return [
        np.asarray(x) for x in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    ]


OFFSETS = (0.0, 5.0)


def run(swap: bool = False, **settings: Any) -> loop.Trained:
    """Two seeds, each in its own world: one program for all tests here."""
    order = slice(None, None, -1 if swap else 1)
    worlds = stack([data(offset=offset) for offset in OFFSETS[order]])
    own, (neubay, _) = worlds._replace(logged=data().logged), made()
    settings = {"stage": "agent", "per_seed": OWN_WORLDS, **settings}
    return loop.train_loop(neubay.update, neubay.init, keys(2)[order], own, **settings)


def test_cadence_is_exact_up_to_what_is_owed(programs: Callable[[], int]) -> None:
    neubay, _ = made()
    run(iterations=1)
    before, trained = programs(), run(iterations=CONFIG.schedule[0])
    update_budget = trained.history.curve("update_budget")[1]
    used, timesteps = (trained.history.curve(n)[1] for n in ("buffer_timesteps", "timesteps"))
    came = np.diff(np.concatenate([np.zeros((1, 2)), used]), axis=0)
    due = np.concatenate([np.ones((1, 2), bool), update_budget[:-1] < 2])
    np.testing.assert_array_equal(came, np.where(due, timesteps, 0))
    assert due.any(0).all() and not due.all(), "some iterations live on what was there"
    taken = 2.0 * np.arange(1, CONFIG.schedule[0] + 1)[:, None]
    np.testing.assert_allclose(update_budget, 0.05 * np.cumsum(came, 0) - taken, atol=1e-4)
    for name in ("horizon_median", "q_real", "q_imagined", "entropy", "alpha", "ended_limit"):
        assert np.isfinite(trained.history.curve(name)[1]).all()
    assert programs() == before, "later iterations compile nothing"
    quantile = replace(CONFIG.rollouts, uncertainty_quantile=0.9)
    other = make_neubay(replace(CONFIG, rollouts=quantile, penalty=1.0), DYNAMICS, SIZES)
    assert other.update is neubay.update, "arms of an ablation share their program"


def test_a_collection_that_is_not_due_is_not_made() -> None:
    """XLA takes out of a loop what depends on nothing in it; then it would always be computed."""
    trained, worlds = run(iterations=1), stack([data(offset=offset) for offset in OFFSETS])
    chunk = chunks.compiled(made()[0].update, 1, chunks.Axes.of(OWN_WORLDS))
    text = chunk.program(trained.state, worlds._replace(logged=data().logged)).as_text()
    assert text is not None
    loops = [line for line in text.splitlines() if " while(" in line and "op_name" in line]
    rolling = [line for line in loops if "/while/body/while" in line.split("op_name")[1]]
    assert rolling, "a collection is a loop within a loop"
    entry = text[text.index("\nENTRY") :]
    assert not [line for line in rolling if line in entry]


def test_a_seed_takes_its_world_along_to_another_place() -> None:
    """To the last bit, in the program that is compiled already."""
    both, swapped = run(iterations=2), run(iterations=2, swap=True)
    for a, b in zip(leaves(both.state), leaves(swapped.state), strict=True):
        np.testing.assert_array_equal(a, b[::-1])


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"iterations": 4, "save_every_seconds": 0.0}
    whole = run(**settings)
    stop = StopFlag()
    context = RunContext(RunFolder(tmp_path, "neubay", "", {}, "", {}), progress=False, stop=stop)

    def ask(state: Any, iteration: int) -> dict[str, Any]:
        stop.requested = iteration == 2
        return {}

    with pytest.raises(Interrupted):
        run(evaluate=ask, evaluate_every=1, context=context, **settings)
    stop.requested = False
    again = run(context=context, **settings)
    for a, b in zip(leaves(whole.state), leaves(again.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_real_tokens_come_as_prefixes_only() -> None:
    trained = run(iterations=1)
    state = jax.tree.map(lambda x: x[0], trained.state)
    tape = tapes.sample(state.buffer, jax.random.key(0), 200)
    real, starts = np.asarray(tape.timesteps.real), np.asarray(tape.starts)
    # Once an episode has left the data it never comes back to them.
    comes_back = ~real[:-1] & real[1:] & ~starts[1:]
    assert real.any() and (~real).any() and not comes_back.any()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"rollouts": HistoryRollouts(length=0)}, "rollouts.length: found 0"),
        ({"rollouts": HistoryRollouts(0)}, "rollouts.batch_size"),
        ({"rollouts": HistoryRollouts(uncertainty_quantile=1.5)}, "quantile: found 1.5"),
        ({"penalty": -1.0}, "penalty"),
        ({"utd_ratio": 0.0}, "utd_ratio"),
        ({"per_iteration": 0}, "per_iteration: found 0"),
        ({"rollouts": HistoryRollouts(early_exit=0)}, "early_exit"),
        ({"buffer_size": 100}, r"buffer_size: found 100, expected at least 192 timesteps"),
        ({"buffer_size": 300, "batch_size": 301}, "at least one tape of 301 timesteps"),
        ({"batch_size": 1}, "batch_size: found 1"),
        ({"batch_size": 7}, "batch_size: found 7, expected at least the 8 timesteps of an episode"),
        ({"weighting": "transition"}, "weighting: transition: found 'a memory of kind lru"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        neubay = make_neubay(replace(CONFIG, **wrong), DYNAMICS, SIZES)
        neubay.init(jax.random.key(0), data())


def test_the_ring_takes_what_is_said() -> None:
    buffer = made()[1].buffer
    assert sum(x.nbytes for x in jax.tree.leaves(buffer)) == buffer_bytes(CONFIG, SIZES)
    assert buffer.begins.shape == (buffer_episodes(CONFIG),)
