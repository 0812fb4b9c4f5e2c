"""Worst-case targets: the tail against numpy, its identities, and where it arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_learners import CADENCE, HARD, KNOWN, WORLD, A, S, imagination, rows

from jaxrl_rollouts.offline.data import to_device
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.cvar import Cvar, tail_gap
from jaxrl_rollouts.offline.methods.mobile import imagined_values
from jaxrl_rollouts.offline.methods.model_based import Given, Learning, ModelBased, bind
from jaxrl_rollouts.offline.worlds.dynamics import Rolled

KEY = jax.random.key(3)


def an_epoch(method: ModelBased) -> tuple:
    learner, data = bind(method.program(), KNOWN, S, A), imagination(method)
    return jax.jit(learner.update)(learner.init(KEY, data), data)


def test_the_gap_is_mean_less_tail() -> None:
    found = np.random.default_rng(0).normal(size=(5, 7))
    for dropped, kept in ((0.0, 5), (0.2, 4), (0.3, 4), (0.4, 3), (0.9, 1), (0.99, 1)):
        want = found.mean(0) - np.sort(found, 0)[:kept].mean(0)
        gap = np.asarray(tail_gap(jnp.asarray(found), dropped))
        np.testing.assert_allclose(gap, want, rtol=1e-4, atol=1e-6)
        assert (gap >= 0).all()
    assert (np.asarray(tail_gap(jnp.asarray(found), 0.0)) == 0).all()
    assert (np.asarray(tail_gap(jnp.asarray(found[:1]), 0.7)) == 0).all()
    gaps = [np.asarray(tail_gap(jnp.asarray(found), d)) for d in (0.0, 0.2, 0.4, 0.6, 0.8)]
    assert (np.diff(gaps, axis=0) >= -1e-6).all()


@pytest.mark.parametrize(("dropped", "want"), [(0.2, 0.350), (0.5, 0.798), (0.8, 1.40)])
def test_of_normal_estimates_it_is_a_multiple_of_their_deviation(
    dropped: float, want: float
) -> None:
    found = 3.0 * jax.random.normal(KEY, (20_000, 1)) + 5.0
    np.testing.assert_allclose(tail_gap(found, dropped), 3.0 * want, rtol=0.03)


def test_where_nothing_is_dropped_it_is_base() -> None:
    base = an_epoch(Base(agent=HARD, **CADENCE))[0]
    none = an_epoch(Cvar(agent=HARD, dropped=0.0, num_samples=2, **CADENCE))[0]
    found, want = ((state.agent, state.imagined) for state in (none, base))
    jax.tree.map(np.testing.assert_array_equal, found, want)


def test_estimates_are_their_formula_and_lower_imagined_targets_only() -> None:
    """In a world whose members end in different rows and disagree about the reward."""

    def sample_elites(world: Any, key: Any, s: Any, a: Any) -> Any:
        found = KNOWN.sample_elites(world, key, s, a)
        ends = jnp.stack([s[:, 0] > 0, s[:, 0] > 5, s[:, 1] > 0])
        return found._replace(terminations=ends, rewards=found.rewards + world["shift"][:, None])

    world = Rolled(KNOWN._replace(sample_elites=sample_elites), WORLD, jnp.ones(()))
    method = Cvar(agent=HARD, dropped=0.5, num_samples=1, **CADENCE)
    agent = HARD.make(S, A)
    state = agent.init(KEY)
    state = state._replace(target_critic=jax.tree.map(lambda p: 5.0 * p, state.critic))
    batch = jax.tree.map(lambda x: x[:6], to_device(rows()))
    key = jax.random.split(KEY, 1)[0]
    found, value = imagined_values(agent, state, key, batch, world, "own")
    want = np.asarray(found.rewards)
    want = want + HARD.discount * (1 - np.asarray(found.terminations)) * np.asarray(value)
    estimates = method.estimates(agent, state, KEY, batch, world)
    np.testing.assert_allclose(estimates, want, rtol=1e-5)
    given = Given(agent, KEY, batch, batch, world)
    learned, metrics = method.learn(Learning(state), given)
    plain = replace(method, dropped=0.0).learn(Learning(state), given)
    inner = method.estimates(agent, state, jax.random.fold_in(KEY, 1), batch, world)
    gap = np.asarray(inner).mean(0) - np.sort(np.asarray(inner), 0)[:2].mean(0)
    lower = float(plain[1]["target_mean"]) - float(metrics["target_mean"])
    np.testing.assert_allclose(lower, 0.5 * gap.mean(), rtol=1e-3)
    np.testing.assert_allclose(metrics["tail_gap"], gap.mean(), rtol=1e-4)
    assert gap.mean() > 0.1 and learned.agent is not state
