"""Diagnoses of a learner on the plane: oracle, evaluator, map of values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.studies.plane import (
    OraclePatch,
    Reach,
    critics_look,
    imagination,
    optimal_policy,
    optimal_return,
    plane_evaluator,
    sample_region,
    square,
    value_map,
)
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import Given, Learning, Rollouts, bind
from jaxrl_rollouts.offline.worlds.dynamics import true_dynamics

AGENT = SacConfig(num_critics=2, eta=0.0, hidden_dims=(8,))


@pytest.fixture(scope="module")
def reach() -> Reach:
    return Reach(6.0, 3)


def test_the_oracle_speaks_at_the_edge_only(reach: Reach) -> None:
    rollouts = Rollouts(length=reach.horizon)
    method = OraclePatch(agent=AGENT, rollouts=rollouts, half_width=reach.half_width)
    states = jnp.asarray(np.random.default_rng(2).uniform(-15, 15, (300, 2)), jnp.float32)
    value = jnp.full((300,), -7.0)

    def update(state, key, batch, next_value):  # what bootstrapped values come to
        return next_value(batch.next_observations, state), {}

    none = jnp.zeros(300)
    rows = Transitions(states, states, none, states, none, none)
    empty = jax.tree.map(lambda x: x[:0], rows)
    agent = agent_on_plane().agent._replace(update=update)
    key = jax.random.key(0)
    given = Given(agent, key, empty, rows, None)  # type: ignore[arg-type]
    corrected = method.learn(Learning(value), given)[0].agent
    edge = np.asarray(reach.edge(states))
    np.testing.assert_array_equal(corrected[~edge], value[~edge])
    optimum = optimal_return(states, discount=AGENT.discount, horizon=None)
    np.testing.assert_allclose(corrected[edge], optimum[edge], rtol=1e-6)


def agent_on_plane():
    rollouts = Rollouts(length=3, batch_size=8, retain_epochs=2, every=1)
    method = Base(agent=AGENT, rollouts=rollouts, batch_size=4)
    return bind(method, true_dynamics(PLANE), 2, 2)


def test_looks_measure_the_policy_and_the_buffer(reach: Reach) -> None:
    """With the optimal policy in the agent's place, return and value are the optimum's."""
    agent = agent_on_plane()
    rows = collect(PLANE, random_policy(2), None, jax.random.key(0), steps=300)
    data = imagination(Base(agent=AGENT), rows, ())
    keys = jax.random.split(jax.random.key(1), 2)
    state = jax.vmap(agent.init, (0, None))(keys, data)
    ideal = agent._replace(agent=agent.agent._replace(greedy=optimal_policy))
    critics = critics_look(ideal.agent, reach, 32)
    look = plane_evaluator(ideal, jax.random.key(2), 16, 0.99, critics)
    empty = look(state, 0)
    np.testing.assert_allclose(empty["percent"], 100.0, rtol=1e-4)
    begin = PLANE.observe(PLANE.reset(jax.random.key(2), 16))
    exact = float(optimal_return(begin, discount=0.99, horizon=None).mean())
    np.testing.assert_allclose(empty["true_value"], exact, rtol=4e-3)
    np.testing.assert_array_equal(empty["edge_share"], 0.0)
    rows = state.imagined.rows
    edge_state = sample_region(reach, reach.edge, 1)[0]
    following = rows.next_observations.at[:, :2].set(edge_state)
    full = state.imagined._replace(
        rows=rows._replace(next_observations=following), size=jnp.array([2, 8])
    )
    shares = look(state._replace(imagined=full), 0)["edge_share"]
    np.testing.assert_allclose(shares, [1.0, 0.25])
    assert set(empty) >= {f"{m}_{r}" for m in ("q", "spread", "gap") for r in ("within", "edge")}


def test_value_map_is_the_minimum_over_critics_indexed_by_coordinates() -> None:
    agent = agent_on_plane().agent._replace(
        q=lambda critic, s, a: jnp.stack([s[:, 0] + 10 * s[:, 1], 1000.0 + s[:, 0]]),
        greedy=optimal_policy,
    )
    states = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2))
    values = value_map(agent, states, square(4.0, 5))
    axis = np.linspace(-4, 4, 5)
    np.testing.assert_allclose(values[1], axis[:, None] + 10 * axis[None])
    assert values.shape == (2, 5, 5)
