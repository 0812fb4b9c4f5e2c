"""A run that trains on is the run that was begun so long: `resume --longer`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fixtures import smoke

from jaxrl_rollouts import offline
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.main_job import EXPERIMENT, longer
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.record.run import Run
from jaxrl_rollouts.reports.report import load_report


def test_lengths_and_looks_grow_and_nothing_else_does() -> None:
    config = EXPERIMENT.preset("small")
    before, after = settings(config), settings(longer(config, 3))
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert changed == {"method.steps": (7500, 22_500), "evaluations": (5, 15)}


def test_what_is_planned_for_its_length_cannot_be_longer() -> None:
    config = EXPERIMENT.preset("paper")
    says = "times: found 2, expected none for mopo: a rate falls to zero over its 3,000,000 steps"
    with pytest.raises(ConfigError, match=says):
        EXPERIMENT.lengthened(config, 2)


@pytest.mark.slow
def test_imagination_trains_on(tmp_path: Path) -> None:
    """Half of a run, trained on, says the same as the whole of it, whose command it has."""
    options, reports = ("--method", "ravl"), []
    for times, kind in enumerate(("half", "whole"), start=1):
        lengths = ("--evaluations", str(times), "--steps", str(40 * times))
        folder = smoke("offline", tmp_path / kind, *options, *lengths)
        if kind == "half":
            short = load_report(folder).tables
            cli.dispatch(["resume", str(folder), "--no-progress", "--longer", "2"])
            assert short != load_report(folder).tables
        reports.append(json.loads((folder / "report.json").read_text()))
    for key in ("numbers", "claims", "tables", "notes"):
        # A claim's command is its report's.
        found, expected = (json.dumps(r[key]).replace(r["command"], "") for r in reports)
        assert found == expected, key


def test_a_program_trains_on(tmp_path: Path) -> None:
    options = {"preset": "smoke", "seeds": 1, "episodes": 1}
    for times in (1, 3):
        with Run.open(tmp_path, progress=False) as run:
            length = {"steps": 40 * times, "evaluations": times}
            parts = offline.train("pendulum-mixed", "bc", context=run, **length, **options)
    whole = offline.train("pendulum-mixed", "bc", steps=120, evaluations=3, **options)
    assert parts.steps == whole.steps == 120
    np.testing.assert_array_equal(parts.returns, whole.returns)


def test_a_rate_that_falls_over_the_steps_is_not_continued(tmp_path: Path) -> None:
    iql = recipe("iql", "smoke", cosine=True)
    options = {"seeds": 1, "evaluations": 1, "episodes": 1}
    with Run.open(tmp_path, progress=False) as run:
        offline.train("pendulum-mixed", iql, steps=40, context=run, **options)
        with pytest.raises(CheckpointError, match="iql.steps: found a training with 40"):
            offline.train("pendulum-mixed", iql, steps=80, context=run, **options)
