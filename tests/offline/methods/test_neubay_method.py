"""NEUBAY through `train`: one trainer and one evaluator, worlds that are saved and read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.offline.task import Task
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

SMOKE = recipe("neubay", "smoke")


def dataset(count: int = 1000) -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), count)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


@pytest.mark.slow
def test_a_run_keeps_its_policy_and_its_worlds(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "toy", "test", SMOKE, "nothing")
    context = RunContext(folder, progress=False)
    outcome = train(dataset(), SMOKE, seeds=2, evaluations=1, episodes=2, context=context)
    assert outcome.steps == SMOKE.steps and outcome.returns.shape == (2,)
    # Pendulum's returns lie between about -2000 (worst) and 0.
    assert (outcome.returns > -2000).all() and (outcome.returns < 0).all()
    last = outcome.history.last
    ended = last("ended_threshold") + last("ended_termination") + last("ended_limit")
    np.testing.assert_allclose(ended, 1.0, rtol=1e-6)
    saved = read_policy(folder.path)
    assert saved.remembers and saved.facts["observation_size"] == 3 + 1 + 1
    np.testing.assert_allclose(saved.facts["returns"], outcome.returns)
    worlds = str(next(path.parent for path in folder.path.rglob("world.json")))
    data, world = dataset(), replace(SMOKE.world, folder=worlds)
    again = world.fit(Task(data, environment_of(data)), Job())
    assert again.trained is None
    np.testing.assert_allclose(again.stats.mean, outcome.source.stats.mean, rtol=1e-5)
    other = dataset(999)
    with pytest.raises(DataError, match="rows"):
        world.fit(Task(other, environment_of(other)), Job())


def test_an_iteration_that_no_collection_can_serve_is_refused_before_any_fit() -> None:
    greedy = replace(SMOKE, per_iteration=20_000, steps=20_000)
    with pytest.raises(ConfigError, match="per_iteration: found 20000, expected at most"):
        train(dataset(), greedy)


def test_coefficients_share_a_program() -> None:
    sizes = replace(SMOKE, penalty=0.3, steps=70, world=replace(SMOKE.world, max_epochs=9))
    quantile = replace(SMOKE.rollouts, uncertainty_quantile=0.5)
    assert replace(sizes, rollouts=quantile).program() == SMOKE.program()
    assert replace(SMOKE, utd_ratio=0.5).program() != SMOKE.program()
