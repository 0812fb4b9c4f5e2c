"""A run that trains on is the run that was begun so long: `resume --longer`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.main_job import EXPERIMENT, longer
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.record.run import Run


def test_lengths_and_looks_grow_and_nothing_else_does() -> None:
    config = EXPERIMENT.preset("cpu")
    before, after = settings(config), settings(longer(config, 3))
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert changed == {
        "study.epochs": (15, 45),
        "study.evaluations": (5, 15),
        "model_free.updates": (10_000, 30_000),
    }
    # Steps that were asked for count as whole epochs, of which there are three times as many.
    asked = longer(replace(config, steps=1600), 3)
    assert (asked.steps, asked.study.epochs) == (None, 9)
    free = longer(replace(config, method="iql", steps=1600), 3)
    assert (free.steps, free.model_free.updates) == (None, 4800)


def test_what_is_planned_for_its_length_cannot_be_longer() -> None:
    for method in ("neubay", "neubay_markov"):
        config = replace(EXPERIMENT.preset("cpu"), method=method)
        with pytest.raises(ConfigError, match=f"times: found 2, expected none for {method}"):
            EXPERIMENT.lengthened(config, 2)
    with pytest.raises(ConfigError, match="a longer open_loop is another training"):
        found = load_experiment("open_loop")
        found.lengthened(found.preset("smoke"), 2)


def train_on(tmp_path: Path, experiment: str, lengths: dict[str, int], *options: str) -> None:
    """Half of a run, trained on, says the same as the whole of it, whose command it has."""
    smoke = ["--preset", "smoke", "--no-progress", *options]
    half = [word for name, length in lengths.items() for word in (name, str(length))]
    whole = [word for name, length in lengths.items() for word in (name, str(2 * length))]
    reports: list[Any] = []
    for kind, words in (("half", half), ("whole", whole)):
        cli.dispatch(["run", experiment, *smoke, *words, "--out", str(tmp_path / kind)])
        (folder,) = (tmp_path / kind).iterdir()
        if kind == "half":
            short = json.loads((folder / "report.json").read_text())
            cli.dispatch(["resume", str(folder), "--no-progress", "--longer", "2"])
            assert short["tables"] != json.loads((folder / "report.json").read_text())["tables"]
        reports.append(json.loads((folder / "report.json").read_text()))
    for key in ("numbers", "claims", "tables", "notes"):
        found, expected = (json.dumps(report[key]) for report in reports)
        for report in reports:  # a claim's command is its report's
            found = found.replace(report["command"], "")
            expected = expected.replace(report["command"], "")
        assert found == expected, key


@pytest.mark.slow
def test_an_agent_without_a_model_trains_on(tmp_path: Path) -> None:
    lengths = {"--study.evaluations": 1, "--model-free.updates": 40}
    train_on(tmp_path, "offline", lengths, "--method", "td3_bc")


@pytest.mark.slow
def test_imagination_trains_on(tmp_path: Path) -> None:
    lengths = {"--study.epochs": 2, "--study.evaluations": 1}
    train_on(tmp_path, "offline", lengths, "--method", "ravl")


@pytest.mark.slow
def test_what_cells_measure_is_that_of_the_longer_training(tmp_path: Path) -> None:
    train_on(tmp_path, "edge_of_reach_toy", {"--epochs": 2, "--evaluations": 2})


def test_a_rate_that_falls_to_zero_has_no_longer() -> None:
    small = EXPERIMENT.preset("smoke").study
    study = replace(small, agent=replace(small.agent, cosine_steps=40))
    budget = replace(EXPERIMENT.preset("smoke"), study=study)
    with pytest.raises(ConfigError, match=r"study\.agent\.cosine_steps: beyond 40 steps") as told:
        budget.longer("ravl", 2)
    assert told.value.setting == "times"


def test_a_program_trains_on(tmp_path: Path) -> None:
    budget = replace(EXPERIMENT.preset("smoke"), steps=40)
    for times in (1, 3):
        with Run.open(tmp_path, progress=False) as run:
            now = budget.longer("bc", times)
            parts = offline.train("pendulum-mixed", "bc", now, seeds=1, context=run)
    whole = offline.train("pendulum-mixed", "bc", budget.longer("bc", 3), seeds=1)
    assert parts.steps == whole.steps == 120
    np.testing.assert_array_equal(parts.returns, whole.returns)
