"""MoBRAC is ReBRAC on real rows, MBPO without its coefficients, and lowers imagined targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers_learners import CADENCE, FAST, KNOWN, WORLD, A, S, imagination, rows

from jaxrl_rollouts import draws
from jaxrl_rollouts.offline.agents.rebrac import NextActionTransitions, RebracConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.mobrac import Mobrac
from jaxrl_rollouts.offline.methods.model_based import Given, Learning, ModelBased, bind
from jaxrl_rollouts.offline.worlds.dynamics import Rolled

KEY = jax.random.key(3)
AGENT = RebracConfig(**FAST, actor_bc_coef=0.3, critic_bc_coef=0.7, actor_norm=True)
METHOD = Mobrac(agent=AGENT, **CADENCE)
WORLDS = Rolled(KNOWN, WORLD, jnp.ones(()))


def an_epoch(method: ModelBased) -> Any:
    learner, data = bind(method.program(), KNOWN, S, A), imagination(method)
    return jax.jit(learner.update)(learner.init(KEY, data), data)[0]


def assert_same(found: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_its_coefficients_it_is_base_with_rebrac() -> None:
    agent = replace(AGENT, critic_bc_coef=0.0)
    ours = an_epoch(Mobrac(agent=agent, penalty=0.0, **CADENCE))
    base = an_epoch(Base(agent=agent, **CADENCE))
    assert_same((ours.agent, ours.imagined), (base.agent, base.imagined))
    moved = an_epoch(Mobrac(agent=agent, penalty=2.0, **CADENCE))
    assert not np.array_equal(moved.imagined.rows.rewards, base.imagined.rows.rewards)


def test_on_real_rows_alone_it_is_rebrac() -> None:
    agent = AGENT.make(S, A)
    state, real = agent.init(KEY), to_device(METHOD.real_rows(rows()))
    assert isinstance(real, NextActionTransitions)
    none = jax.tree.map(lambda x: x[:0], to_device(rows()))
    given = Given(agent, KEY, real, none, WORLDS)
    ours = jax.jit(lambda s: METHOD.learn(Learning(s), given))(state)
    rebrac = jax.jit(agent.update)(state, KEY, real)
    assert_same((ours[0].agent, ours[1]), rebrac)


def test_the_target_compares_with_the_policys_own_action_on_imagined_rows() -> None:
    """Against numpy; the target policy is another one and its noise is known."""
    agent = AGENT.make(S, A)
    state = agent.init(KEY)
    state = state._replace(target_actor=jax.tree.map(lambda p: 3.0 * p + 0.1, state.target_actor))
    real, imagined = to_device(METHOD.real_rows(rows())), to_device(rows())
    real = jax.tree.map(lambda x: x[:12], real)
    imagined = jax.tree.map(lambda x: x[20:30], imagined)
    _, metrics = METHOD.learn(Learning(state), Given(agent, KEY, real, imagined, WORLDS))
    after = jnp.concatenate([real.next_observations, imagined.next_observations])
    slow, own = (
        np.asarray(agent.greedy(state.actor._replace(net=net), KEY, after, ())[0])
        for net in (state.target_actor, state.actor.net)
    )
    noise = np.clip(0.2 * draws.normal(KEY, slow.shape), -0.5, 0.5)
    action = np.clip(slow + noise, -1, 1)
    follows = np.concatenate([np.asarray(real.next_actions), own[12:]])
    known = np.concatenate([np.asarray(real.next_known), np.ones(10)])
    target = state.critic._replace(net=state.target_critic)
    value = np.asarray(agent.q(target, after, jnp.asarray(action))).min(0)
    value -= 0.7 * known * np.square(action - follows).sum(-1)
    done = np.concatenate([real.terminations, imagined.terminations])
    reward = np.concatenate([real.rewards, imagined.rewards])
    want = (reward + AGENT.discount * (1 - done) * value).mean()
    np.testing.assert_allclose(metrics["target_mean"], want, rtol=1e-4)


def test_the_policy_is_normalised_where_asked() -> None:
    nets = [
        replace(AGENT, actor_norm=norm).make(S, A).init(KEY).actor.net for norm in (True, False)
    ]
    assert "LayerNorm_0" in nets[0] and "LayerNorm_0" not in nets[1]


def test_rows_have_next_actions_where_they_are_penalised() -> None:
    assert isinstance(METHOD.real_rows(rows()), NextActionTransitions)
    free = Mobrac(agent=replace(AGENT, critic_bc_coef=0.0))
    assert isinstance(free.real_rows(rows()), Transitions)
