"""SynthER, policy-guided diffusion and the planner through `train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.cql import Cql
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.synthetic.synther import MixedData
from jaxrl_rollouts.offline.task import Task


def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 1000)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


def prepared(method: Any) -> Any:
    data = dataset()
    return method.prepare(Task(data, environment_of(data)), Job())


def test_synthetic_rows_are_seen_through_the_agents_view_of_rewards() -> None:
    method = recipe("synther", "smoke")
    raw = prepared(method).data
    lower = prepared(replace(method, agent=replace(method.agent, reward="minus_one"))).data
    assert isinstance(raw, MixedData) and raw.synthetic.rewards.shape == (400,)
    for one, other in zip(raw, lower, strict=True):
        np.testing.assert_allclose(other.rewards, np.asarray(one.rewards) - 1, rtol=1e-6)
        np.testing.assert_array_equal(other.observations, one.observations)


def test_a_note_says_what_was_learned_from() -> None:
    note = prepared(recipe("synther", "smoke")).source.synthetic
    assert note.startswith(
        "Data: 400 rows that SynthER sampled from a model of the dataset's 1,000"
    )
    assert "50% of a batch is real" in note


def test_guided_diffusion_needs_a_normal_policy() -> None:
    with pytest.raises(ConfigError, match="agent: found 'cql', expected one with a normal policy"):
        prepared(replace(recipe("pgd", "smoke"), agent=Cql()))
