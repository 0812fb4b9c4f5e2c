"""Dynamics between a learned model and the truth, and the hook for corrected next values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import coefficients
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.studies.true_dynamics_cells import (
    Blend,
    blend_worlds,
    blended_dynamics,
)
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.model_based import Imagination, ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples, learned_dynamics
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.offline.worlds.fit import make_world_model
from jaxrl_rollouts.rollouts import Model, step_result

OBSERVATIONS = jnp.array([[0.0, 0.0], [1.0, -2.0], [5.0, 6.0]])
ACTIONS = jnp.array([[0.5, 0.5], [-1.0, 1.0], [1.0, 0.25]])
AGENT = SacConfig(num_critics=2, eta=0.0, hidden_dims=(8,))
SMALL: dict[str, Any] = {
    "agent": AGENT,
    "rollouts": Rollouts(length=2, batch_size=6, retain_epochs=2, every=3),
    "batch_size": 8,
    "real_ratio": 0.0,
}


def fake_step(world, key, observations, actions, member):
    """Goes to `world` wherever it is, with uncertainty 3, and lies about reward and ending."""
    batch = observations.shape[0]
    out = step_result(
        batch,
        reward=jnp.full((batch,), 99.0),
        terminated=jnp.ones((batch,), bool),
        uncertainty=jnp.full((batch,), 3.0),
    )
    return jnp.broadcast_to(world, observations.shape), out


def fake_imagine(world, key, observations, actions):
    shape = (4, *observations.shape)
    member = jnp.arange(4.0)[:, None, None]
    return EliteSamples(
        jnp.full(shape[:2], 99.0),
        jnp.broadcast_to(world, shape) + member,
        jnp.ones(shape[:2], bool),
    )


FAKE = Dynamics(Model(fake_step), fake_imagine, 4)


def step(truth: float, world: float = 10.0):
    dynamics = blended_dynamics(FAKE, PLANE)
    params = Blend(jnp.float32(world), jnp.float32(truth))
    return dynamics.model.step(params, jax.random.key(0), OBSERVATIONS, ACTIONS, None)


@pytest.mark.parametrize("truth", [0.0, 0.25, 0.9, 1.0])
def test_next_state_is_the_weighted_mean_and_uncertainty_shrinks(truth: float) -> None:
    following, out = step(truth)
    expected = truth * (OBSERVATIONS + ACTIONS) + (1 - truth) * 10.0
    np.testing.assert_allclose(following, expected, rtol=1e-5)
    np.testing.assert_allclose(out.uncertainty, 3.0 * (1 - truth), rtol=1e-5)
    reward = PLANE.reward(OBSERVATIONS, ACTIONS, following)
    np.testing.assert_array_equal(out.reward, reward)
    assert not out.terminated.any()


def test_a_model_that_overflows_has_no_say_at_truth_one() -> None:
    following, out = step(1.0, world=float("inf"))
    np.testing.assert_array_equal(following, OBSERVATIONS + ACTIONS)
    assert not np.isnan(out.reward).any()


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0])
def test_imagined_opinions_are_blended_member_by_member(truth: float) -> None:
    dynamics = blended_dynamics(FAKE, PLANE)
    said = dynamics.sample_elites(
        Blend(jnp.float32(10.0), jnp.float32(truth)), jax.random.key(0), OBSERVATIONS, ACTIONS
    )
    member = np.arange(4.0)[:, None, None]
    expected = truth * np.asarray(OBSERVATIONS + ACTIONS) + (1 - truth) * (10.0 + member)
    np.testing.assert_allclose(said.next_observations, expected, rtol=1e-5)
    assert said.rewards.shape == said.terminations.shape == (4, 3)
    np.testing.assert_allclose(said.rewards[2], PLANE.reward(None, None, expected[2]), rtol=1e-5)
    assert dynamics.members == 4 and not said.terminations.any()


def test_worlds_are_crossed_with_qualities_quality_slowest() -> None:
    params = blend_worlds({"a": jnp.arange(3.0)}, (0.0, 0.5))
    np.testing.assert_array_equal(params.world["a"], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(params.model_quality, [0, 0, 0, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("truths", [(), (1.5,), (0.5, -0.1), (float("nan"),)])
def test_qualities_out_of_range(truths: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="truths"):
        blend_worlds(jnp.zeros(2), truths)


def test_quality_can_be_vmapped() -> None:
    dynamics = blended_dynamics(FAKE, PLANE)
    params = blend_worlds(jnp.full((1,), 10.0), (0.0, 0.3, 1.0))

    def one(p: Blend) -> jax.Array:
        return dynamics.model.step(p, jax.random.key(0), OBSERVATIONS, ACTIONS, None)[0]

    together = jax.vmap(one)(params)
    for row, truth in zip(together, (0.0, 0.3, 1.0), strict=True):
        np.testing.assert_allclose(row, step(truth)[0], rtol=1e-6)


def test_environment_must_know_its_parts() -> None:
    with pytest.raises(ConfigError, match="known reward"):
        blended_dynamics(FAKE, PLANE._replace(reward=None))
    with pytest.raises(ConfigError, match="set_observation"):
        blended_dynamics(FAKE, PLANE._replace(set_observation=None))
    with pytest.raises(ConfigError, match="set_observation"):
        true_dynamics(PLANE._replace(set_observation=None))


def test_true_dynamics_are_the_simulator_with_one_opinion() -> None:
    dynamics = true_dynamics(PENDULUM)
    observations = jnp.array([[1.0, 0.0, 0.5], [0.0, 1.0, -2.0]])
    actions = jnp.array([[0.3], [-0.7]])
    said = dynamics.sample_elites(None, jax.random.key(0), observations, actions)
    state, out = PENDULUM.step(jax.random.key(0), PENDULUM.set_observation(observations), actions)
    np.testing.assert_array_equal(said.next_observations[0], state.observation)
    np.testing.assert_array_equal(said.rewards[0], out.reward)
    assert dynamics.members == 1 and said.rewards.shape == (1, 2)


def rows(count: int = 40) -> Transitions:
    generator = np.random.default_rng(0)
    s = generator.normal(size=(count, 2)).astype(np.float32)
    a = generator.uniform(-1, 1, (count, 2)).astype(np.float32)
    no = np.zeros(count, bool)
    return Transitions(s, a, np.zeros(count, np.float32), s + a, no, no)


@functools.cache
def trainer(method: ModelBased) -> Callable[[float], Any]:
    """Share of the truth -> critic after an epoch; compiled once."""
    config = EnsembleConfig(
        members=3, elites=2, hidden_dims=(8,), weight_decay=(1e-4,), holdout_rows=5, batch_size=16
    )
    model, asked = make_world_model(config, rows()), method.uncertainty()
    learned = learned_dynamics(
        model.fitter,
        2,
        termination=PLANE.termination,
        disagreement=None if asked is None else asked.of,
        noise=method.sampling(),
    )
    learner = bind(method.program(), blended_dynamics(learned, PLANE), 2, 2)
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}

    @jax.jit
    def critic(truth: jax.Array) -> Any:
        world = model.world(model.fitter.init(jax.random.key(1)))
        data = Imagination(to_device(rows()), Blend(world, truth), own, jnp.ones(()))
        return learner.update(learner.init(jax.random.key(2), data), data)[0].agent.critic

    return critic


BASE, MOPO = Base(**SMALL), Mopo(penalty=5.0, **SMALL)
MOBILE = Mobile(penalty=5.0, sample_noise="common", **SMALL)
DRAWS = Mobile(penalty=5.0, **SMALL)


@pytest.mark.parametrize(
    ("method", "vanishes"),
    [
        (MOPO, True),
        pytest.param(MOBILE, True, marks=pytest.mark.slow),
        pytest.param(DRAWS, False, marks=pytest.mark.slow),
    ],
)
def test_penalties_on_the_model_vanish_with_its_error(method: ModelBased, vanishes: bool) -> None:
    """At truth 1 MOPO and MOBILE are base, if its elites share their draws; at 0 they are not."""
    for truth, same in ((1.0, vanishes), (0.0, False)):
        ours, bases = (jax.tree.leaves(trainer(m)(truth)) for m in (method, BASE))
        gap = max(float(jnp.abs(a - b).max()) for a, b in zip(ours, bases, strict=True))
        assert (gap < 1e-6) is same, (method.name, truth, gap)


def test_next_value_replaces_what_the_target_bootstraps_from() -> None:
    agent = make_sac(AGENT, 2, 2)
    state = agent.init(jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, rows(6))
    batch = batch._replace(rewards=jnp.arange(6.0), terminations=jnp.array([False] * 5 + [True]))

    def oracle(next_observations: jax.Array, value: jax.Array) -> jax.Array:
        assert next_observations.shape == (6, 2) and value.shape == (6,)
        return jnp.full_like(value, 50.0)

    @functools.partial(jax.jit, static_argnums=0)
    def update(next_value: Any = None) -> Any:
        return agent.update(state, jax.random.key(1), batch, 0.0, next_value)

    _, metrics = update(oracle)
    expected = (15.0 + 5 * 0.99 * 50.0) / 6
    np.testing.assert_allclose(metrics["target_mean"], expected, rtol=1e-6)
    kept, _ = update(lambda s, value: value)
    plain, _ = update()
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)
