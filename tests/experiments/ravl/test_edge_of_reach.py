"""Diagnoses of a learner on the plane: oracle, evaluator, map of values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.environments.plane import (
    PLANE,
    optimal_policy,
    optimal_return,
    optimal_value,
)
from jaxrl_rollouts.offline.environments.reach import Reach, measure_reach, sample_region
from jaxrl_rollouts.offline.methods.registry import base
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig, imagination, make_model_based
from jaxrl_rollouts.offline.study.edge_of_reach import (
    critics_look,
    oracle_patch,
    plane_evaluator,
    square,
    value_map,
)
from jaxrl_rollouts.offline.worlds.blend import true_dynamics

AGENT = SacConfig(num_critics=2, eta=0.0, hidden=(8,))


@pytest.fixture(scope="module")
def reach() -> Reach:
    data = plane_random(jax.random.key(0), 300)
    return measure_reach(np.asarray(data.observations), 3)


def test_the_oracle_speaks_at_the_edge_only(reach: Reach) -> None:
    optimum = optimal_value(sweeps=200)
    method = oracle_patch(base(AGENT), reach, optimum)
    states = jnp.asarray(np.random.default_rng(2).uniform(-15, 15, (300, 2)), jnp.float32)
    value = jnp.full((300,), -7.0)
    corrected = method.next_value(states, value)
    edge = np.asarray(reach.edge(states))
    np.testing.assert_array_equal(corrected[~edge], value[~edge])
    np.testing.assert_array_equal(corrected[edge], optimum(states)[edge])
    assert method.agent == base(AGENT).agent and method.coefficient == 0.0


def agent_on_plane():
    config = ModelBasedConfig(
        horizon=3, rollouts_per_epoch=8, epochs_retained=2, updates_per_epoch=1, batch_size=4
    )
    return make_model_based(config, base(AGENT), true_dynamics(PLANE), 2, 2)


def test_looks_measure_the_policy_and_the_buffer(reach: Reach) -> None:
    """With the optimal policy in the agent's place, return and value are the optimum's."""
    agent = agent_on_plane()
    data = imagination(base(AGENT), plane_random(jax.random.key(0), 300), ())
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
