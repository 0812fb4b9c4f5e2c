"""A program that was changed and is run again in its folder is told so, and given nothing stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.offline.main_job import EXPERIMENT
from jaxrl_rollouts.record.run import Run


def outcome(folder: Path, method: Any, **options: Any) -> offline.Outcome:
    with Run.open(folder, progress=False) as run:
        budget = EXPERIMENT.preset("smoke")
        return offline.train("pendulum-mixed", method, budget, seeds=1, context=run, **options)


def test_another_setting_of_an_agent(tmp_path: Path) -> None:
    first = outcome(tmp_path, "td3_bc")
    with pytest.raises(CheckpointError, match=r"agent\.alpha: .* with 2.5, expected 7"):
        outcome(tmp_path, offline.Td3Bc(alpha=7.0))
    with pytest.raises(CheckpointError, match="updates of an iteration: .* with 20, expected 4"):
        outcome(tmp_path, "td3_bc", steps=4)
    np.testing.assert_array_equal(outcome(tmp_path, "td3_bc").returns, first.returns)


def test_another_world_model(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke").study.ensemble
    data = offline.load("pendulum-mixed")
    with Run.open(tmp_path, progress=False) as run:
        offline.fit_worlds(config, data, context=run)
        with pytest.raises(CheckpointError, match="learning_rate: found a training with 0.001"):
            offline.fit_worlds(replace(config, learning_rate=2e-3), data, context=run)
        with pytest.raises(CheckpointError, match="targets: found .* 'change', expected 'raw'"):
            offline.fit_worlds(config, data, targets="raw", context=run)
        with pytest.raises(CheckpointError, match="keys of the seeds"):
            offline.fit_worlds(config, data, key=1, context=run)
