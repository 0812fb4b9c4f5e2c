"""World models: what is learned of a linear system, and what is done with it in a rollout."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble import max_aleatoric, spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds.dynamics import WorldModelParams, learned_dynamics, predict
from jaxrl_rollouts.offline.worlds.fit import (
    FittedWorlds,
    Targets,
    fit_world_models,
    make_world_model,
)
from jaxrl_rollouts.rollouts import Members, rollout

CONFIG = EnsembleConfig(
    members=4,
    elites=3,
    hidden_dims=(24,),
    lr=1e-2,
    weight_decay=(0.0,),
    batch_size=64,
    max_epochs=25,
    holdout_rows=200,
)
UNITS = np.array([1.0, 100.0], np.float32)  # of the two observation entries
ACTIONS = jnp.zeros((6, 1))
MEMBER = jnp.array([0, 1, 2, 0, 1, 2], jnp.int32)


def true_change(s: Any, a: Any) -> Any:
    """A slow rotation, pushed by the action, in very different units."""
    z = s / UNITS
    push = np.array([0.3, -0.2], np.float32) * a
    return (z @ np.array([[0.0, -0.2], [0.2, 0.0]], np.float32) + push) * UNITS


def true_reward(s: Any, a: Any) -> Any:
    return 5.0 + s[:, 0] - a[:, 0]


@functools.cache
def dataset() -> Transitions:
    rng = np.random.default_rng(0)
    s = rng.normal(size=(2000, 2)).astype(np.float32) * UNITS
    a = rng.uniform(-1, 1, (2000, 1)).astype(np.float32)
    following = s + true_change(s, a) + 0.05 * UNITS * rng.normal(size=s.shape).astype(np.float32)
    no = np.zeros(2000, bool)
    return Transitions(s, a, true_reward(s, a).astype(np.float32), following, no, no)


@functools.cache
def fitted(targets: Targets = "change") -> FittedWorlds:
    return fit_world_models(CONFIG, dataset(), jax.random.key(0), seeds=2, targets=targets)


def world(seed: int = 0) -> WorldModelParams:
    return jax.tree.map(lambda x: x[seed], fitted().worlds)


def states(batch: int = 6) -> Any:
    return jax.random.normal(jax.random.key(5), (batch, 2)) * UNITS


def dynamics(**options: Any) -> Any:
    return learned_dynamics(fitted().model.fitter, 3, **({"termination": never} | options))


@pytest.mark.slow
def test_members_of_machines_stay_in_their_order() -> None:
    """A machine that is pushed the other way: each member is one of the two, as rollouts ask."""
    rows = dataset()
    groups = np.arange(2000) % 2
    signs = np.where(groups, -1.0, 1.0)[:, None].astype(np.float32)
    moved = rows.observations + true_change(rows.observations, signs * rows.actions)
    rows = rows._replace(next_observations=moved)
    config = dataclasses.replace(CONFIG, members=4, elites=4)
    fitted = fit_world_models(config, rows, jax.random.key(0), groups=groups)
    model = fitted.model
    at = jnp.zeros((1, 2)), jnp.ones((1, 1))
    predicted = predict(model.fitter, fitted.world(), *at).mean[:, 0, :2] / UNITS
    want = np.array([[0.3, -0.2], [-0.3, 0.2]] * 2)
    np.testing.assert_allclose(predicted, want, atol=0.06)
    with pytest.raises(ConfigError, match="each stands for its group"):
        fit_world_models(CONFIG, rows, jax.random.key(0), groups=groups)


def test_worlds_have_a_seed_axis_and_elites_only() -> None:
    worlds = fitted().worlds
    assert {leaf.shape[:2] for leaf in jax.tree.leaves(worlds.elites)} == {(2, 3)}
    assert worlds.inputs.mean.shape == (2, 3) and worlds.targets.std.shape == (2, 3)
    kernels = worlds.elites["MLP_0"]["Dense_0"]["kernel"]
    assert (kernels[0] != kernels[1]).any()
    state = fitted().trained.state
    order = np.argsort(state.best_loss[1])[:3]
    np.testing.assert_array_equal(kernels[1], state.best["MLP_0"]["Dense_0"]["kernel"][1][order])


def test_members_that_are_no_elites_are_consulted_and_never_rolled() -> None:
    state, here = fitted().trained.state, world()
    order = np.argsort(state.best_loss[0])
    assert CONFIG.members > 3 and len(order) == CONFIG.members
    for leaf, best in zip(
        jax.tree.leaves(here.others),
        jax.tree.leaves(jax.tree.map(lambda x: x[0], state.best)),
        strict=True,
    ):
        np.testing.assert_array_equal(leaf, best[order[3:]])
    fitter, s = fitted().model.fitter, states()
    every = predict(fitter, here, s, ACTIONS, "members")
    elites = predict(fitter, here, s, ACTIONS)
    assert every.mean.shape[0] == CONFIG.members
    np.testing.assert_allclose(every.mean[:3], elites.mean, rtol=1e-5)
    # One loud member that is no elite decides MOPO's uncertainty, and moves nothing.
    loud = jax.tree.map(lambda x: x + 3.0, here.others)
    both = [
        dynamics(disagreement=max_aleatoric, penalty_members="members").model.step(
            here._replace(others=others), jax.random.key(1), s, ACTIONS, MEMBER
        )
        for others in (here.others, loud)
    ]
    np.testing.assert_allclose(both[0][0], both[1][0], rtol=1e-5)
    np.testing.assert_allclose(both[0][1].uncertainty, max_aleatoric(*every), rtol=1e-4)
    assert (both[1][1].uncertainty > 1.5 * both[0][1].uncertainty).all()


def test_elites_can_share_their_draws() -> None:
    s, key = states(), jax.random.key(3)
    said = predict(fitted().model.fitter, world(), s, ACTIONS)
    drawn = {
        noise: dynamics(noise=noise).sample_elites(world(), key, s, ACTIONS).rewards
        for noise in ("own", "common")
    }
    z = {name: (x - said.mean[..., 2]) / said.std[..., 2] for name, x in drawn.items()}
    np.testing.assert_allclose(z["common"] - z["common"][:1], 0.0, atol=0.02)
    assert np.abs(z["own"][0] - z["own"][1]).max() > 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_linear_system_is_predicted_in_data_units(seed: int) -> None:
    s, a = states(300), jax.random.uniform(jax.random.key(1), (300, 1), minval=-1)
    said = predict(fitted().model.fitter, world(seed), s, a)
    assert said.mean.shape == said.std.shape == (3, 300, 3)
    want = np.concatenate([true_change(s, a), true_reward(s, a)[:, None]], -1)
    scale = np.array([1.0, 100.0, 1.0])
    assert (np.abs(said.mean - want) / scale).mean() < 0.05
    np.testing.assert_allclose(said.std[..., :2].mean((0, 1)) / UNITS, 0.05, rtol=0.4)


def test_scaled_targets_are_the_data_standardised() -> None:
    model = fitted().model
    targets = np.concatenate([model.data.targets, model.data.holdout_targets])
    np.testing.assert_allclose(targets.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(targets.std(0), 1.0, rtol=1e-4)
    inputs = np.concatenate([model.data.inputs, model.data.holdout_inputs])
    np.testing.assert_allclose(inputs.std(0), 1.0, rtol=1e-4)
    plain = make_world_model(CONFIG, dataset(), targets="raw")
    assert plain.targets.mean.tolist() == [0.0] * 3 and plain.targets.std.tolist() == [1.0] * 3
    back = model.targets.denormalise(model.data.targets)
    np.testing.assert_allclose(back, plain.data.targets, rtol=1e-4, atol=1e-3)


def test_targets_in_units_of_the_observations() -> None:
    """NEUBAY: the next observation, standardised as the input is, minus the input."""
    rows = dataset()
    model = make_world_model(CONFIG, rows, targets="observations")
    everything = {"inputs": [], "targets": []}
    for part in ("", "holdout_"):
        for name, found in everything.items():
            found.append(np.asarray(getattr(model.data, part + name)))
    x, y = (np.concatenate(found) for found in everything.values())
    order = np.argsort(x[:, 0])
    mean, std = rows.observations.mean(0), rows.observations.std(0)
    want = (rows.next_observations - mean) / std - (rows.observations - mean) / std
    back = np.argsort(rows.observations[:, 0])
    np.testing.assert_allclose(y[order][:, :2], want[back], rtol=1e-3, atol=1e-4)
    reward = (rows.rewards - rows.rewards.mean()) / rows.rewards.std()
    np.testing.assert_allclose(y[order][:, 2], reward[back], rtol=1e-3, atol=1e-4)


def test_disagreement_can_be_asked_for_in_the_units_of_the_targets() -> None:
    s, key = states(), jax.random.key(2)
    said = predict(fitted().model.fitter, world(), s, ACTIONS)
    want = spread_of_means(said.mean / world().targets.std, said.std)
    step = dynamics(disagreement=spread_of_means, normalised=True).model.step
    np.testing.assert_allclose(
        step(world(), key, s, ACTIONS, MEMBER)[1].uncertainty, want, rtol=1e-4
    )


def test_predictions_do_not_depend_on_the_scaling_of_targets() -> None:
    """One network, its targets read as scaled or (folded into the head) as they are."""
    here = world()
    head = here.elites["MLP_0"]
    folded = here.elites | {
        "MLP_0": head
        | {
            "Dense_1": {
                "kernel": head["Dense_1"]["kernel"] * here.targets.std,
                "bias": head["Dense_1"]["bias"] * here.targets.std + here.targets.mean,
            }
        }
    }
    plain = WorldModelParams(
        folded, here.inputs, make_world_model(CONFIG, dataset(), targets="raw").targets
    )
    fitter = fitted().model.fitter
    scaled, unscaled = (predict(fitter, w, states(), ACTIONS) for w in (here, plain))
    np.testing.assert_allclose(scaled.mean, unscaled.mean, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(scaled.std, unscaled.std * here.targets.std, rtol=1e-4)


def test_a_step_is_a_sample_of_the_rows_own_elite() -> None:
    """Asking one elite per row and asking all of them, for an uncertainty, give the same step."""
    s, key = states(), jax.random.key(2)
    said = predict(fitted().model.fitter, world(), s, ACTIONS)
    rows = jnp.arange(6)
    noise = jax.random.normal(key, (6, 3))
    sample = said.mean[MEMBER, rows] + said.std[MEMBER, rows] * noise
    for measure, want in ((None, np.zeros(6)), (max_aleatoric, max_aleatoric(*said))):
        step = dynamics(disagreement=measure).model.step
        following, out = jax.jit(step)(world(), key, s, ACTIONS, MEMBER)
        np.testing.assert_allclose(following, s + sample[:, :2], rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(out.reward, sample[:, 2], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(out.uncertainty, want, rtol=1e-4)
        assert not out.terminated.any() and not out.truncated.any()
    wide = dynamics(disagreement=spread_of_means).model.step(world(), key, 20 * s, ACTIONS, MEMBER)
    near = dynamics(disagreement=spread_of_means).model.step(world(), key, s, ACTIONS, MEMBER)
    assert wide[1].uncertainty.mean() > 3 * near[1].uncertainty.mean()


def test_a_termination_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="termination: found None"):
        dynamics(termination=None)


def test_known_reward_and_termination() -> None:
    known = dynamics(
        reward=lambda s, a, n: s[:, 0] * 10 + n[:, 1], termination=lambda s, a, n: n[:, 0] > 0
    )
    s, key = states(), jax.random.key(2)
    following, out = known.model.step(world(), key, s, ACTIONS, MEMBER)
    np.testing.assert_allclose(out.reward, 10 * s[:, 0] + following[:, 1], rtol=1e-5)
    np.testing.assert_array_equal(out.terminated, following[:, 0] > 0)
    assert out.terminated.any() and not out.terminated.all()
    said = known.sample_elites(world(), key, s, ACTIONS)
    np.testing.assert_allclose(
        said.rewards, 10 * s[:, 0] + said.next_observations[..., 1], rtol=1e-5
    )
    np.testing.assert_array_equal(said.terminations, said.next_observations[..., 0] > 0)


def test_every_elites_opinion() -> None:
    s, key = states(), jax.random.key(3)
    said = dynamics().sample_elites(world(), key, s, ACTIONS)
    assert said.next_observations.shape == (3, 6, 2) and said.rewards.shape == (3, 6)
    normal = predict(fitted().model.fitter, world(), s, ACTIONS)
    sample = normal.mean + normal.std * jax.random.normal(key, (3, 6, 3))
    np.testing.assert_allclose(said.next_observations, s + sample[..., :2], rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(said.rewards, sample[..., 2], rtol=1e-4, atol=1e-4)


def test_a_rollout_stays_near_the_true_one() -> None:
    def push(params: Any, key: Any, s: Any, memory: Any) -> tuple:
        return jnp.sin(s[:, :1]), memory

    start = states(64)
    members = Members(jnp.arange(3, dtype=jnp.int32))
    got = rollout(
        dynamics().model, world(), start, jax.random.key(0), horizon=5, policy=push, members=members
    )
    want = start
    for _ in range(5):
        want = want + true_change(want, jnp.sin(want[:, :1]))
    assert np.isfinite(got.steps.rewards).all() and got.valid.all()
    assert (np.abs(got.state - want) / UNITS).mean() < 0.2
