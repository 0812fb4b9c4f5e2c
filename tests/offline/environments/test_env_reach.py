"""Where rollouts from data on the plane can lead: distances, the edge, samples of a region."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid, optimal_policy
from jaxrl_rollouts.offline.environments.reach import Reach, measure_reach, sample_region
from jaxrl_rollouts.rollouts import rollout


@pytest.fixture(scope="module")
def reach() -> Reach:
    data = plane_random(jax.random.key(0), 300)
    return measure_reach(np.asarray(data.observations), 3)


def test_distances_are_those_of_brute_force() -> None:
    data = np.asarray(plane_random(jax.random.key(0), 200).observations)
    reach = measure_reach(data, 3)
    probes = np.random.default_rng(0).uniform(-25, 25, (400, 2)).astype(np.float32)
    exact = np.abs(probes[:, None] - data[None]).max(-1).min(1)
    found = np.asarray(reach.distance(jnp.asarray(probes)))
    np.testing.assert_allclose(found, exact, atol=0.125)  # the grid's spacing


def test_within_and_edge_are_a_partition_of_what_k_steps_reach(reach: Reach) -> None:
    states = jnp.asarray(np.random.default_rng(1).uniform(-20, 20, (2000, 2)), jnp.float32)
    within, edge = reach.within(states), reach.edge(states)
    assert within.any() and edge.any() and not (within & edge).any()
    np.testing.assert_array_equal(within | edge, reach.distance(states) <= 3)


@pytest.mark.parametrize("policy", [random_policy(2), optimal_policy])
def test_edge_states_appear_only_as_the_last_state_of_a_rollout(policy) -> None:
    start = jax.random.uniform(jax.random.key(3), (500, 2), minval=-2.0, maxval=2.0)
    reach = measure_reach(np.asarray(start), 4)
    rolled = rollout(true_model(PLANE), None, start, jax.random.key(1), horizon=4, policy=policy)
    assert reach.distance(rolled.steps.next_observations).max() <= 4 + 0.13
    updated = reach.distance(rolled.steps.observations)
    assert updated.max() <= 3 + 0.13  # never beyond what fewer steps reach, but for the grid
    last = reach.edge(rolled.state)
    assert (last.mean() > 0.2) == (policy is optimal_policy)  # random walks seldom get that far


def test_data_beyond_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        measure_reach(np.array([[0.0, 40.0]]), 3)


def test_samples_of_a_region_are_in_it_and_spread(reach: Reach) -> None:
    for member in (reach.within, reach.edge):
        states = sample_region(reach, member, 128)
        assert states.shape == (128, 2) and member(states).all()
        assert len(np.unique(np.sign(states), axis=0)) == 4  # all quadrants


def test_value_grid_type_of_reach(reach: Reach) -> None:
    assert isinstance(reach.distance, ValueGrid)
    assert float(reach.distance(jnp.zeros(2))) < 1.0
