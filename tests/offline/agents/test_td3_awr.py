"""TD3-AWR: ReBRAC where advantages do not count; its weight and its value by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers_data import normal_rows

from jaxrl_rollouts.offline.agents.rebrac import RebracConfig, with_next_actions
from jaxrl_rollouts.offline.agents.td3_awr import Td3AwrConfig
from jaxrl_rollouts.offline.data import to_device

S, A, B = 3, 2, 16
KEY = jax.random.key(3)
CONFIG = Td3AwrConfig(
    hidden_dims=(8,), actor_lr=0.01, critic_lr=0.01, value_lr=0.01, actor_bc_coef=0.4, expectile=0.8
)


def batch() -> Any:
    rows = normal_rows(B, S, A)
    return to_device(with_next_actions(rows._replace(truncations=~rows.terminations)))  # type: ignore[arg-type]


def begun(config: Td3AwrConfig) -> tuple[Any, Any]:
    agent = config.make(S, A)
    state = agent.init(KEY)
    grown = jax.tree.map(lambda p: 30.0 * p, state.critic.net)  # so that advantages differ
    return agent, state._replace(critic=state.critic._replace(net=grown))


def rebrac(config: Td3AwrConfig) -> RebracConfig:
    return RebracConfig(**{f.name: getattr(config, f.name) for f in fields(RebracConfig)})


def test_without_a_temperature_it_is_rebrac_bit_for_bit() -> None:
    config = replace(CONFIG, beta=0.0)
    (agent, state), parent = begun(config), rebrac(config).make(S, A)
    plain = parent.init(KEY)._replace(critic=state.critic)
    for actor in (False, True):
        step = jax.jit(lambda s, f=agent.update, a=actor: f(s, KEY, batch(), actor=a))
        other = jax.jit(lambda s, f=parent.update, a=actor: f(s, KEY, batch(), actor=a))
        (state, metrics), (plain, want) = step(state), other(plain)
        for name in plain._fields:
            for x, y in zip(
                jax.tree.leaves(getattr(state, name)),
                jax.tree.leaves(getattr(plain, name)),
                strict=True,
            ):
                np.testing.assert_array_equal(x, y)
        assert all(metrics[name] == value for name, value in want.items())


def test_imitation_is_weighted_by_the_advantage() -> None:
    agent, state = begun(replace(CONFIG, beta=2.0, exp_adv_max=3.0))
    rows = batch()
    after, metrics = agent.update(state, KEY, rows)
    seen = state.actor.scaler.normalise(rows.observations)
    value = np.asarray(agent.nets.value.apply(state.value, seen))[:, 0]
    lowest = np.asarray(agent.q(state.critic, rows.observations, rows.actions)).min(0)
    weight = np.minimum(np.exp(2.0 * (lowest - value)), 3.0)
    assert 0 < (weight == 3.0).sum() < B
    action, _ = agent.greedy(state.actor, KEY, rows.observations, ())
    far = np.square(np.asarray(action) - np.asarray(rows.actions)).sum(-1)
    np.testing.assert_allclose(metrics["imitation"], (weight * far).mean(), rtol=1e-4)
    own = np.asarray(agent.q(after.critic, rows.observations, action)).min(0)
    want = 0.4 * (weight * far).mean() - own.mean() / np.abs(own).mean()
    np.testing.assert_allclose(metrics["actor_loss"], want, rtol=1e-4)
    gap = np.asarray(agent.q(after.critic, rows.observations, rows.actions)).min(0) - value
    loss = (np.where(gap < 0, 0.2, 0.8) * np.square(gap)).mean()
    np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-4)
    assert not np.array_equal(after.value["Dense_0"]["kernel"], state.value["Dense_0"]["kernel"])


def test_where_values_are_constant_imitation_has_a_weight_of_one() -> None:
    """The expectile of a constant is that constant, so no action has an advantage."""
    agent, state = begun(replace(CONFIG, beta=5.0, expectile=0.5))
    nothing = jax.tree.map(jnp.zeros_like, (state.critic.net, state.value))
    for part, value in zip(nothing, (2.5, 2.5), strict=True):
        last = max(part, key=lambda name: (name.startswith("Dense"), name))
        part[last]["bias"] = jnp.full_like(part[last]["bias"], value)
    critic = state.critic._replace(net=nothing[0])
    rows = batch()
    np.testing.assert_allclose(agent.q(critic, rows.observations, rows.actions), 2.5)
    flat = state._replace(critic=critic, value=nothing[1])
    _, metrics = agent.update(flat, KEY, rows)
    action, _ = agent.greedy(state.actor, KEY, rows.observations, ())
    far = np.square(np.asarray(action) - np.asarray(rows.actions)).sum(-1)
    np.testing.assert_allclose(metrics["imitation"], far.mean(), rtol=1e-4)


def test_the_value_moves_with_the_policy_only() -> None:
    agent, state = begun(CONFIG)
    after, metrics = agent.update(state, KEY, batch(), actor=False)
    assert after.value is state.value and "value_loss" not in metrics
    assert agent.period == 2 and jnp.isfinite(metrics["critic_loss"])
