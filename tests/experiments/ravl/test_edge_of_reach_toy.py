"""The plane study: reach, edge, oracle, looks, and the experiment from end to end."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy import EXPERIMENT
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy_cells import RUNS, Config
from jaxrl_rollouts.experiments.ravl.plane import (
    Reach,
    measure_reach,
    patch,
    plane_evaluator,
    sample_region,
    value_map,
)
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.plane import (
    PLANE,
    ValueGrid,
    optimal_policy,
    optimal_return,
    optimal_value,
)
from jaxrl_rollouts.offline.methods.registry import base
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig, imagination, make_model_based
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report
from jaxrl_rollouts.rollouts import rollout

AGENT = SacConfig(critics=2, diversity=0.0, hidden=(8,))


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


def test_the_oracle_speaks_at_the_edge_only(reach: Reach) -> None:
    optimum = optimal_value(sweeps=200)
    method = patch(base(AGENT), reach, optimum)
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
    look = plane_evaluator(ideal, reach, jax.random.key(2), starts=16, discount=0.99, probes=32)
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
    values = value_map(agent, states, 4.0, 5)
    axis = np.linspace(-4, 4, 5)
    np.testing.assert_allclose(values[1], axis[:, None] + 10 * axis[None])
    assert values.shape == (2, 5, 5)


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="evaluations"):
        check(Config(epochs=10, evaluations=3))
    with pytest.raises(ConfigError, match="rows"):
        check(Config(rows=0))
    for preset in EXPERIMENT.presets.values():
        check(preset)
    assert EXPERIMENT.preset("cpu").seeds >= 5


@pytest.mark.slow
def test_smoke_run_reports_and_redraws(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, EXPERIMENT.name, "smoke", config, "command")
    context = RunContext(folder, progress=False)
    report = EXPERIMENT.run(config, context)
    report.save(folder.path)
    loaded = load_report(folder.path)
    rows = loaded.tables["after training"]
    assert [(r["method"], r["dynamics"]) for r in rows] == [p for p in RUNS if p[1] == "true"]
    assert {"reach", "training", "spread", "q_maps"} == set(loaded.pictures)
    for picture in loaded.pictures.values():
        assert (folder.path / picture.file).stat().st_size > 5000
    failing = {c.name for c in loaded.claims if not c.holds}
    assert "RAVL is near-optimal with true dynamics" in failing  # ten updates teach nothing
    again = EXPERIMENT.run(config, context)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]
    assert again.wall_seconds == pytest.approx(report.wall_seconds)  # nothing was trained again


def test_value_grid_type_of_reach(reach: Reach) -> None:
    assert isinstance(reach.distance, ValueGrid)
    assert float(reach.distance(jnp.zeros(2))) < 1.0
