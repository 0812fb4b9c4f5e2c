"""IFQL: its losses by hand, and that it acts by the best of the flow's actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from helpers_data import normal_rows

from jaxrl_rollouts import draws
from jaxrl_rollouts.offline.agents import bc
from jaxrl_rollouts.offline.agents.ifql import IfqlConfig
from jaxrl_rollouts.offline.data import to_device
from jaxrl_rollouts.offline.method import Scaled

S, A, B = 3, 2, 16
KEY = jax.random.key(3)
BATCH = to_device(normal_rows(B, S, A))
CONFIG = IfqlConfig(
    hidden_dims=(8,), candidates=6, flow_steps=2, discount=0.9, tau=0.2, critic_lr=0.01
)


def begun(config: IfqlConfig = CONFIG) -> tuple[Any, Any]:
    agent = config.make(S, A)
    state = agent.init(KEY)
    return agent, state._replace(target_critic=jax.tree.map(lambda p: 2.0 * p, state.critic.net))


def test_it_acts_by_the_candidate_whose_least_critic_is_highest() -> None:
    agent, state = begun()
    seen = BATCH.observations
    found, _ = agent.policy(state.actor, KEY, seen, ())
    noise = draws.normal(KEY, (6, B, A))
    flow = Scaled(state.actor.flow, state.actor.scaler)
    tried = [np.asarray(bc.carried(agent.nets.flow, flow, seen, z)) for z in noise]
    lowest = np.stack([np.asarray(agent.q(state.critic, seen, a)).min(0) for a in tried])
    want = np.stack(tried)[lowest.argmax(0), np.arange(B)]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert len(set(lowest.argmax(0).tolist())) > 2
    agent, state = begun(replace(CONFIG, candidates=1))
    single, _ = agent.policy(state.actor, KEY, seen, ())
    cloned, _ = bc.flow_policy(agent.nets.flow, flow, KEY, seen, ())
    np.testing.assert_allclose(single, cloned, rtol=1e-5, atol=1e-6)


def test_a_step_is_its_formulas() -> None:
    agent, state = begun()
    nets, rows = agent.nets, BATCH
    after, metrics = jax.jit(agent.update)(state, KEY, rows)
    slow = state.critic._replace(net=state.target_critic)
    lowest = np.asarray(agent.q(slow, rows.observations, rows.actions)).min(0)
    now, following = (
        np.asarray(nets.value.apply(state.value, x))[:, 0]
        for x in (rows.observations, rows.next_observations)
    )
    gap = lowest - now
    want = (np.where(gap < 0, 0.1, 0.9) * np.square(gap)).mean()
    np.testing.assert_allclose(metrics["value_loss"], want, rtol=1e-4)
    target = np.asarray(rows.rewards) + 0.9 * (1 - np.asarray(rows.terminations)) * following
    values = np.asarray(agent.q(state.critic, rows.observations, rows.actions))
    np.testing.assert_allclose(metrics["critic_loss"], np.square(values - target).mean(), rtol=1e-4)
    cloning = bc.BcState(Scaled(state.actor.flow, state.actor.scaler), state.opt_flow)
    alone, _ = bc.flow_update(nets.flow, cloning, KEY, rows)
    for found, own in (
        (after.actor.flow, alone.actor.net),
        (
            after.target_critic,
            jax.tree.map(lambda q, s: 0.2 * q + 0.8 * s, after.critic.net, state.target_critic),
        ),
    ):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
