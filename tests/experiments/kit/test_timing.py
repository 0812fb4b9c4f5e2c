"""Who takes turns with whom, and who is compared with the fastest of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.experiments.kit.timing import Rates, claim_times, in_turns, start_report
from jaxrl_rollouts.experiments.speed.diffusion_speed_cells import Config
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import Report


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.create(tmp_path, "speed", "smoke", Config(), ""), progress=False)


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
    ratio = claim_times(report, "twice", rates, "ours", times=2.0, means="against {best}")
    assert ratio == 2.0
    (claim,) = report.claims
    assert claim.values == (1.0, 3.0, 2.0)
    assert claim.holds and claim.expected == "against fast" and claim.statistic == "median"
    assert claim_times(report, "slow", rates, "ours", ["slow"], times=1.0, means="") == 4.0


def test_a_peer_without_interpreter_is_named(context: RunContext) -> None:
    peers = {"torch_python": "d3rlpy and torch"}
    assert start_report(context, Config(), peers).notes[1:] == [
        "d3rlpy and torch were left out, and their claims: no torch_python was given."
    ]
    one = start_report(context, Config(), {"torch_python": "torch"}).notes[1]
    assert one == "torch was left out, and its claims: no torch_python was given."
    assert len(start_report(context, Config(torch_python="python"), peers).notes) == 1
