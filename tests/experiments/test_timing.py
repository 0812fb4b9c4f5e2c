"""Who takes turns with whom, and who is compared with the fastest of the others."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.benchmarks.timing import (
    Rates,
    claim_times,
    in_turns,
    matmul_peak,
    products,
    rounds,
    show_seeds,
    start_report,
    timed,
)
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report


@dataclass(frozen=True)
class Config:
    torch_python: str = ""


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.create(tmp_path, "speed", "smoke", Config(), ""), progress=False)


def test_what_was_dispatched_is_waited_for() -> None:
    def late(x: np.ndarray) -> np.ndarray:
        time.sleep(0.2)
        return x

    slow = jax.jit(lambda x: jax.pure_callback(late, jax.ShapeDtypeStruct((), jnp.float32), x))
    slow(0.0).block_until_ready()
    assert timed(lambda: {"drawn": slow(1.0)}) >= 0.2
    with pytest.raises(TypeError, match="None"):
        timed(lambda: [].append(slow(1.0)))


def test_everybody_takes_a_turn_in_every_round(context: RunContext) -> None:
    order: list[str] = []

    def timer(who: str) -> float:
        order.append(who)
        return float(len(order))

    timers = {("train", who): lambda who=who: timer(who) for who in ("ours", "theirs")}
    rates = in_turns(context, "turns", 3, timers)
    assert order == ["ours", "theirs"] * 3
    assert list(rates.of("train")) == ["ours", "theirs"] and not rates.of("sample")
    np.testing.assert_array_equal(rates["train", "ours"], [1.0, 3.0, 5.0])
    assert rates.median(("train", "theirs")) == 4.0


def test_ours_is_compared_with_the_fastest_round_by_round(context: RunContext) -> None:
    rates = Rates(
        ours=np.array([2.0, 6.0, 4.0]),
        slow=np.array([9.0, 1.0, 1.0]),  # once lucky; its median is the lower one
        fast=np.array([2.0, 2.0, 2.0]),
    )
    report = Report.of(context, 1)
    assert claim_times(report, "twice", rates, "ours", times=2.0, means="against {best}") == 2.0
    (claim,) = report.claims
    assert claim.values == (1.0, 3.0, 2.0)
    assert claim.holds and claim.expected == "against fast" and claim.statistic == "median"


def test_a_peer_without_interpreter_is_named(context: RunContext) -> None:
    peers = {"torch_python": "d3rlpy and torch"}
    assert start_report(context, Config(), peers).notes[1:] == [
        "d3rlpy and torch were left out, and their claims: no torch_python was given."
    ]
    one = start_report(context, Config(), {"torch_python": "torch"}).notes[1]
    assert one == "torch was left out, and its claims: no torch_python was given."
    assert len(start_report(context, Config(torch_python="python"), peers).notes) == 1


def test_the_peak_is_a_rate() -> None:
    assert 1e8 < matmul_peak(256, 2) < 1e16


def test_products_are_counted_wherever_a_program_has_them() -> None:
    kernel = jnp.ones((3, 3, 5, 7))

    def program(x: jax.Array) -> jax.Array:
        by_matrix = jax.jit(lambda x: x @ jnp.ones((4, 6)))(x)
        image = jax.lax.conv(jnp.ones((1, 5, 8, 8)), kernel.transpose(3, 2, 0, 1), (1, 1), "SAME")
        return by_matrix.sum() + jnp.abs((1j * x) @ jnp.ones((4, 2))).sum() + image.sum()

    counted = products(jax.make_jaxpr(program)(jnp.ones((10, 4))).jaxpr)
    assert counted == 2 * 10 * 4 * 6 + 8 * 10 * 4 * 2 + 2 * 8 * 8 * 9 * 5 * 7


def test_turns_are_counted_and_shown(context: RunContext, capsys: pytest.CaptureFixture) -> None:
    assert list(rounds(replace(context, progress=True), "agents", 3)) == [0, 1, 2]
    shown = capsys.readouterr().err
    assert "agents" in shown and "3/3" in shown and "rounds" in shown
    assert list(rounds(context, "agents", 2)) == [0, 1]
    assert not capsys.readouterr().err


def test_seeds_side_by_side_are_held_to_the_first(context: RunContext) -> None:
    report = Report.of(context, 1)

    def train(seeds: int) -> Trained:
        return Trained((), History(), 0.0, 0.5 * seeds, 0.0)

    show_seeds(report, context, "nets", train, (1, 4), repeats=2, times=3.0)
    rows = report.tables["seeds side by side"]
    assert [(row["seeds"], row["x one seed"]) for row in rows] == [(1, 1.0), (4, 4.0)]
    (claim,) = report.claims
    assert claim.name == "4 seeds in 3 times the time of one" and not claim.holds
