"""True values of policies and the scores of a choice against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.choosing.choice import Choice
from jaxrl_rollouts.offline.choosing.truth import scored, true_values
from jaxrl_rollouts.offline.choosing.verdict import Check, Row
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.base import Environment, begin, observe, proceed
from jaxrl_rollouts.offline.environments.terminations import never


def _reset(key: Any, batch: int) -> Any:
    return begin(jnp.zeros((batch, 1)), jnp.zeros((batch, 1)))


def _step(key: Any, state: Any, action: Any) -> Any:
    place = state.inner + action
    return proceed(state, place, place, action[:, 0], jnp.zeros(len(place), bool), 6)


# An episode of six steps whose reward is the action.
ENV = Environment("paid", 1, 1, 6, _reset, _step, observe, termination=never)


def test_true_values_are_discounted_sums_in_the_environment() -> None:
    rows = collect(ENV, random_policy(1), None, jax.random.key(0), steps=60)
    data = Dataset("paid", rows, None, Path("(made)"), "")
    policies: Any = [
        (name, lambda seen, a=a: np.full((len(seen), 1), a))
        for name, a in (("up", 0.5), ("down", -1.0))
    ]
    found = true_values(policies, data, 3, discount=0.9, environment=ENV)
    whole = (0.9 ** np.arange(6)).sum()
    np.testing.assert_allclose(found, [0.5 * whole, -whole], rtol=1e-5)
    with pytest.raises(ConfigError, match="a simulator, in which true values"):
        true_values(policies, data, 3, environment="none")


def choice(values: list[float], half: float, fqe: list[float]) -> Choice:
    rows = [
        Row(f"p/{i}", "", "", v, v - half, v + half, 0, 0, 0, 0.0, "", fqe=q)
        for i, (v, q) in enumerate(zip(values, fqe, strict=True))
    ]
    draws = np.zeros((len(rows), 4))
    return Choice(rows, "", (0, 0, 0), Check(0, 0, 1, 8), 0.9, 0.5, "log", "models", draws)


def test_scores_are_those_of_the_policies_with_an_estimate() -> None:
    """Estimates 3, 1, 2 of 4, 1, 0; a policy without one is left out. Half of the errors 1, 0, 2
    are at most 1, which is twice the half-width."""
    found = scored(choice([3, 1, 2, np.nan], 0.5, [0, 1, 2, 9]), np.array([4.0, 1.0, 0.0, 50.0]))
    assert found["policies"] == 3 and found["absolute error"] == pytest.approx(1.0)
    assert found["rank correlation"] == pytest.approx(0.5) and found["regret@1"] == 0
    assert found["regret@1 at random"] == pytest.approx((4 - 5 / 3) / 4)
    assert found["coverage"] == pytest.approx(1 / 3) and found["width"] == pytest.approx(2.0)
    assert found["fqe: regret@1"] == 1 and found["fqe: rank correlation"] == pytest.approx(-1.0)
    without = scored(choice([3, 1], 0.5, [np.nan, 1]), np.array([4.0, 1.0]))
    assert "fqe: regret@1" not in without
    with pytest.raises(ConfigError, match="at least 2 with an estimate"):
        scored(choice([np.nan, 1], 0.5, [0, 1]), np.array([4.0, 1.0]))
