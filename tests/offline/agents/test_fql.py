"""FQL's losses by hand, and its limits: the flow's own actions, and the best of them."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import normal_rows

from jaxrl_rollouts import draws
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents import bc, fql
from jaxrl_rollouts.offline.agents.fql import FqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.recipes import recipe

S, A, B = 3, 2, 16
KEY = jax.random.key(3)
BATCH = to_device(normal_rows(B, S, A))
CONFIG = FqlConfig(hidden_dims=(8,), alpha=1.7, flow_steps=3, discount=0.9, tau=0.2, actor_lr=0.01)


def begun(config: FqlConfig) -> tuple[Any, Any]:
    """An agent and a state in which every network is another one."""
    agent = config.make(S, A)
    state = agent.init(KEY)
    wide = state.actor._replace(net=jax.tree.map(lambda p: 3.0 * p, state.actor.net))
    target = jax.tree.map(lambda p: 2.0 * p, state.critic.net)
    return agent, state._replace(actor=wide, target_critic=target)


@pytest.mark.parametrize("aggregate", ["mean", "min"])
def test_the_target_is_its_formula(aggregate: str) -> None:
    agent, state = begun(replace(CONFIG, aggregate=aggregate))
    rows = BATCH
    noise = draws.normal(KEY, (B, A))
    action = np.clip(fql.one_step(agent.nets, state.actor, rows.next_observations, noise), -1, 1)
    assert (np.abs(action) == 1).any(), "some actions are cut"
    slow = state.critic._replace(net=state.target_critic)
    values = np.asarray(agent.q(slow, rows.next_observations, jnp.asarray(action)))
    value = values.mean(0) if aggregate == "mean" else values.min(0)
    want = np.asarray(rows.rewards) + 0.9 * (1 - np.asarray(rows.terminations)) * value
    np.testing.assert_allclose(
        fql.bellman_target(agent.nets, state, KEY, rows), want, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("normalise", [False, True])
def test_the_policys_loss_is_its_formula(normalise: bool) -> None:
    agent, state = begun(replace(CONFIG, normalise_q=normalise))
    nets, rows = agent.nets, BATCH
    noise = draws.normal(KEY, (B, A))
    at = noise
    for k in range(3):  # Euler's steps
        time = jnp.full((B, 1), k / 3)
        angles = jnp.pi * time * jnp.arange(1, 5)
        waves = jnp.concatenate([time, jnp.sin(angles), jnp.cos(angles)], -1)
        at = at + nets.flow.actor.apply(state.flow, rows.observations, at, waves) / 3
    action = np.asarray(fql.one_step(nets, state.actor, rows.observations, noise))
    distance = np.square(action - np.clip(at, -1, 1)).mean()
    q = agent.q(state.critic, rows.observations, jnp.clip(action, -1, 1))
    value = np.asarray(q).mean(0)
    weight = 1 / np.abs(value).mean() if normalise else 1.0
    loss, more = fql.actor_loss(state.actor.net, nets, state, KEY, rows)
    np.testing.assert_allclose(loss, 1.7 * distance - weight * value.mean(), rtol=1e-4)
    np.testing.assert_allclose(more["distillation"], distance, rtol=1e-5)


def test_a_step_moves_each_part_by_the_others_before_it() -> None:
    """The flow as behaviour cloning's own step, critics towards targets from before."""
    agent, state = begun(CONFIG)
    after, metrics = jax.jit(agent.update)(state, KEY, BATCH)
    next_key, flow_key, actor_key = jax.random.split(KEY, 3)
    scaler = state.actor.scaler
    cloning = bc.BcState(fql.Scaled(state.flow, scaler), state.opt_flow)
    alone, _ = jax.jit(functools.partial(bc.flow_update, agent.nets.flow))(cloning, flow_key, BATCH)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6),
        after.flow,
        alone.actor.net,
    )
    loss, _ = fql.actor_loss(state.actor.net, agent.nets, state, actor_key, BATCH)
    np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-5)
    target = fql.bellman_target(agent.nets, state, next_key, BATCH)
    values = np.asarray(agent.q(state.critic, BATCH.observations, BATCH.actions))
    np.testing.assert_allclose(
        metrics["critic_loss"], np.square(values - np.asarray(target)).mean(), rtol=1e-4
    )
    jax.tree.map(
        lambda new, q, old: np.testing.assert_allclose(new, 0.2 * q + 0.8 * old, rtol=1e-5),
        after.target_critic,
        after.critic.net,
        state.target_critic,
    )


def test_of_a_constant_velocity_one_euler_step_is_ten() -> None:
    agent, state = begun(CONFIG)
    shift = jax.tree.map(jnp.zeros_like, state.flow)
    shift["Dense_1"]["bias"] = jnp.array([0.2, -0.3])
    flow, seen = fql.Scaled(shift, state.actor.scaler), BATCH.observations
    start = 0.3 * draws.normal(KEY, (B, A))
    for steps in (1, 10):
        nets = agent.nets.flow._replace(steps=steps)
        want = np.clip(np.asarray(start) + [0.2, -0.3], -1, 1)
        np.testing.assert_allclose(bc.carried(nets, flow, seen, start), want, atol=1e-6)


MODES = FqlConfig(hidden_dims=(32, 32), actor_lr=5e-3, critic_lr=3e-3, discount=0.5, tau=0.05)


@functools.cache
def drawn(alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Actions of the policy and of the flow at the same noise, `[256]` each: a bandit whose data
    act near -0.5 and 0.5 and whose reward is the action."""
    rng = np.random.default_rng(0)
    actions = rng.choice([-0.5, 0.5], (256, 1)) + rng.normal(0, 0.15, (256, 1))
    actions = np.clip(actions, -1, 1).astype(np.float32)
    state, flags = np.zeros((256, 1), np.float32), np.ones(256, bool)
    rows = Transitions(state, actions, actions[:, 0], state, flags, ~flags)
    learner = make_model_free(replace(MODES, alpha=alpha), 1, 1, batch_size=64, per_iteration=100)
    keys = jax.random.split(KEY, 1)
    trained = train_loop(
        learner.update, learner.init, keys, to_device(rows), iterations=15, stage="fql"
    )
    learned = jax.tree.map(lambda x: x[0], trained.state.agent)
    nets, seen = learner.agent.nets, jnp.zeros((256, 1))
    own, _ = learner.agent.policy(learned.actor, KEY, seen, ())
    flow = fql.Scaled(learned.flow, learned.actor.scaler)
    cloned = bc.carried(nets.flow, flow, seen, draws.normal(KEY, (256, 1)))
    return np.asarray(own)[:, 0], np.asarray(cloned)[:, 0]


def test_a_heavy_alpha_keeps_both_modes_and_a_light_one_the_better() -> None:
    own, cloned = drawn(100.0)
    assert np.abs(own - cloned).mean() < 0.15
    for mode in (-0.5, 0.5):
        near = np.abs(own - mode) < 0.3
        assert 0.3 < near.mean() < 0.65
    own, cloned = drawn(0.1)
    assert (own > 0.25).mean() > 0.95 and (cloned < -0.25).mean() > 0.3


def test_what_is_published_for_a_task() -> None:
    pen = recipe("fql", "paper", "pen-human-v1")
    assert (pen.alpha, pen.aggregate, pen.steps) == (10_000.0, "min", 500_000)
    giant = recipe("fql", "paper", "antmaze-giant-navigate-v0")
    assert (giant.alpha, giant.discount, giant.steps) == (10.0, 0.995, 1_000_000)
