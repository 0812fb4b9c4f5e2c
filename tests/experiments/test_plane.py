"""The plane: its optimum, the edge of reach, and what is measured there of a learner."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.studies.plane import (
    OraclePatch,
    Reach,
    critics_look,
    imagination,
    optimal_return,
    plane_evaluator,
    sample_region,
    square,
    value_map,
)
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import as_model, true_model
from jaxrl_rollouts.offline.environments.plane import GOAL, PLANE, reward
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import Given, Learning, Rollouts, bind
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.rollouts import rollout

AGENT = SacConfig(num_critics=2, eta=0.0, hidden_dims=(8,))
REACH = Reach(6.0, 3)


def optimal_policy(
    params: object, key: jax.Array, observation: jax.Array, memory: tuple
) -> tuple[jax.Array, tuple]:
    """Straight to the goal in each coordinate."""
    return jnp.clip(jnp.array(GOAL) - observation, -1.0, 1.0), memory


@pytest.fixture(scope="module")
def starts() -> jax.Array:
    return PLANE.reset(jax.random.key(7), 2000).observation


def test_optimum_over_thirty_steps_is_about_26(starts: jax.Array) -> None:
    # from the origin: seven diagonal steps, 6, 5, ... 0 from the goal in each coordinate, then stay
    by_hand = sum(np.exp(-2 * distance**2 / 18) for distance in range(7)) + 23
    np.testing.assert_allclose(optimal_return(jnp.zeros(2)), by_hand, rtol=1e-6)
    assert by_hand == pytest.approx(26.15, abs=0.01)
    assert optimal_return(starts).mean() == pytest.approx(25.97, abs=0.1)
    played = evaluate(PLANE, optimal_policy, None, jax.random.key(0), 500)
    assert played.returns.mean() == pytest.approx(25.97, abs=0.15)
    assert played.lengths.tolist() == [30] * 500 and not played.terminated.any()


def test_optimal_policy_earns_exactly_the_optimal_return(starts: jax.Array) -> None:
    played = rollout(
        as_model(PLANE),
        None,
        PLANE.set_observation(starts[:50]),
        jax.random.key(0),
        horizon=30,
        policy=optimal_policy,
    )
    np.testing.assert_allclose(played.steps.rewards.sum(0), optimal_return(starts[:50]), rtol=1e-5)


def test_no_perturbed_policy_beats_it(starts: jax.Array) -> None:
    def noisy(scale: float, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        action, memory = optimal_policy(None, key, observation, memory)
        return action + scale * jax.random.normal(key, action.shape), memory

    for scale in (0.05, 0.5, 5.0):
        played = rollout(
            as_model(PLANE),
            None,
            PLANE.set_observation(starts),
            jax.random.key(1),
            horizon=30,
            policy=noisy,
            policy_params=scale,
        )
        assert (played.steps.rewards.sum(0) <= optimal_return(starts) + 1e-4).all()


def test_the_value_without_a_horizon_satisfies_bellmans_equation(starts: jax.Array) -> None:
    """`V(s) = r(s') + gamma V(s')` along the optimal policy; no drawn action is better."""
    wide = jax.random.uniform(jax.random.key(1), (500, 2), minval=-20.0, maxval=20.0)
    value = partial(optimal_return, discount=0.99, horizon=None)
    best, _ = optimal_policy(None, jax.random.key(0), wide, ())
    drawn = jax.random.uniform(jax.random.key(2), (200, 500, 2), minval=-1.0, maxval=1.0)

    def backed_up(actions: jax.Array) -> jax.Array:
        following = wide + actions
        return reward(wide, actions, following) + 0.99 * value(following)

    np.testing.assert_allclose(value(wide), backed_up(best), rtol=1e-5)
    assert (backed_up(drawn) <= value(wide) + 1e-3).all()
    at_start = value(starts)
    assert at_start.min() > 94 and at_start.max() < 99
    np.testing.assert_allclose(value(jnp.array([7.0, 7.0])), 100.0, rtol=1e-4)


def test_infinite_horizon_needs_a_discount() -> None:
    with pytest.raises(ValueError, match="expected below 1"):
        optimal_return(jnp.zeros(2), discount=1.0, horizon=None)


def test_within_and_edge_are_a_partition_of_what_k_steps_reach() -> None:
    states = jnp.asarray(np.random.default_rng(1).uniform(-20, 20, (2000, 2)), jnp.float32)
    within, edge = REACH.within(states), REACH.edge(states)
    assert within.any() and edge.any() and not (within & edge).any()
    np.testing.assert_array_equal(within | edge, REACH.distance(states) <= 3)


@pytest.mark.parametrize("policy", [random_policy(2), optimal_policy])
def test_edge_states_appear_only_as_the_last_state_of_a_rollout(policy) -> None:
    start = jax.random.uniform(jax.random.key(3), (500, 2), minval=-2.0, maxval=2.0)
    reach = Reach(2.0, 4)
    rolled = rollout(true_model(PLANE), None, start, jax.random.key(1), horizon=4, policy=policy)
    assert reach.distance(rolled.steps.next_observations).max() <= 4
    updated = reach.distance(rolled.steps.observations)
    assert updated.max() <= 3  # never beyond what fewer steps reach
    last = reach.edge(rolled.state)
    assert (last.mean() > 0.2) == (policy is optimal_policy)  # random walks seldom get that far


def test_samples_of_a_region_are_in_it_and_spread() -> None:
    for member in (REACH.within, REACH.edge):
        states = sample_region(member, 128)
        assert states.shape == (128, 2) and member(states).all()
        assert len(np.unique(np.sign(states), axis=0)) == 4  # all quadrants


def test_the_oracle_speaks_at_the_edge_only() -> None:
    rollouts = Rollouts(length=REACH.horizon)
    method = OraclePatch(agent=AGENT, rollouts=rollouts, half_width=REACH.half_width)
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
    edge = np.asarray(REACH.edge(states))
    np.testing.assert_array_equal(corrected[~edge], value[~edge])
    optimum = optimal_return(states, discount=AGENT.discount, horizon=None)
    np.testing.assert_allclose(corrected[edge], optimum[edge], rtol=1e-6)


def agent_on_plane():
    rollouts = Rollouts(length=3, batch_size=8, retain_epochs=2, every=1)
    method = Base(agent=AGENT, rollouts=rollouts, batch_size=4)
    return bind(method, true_dynamics(PLANE), 2, 2)


def test_looks_measure_the_policy_and_the_buffer() -> None:
    """With the optimal policy in the agent's place, return and value are the optimum's."""
    agent = agent_on_plane()
    rows = collect(PLANE, random_policy(2), None, jax.random.key(0), steps=300)
    data = imagination(Base(agent=AGENT), rows, ())
    keys = jax.random.split(jax.random.key(1), 2)
    state = jax.vmap(agent.init, (0, None))(keys, data)
    ideal = agent._replace(agent=agent.agent._replace(greedy=optimal_policy))
    critics = critics_look(ideal.agent, REACH, 32)
    look = plane_evaluator(ideal, jax.random.key(2), 16, 0.99, critics)
    empty = look(state, 0)
    np.testing.assert_allclose(empty["percent"], 100.0, rtol=1e-4)
    begin = PLANE.observe(PLANE.reset(jax.random.key(2), 16))
    exact = float(optimal_return(begin, discount=0.99, horizon=None).mean())
    np.testing.assert_allclose(empty["true_value"], exact, rtol=4e-3)
    np.testing.assert_array_equal(empty["edge_share"], 0.0)
    rows = state.imagined.rows
    edge_state = sample_region(REACH.edge, 1)[0]
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
