"""Diagnostics on models and critics whose answers are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble import Ensemble
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.offline.agents import critics
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.worlds import open_loop
from jaxrl_rollouts.offline.worlds.dynamics import WorldModelParams
from jaxrl_rollouts.scaler import Scaler, identity_scaler

S, A = 2, 1
AGENT = make_sac(SacConfig(num_critics=3, eta=0.0, hidden_dims=(8,)), S, A)


def test_critic_view_and_start_values() -> None:
    states = jax.vmap(AGENT.init)(jax.random.split(jax.random.key(0), 2))
    s = jax.random.normal(jax.random.key(1), (7, S))
    values = critics.start_values(AGENT, states, s)
    for i in range(2):
        one = jax.tree.map(lambda x, i=i: x[i], states)
        action = AGENT.greedy(one.actor, jax.random.key(9), s, ())[0]
        q = np.asarray(AGENT.q(one.critic, s, action))
        view = critics.critic_view(AGENT, one, s)
        np.testing.assert_allclose(view.mean, q.mean(), rtol=1e-4)
        np.testing.assert_allclose(view.spread, q.std(0).mean(), rtol=1e-4)
        np.testing.assert_allclose(view.pessimism, (q.mean(0) - q.min(0)).mean(), rtol=1e-3)
        np.testing.assert_allclose(values[i], q.mean(), rtol=1e-4)
    assert view.spread > 0 and view.pessimism > 0


def normal_fitter(log_var: float) -> Fitter:
    """Two members that predict a change of 0 with this log-variance, whatever the input."""

    def apply_all(params: Any, x: Any) -> tuple:
        return jnp.zeros((2, len(x), S + 1)), jnp.full((2, len(x), S + 1), log_var)

    members = Ensemble(lambda key: (), apply_all, apply_all, 2)
    return Fitter(members, None, None, None)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_calibration(ratio: float) -> None:
    """Changes are N(1, 2^2); the model says the mean and `ratio` times the deviation."""
    from scipy import stats

    rng = np.random.default_rng(0)
    s = rng.normal(size=(4000, S)).astype(np.float32)
    change = rng.normal(1.0, 2.0, size=(4000, S + 1)).astype(np.float32)
    no = np.zeros(4000, bool)
    rows = Transitions(s, s[:, :A], change[:, -1], s + change[:, :-1], no, no)
    world = WorldModelParams(
        (), identity_scaler(S + A), Scaler(jnp.ones(S + 1), jnp.full((S + 1,), 2.0))
    )
    levels = (0.5, 0.8, 0.95)
    got = open_loop.calibration(normal_fitter(2 * np.log(ratio)), world, rows, levels)
    half = [ratio * stats.norm.ppf(0.5 + level / 2) for level in levels]
    want = [stats.norm.cdf(h) - stats.norm.cdf(-h) for h in half]
    np.testing.assert_allclose(got, want, atol=0.015)
    if ratio == 1.0:
        np.testing.assert_allclose(got, levels, atol=0.015)
