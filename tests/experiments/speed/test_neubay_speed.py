"""NEUBAY's benchmark at smoke size, its looping collector, and its peer in torch."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.peer import Peer, Theirs
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.experiments.speed.goals import PEERS
from jaxrl_rollouts.experiments.speed.neubay_speed import EXPERIMENT
from jaxrl_rollouts.experiments.speed.neubay_speed_cells import (
    ACTIONS,
    compiled_collector,
    looping_collector,
    make_bench,
    our_learning,
)
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_smoke(tmp_path: Path) -> None:
    command = ["run", "neubay_speed", "--preset", "smoke", "--no-progress"]
    cli.dispatch([*command, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    (row,) = report.tables["imagined transitions per second"]
    assert row["ensemble"] == "2 x 8"
    for loop in ("loop over steps", "loop over episodes and steps"):
        assert row[f"{loop}, transitions/s"] > 0 and row[f"x {loop}"] > 0
    sizes = report.tables["ensemble size: one collection"]
    assert [r["members"] for r in sizes] == [1, 2] and sizes[0]["x 1 members"] == 1.0
    # Weights are proportional to members, to the byte.
    assert sizes[1]["weights MB"] == pytest.approx(2 * sizes[0]["weights MB"])
    steps = report.tables["gradient steps per second"]
    assert [r["agent"] for r in steps] == ["ours, lru", "ours, gru"]
    for r in steps:
        assert r["tokens/s"] == pytest.approx(SMOKE.tape * r["steps/s"], rel=1e-4)
    assert len(report.claims) == 2 and set(report.pictures) == {"members"}
    assert any("torch was left out" in note for note in report.notes)


@pytest.mark.slow
def test_the_loop_takes_what_the_program_takes() -> None:
    """Nothing cuts rollouts, so both imagine from the same moments to the time limit."""
    bench = make_bench(SMOKE, 2, (8,))
    for seed in range(3):
        key = jax.random.key(seed)
        ours = compiled_collector(bench)(key)
        assert looping_collector(bench, SMOKE.rollouts)(key) == ours


def test_the_peer_imports_nothing_of_ours() -> None:
    tree = ast.parse((PEERS / "torch_recurrent.py").read_text())
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    beside = {"serving", "torch_study"}
    assert modules == {"__future__", "copy", "math", "types", "typing", "torch"} | beside


class Echo(Peer):
    """A peer that makes of every episode the same, whatever our weights."""

    def __init__(self, theirs: Theirs) -> None:
        self.theirs = theirs

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        length = len(question["seen"])
        shape = (2, length) if question["of"] == "values" else (length, ACTIONS)
        return {"said": np.ones(shape).tolist()}


def test_a_peer_with_another_network_is_refused() -> None:
    outputs = our_learning(SMOKE, "gru").outputs()
    with pytest.raises(DataError, match="torch: network on our weights"):
        Echo(
            Theirs("", PEERS / "torch_recurrent.py", "torch", {}, {}, outputs=outputs)
        ).check_same()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tape": 18}, "tape: found 18, expected a multiple of episode"),
        ({"members": (1, 2)}, "members, hidden"),
        ({"repeats": 0}, "repeats"),
        ({"torch_python": "/nowhere/python"}, "torch_python"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))
