"""Probe problems whose values are known, so that a wrong number points at the part that is wrong.

The temperature is driven to zero, so values are those of the policy without an entropy bonus.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.loop import train
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import Transitions, sample_batch

ROWS, GAMMA = 64, 0.5
AGENT = make_sac(
    SacConfig(
        num_critics=2,
        eta=0.0,
        hidden=(32,),
        discount=GAMMA,
        tau=0.05,
        actor_lr=3e-3,
        critic_lr=3e-3,
        alpha_lr=0.1,
        target_entropy=-20.0,
    ),
    1,
    1,
)


def update(state: tuple, data: Transitions) -> tuple:
    def one(carry: Any, key: jax.Array) -> tuple:
        draw, learn = jax.random.split(key)
        return AGENT.update(carry, learn, sample_batch(data, draw, 32))

    agent, key = state
    now, key = jax.random.split(key)
    agent, metrics = jax.lax.scan(one, agent, jax.random.split(now, 100))
    return (agent, key), jax.tree.map(jnp.mean, metrics)


def init(key: jax.Array, data: Transitions) -> tuple:
    return AGENT.init(key), key


def learn(observations: Any, rewards: Any, following: Any, done: Any, cut: Any = False) -> tuple:
    """Train two seeds on uniformly random actions, of which `rewards` may be a function."""
    actions = np.random.default_rng(0).uniform(-1, 1, (ROWS, 1)).astype(np.float32)
    rewards = rewards(actions[:, 0]) if callable(rewards) else rewards
    spread = lambda x, dtype: np.broadcast_to(np.asarray(x, dtype), (ROWS,))  # noqa: E731
    data = Transitions(
        spread(observations, np.float32)[:, None],
        actions,
        spread(rewards, np.float32),
        spread(following, np.float32)[:, None],
        spread(done, bool),
        spread(cut, bool),
    )
    keys = jax.random.split(jax.random.key(0), 2)
    return train(update, init, keys, data, iterations=12, stage="probe").state[0], data


@jax.jit
def _greedy(actors: Any, s: jax.Array) -> jax.Array:
    return jax.vmap(lambda a: AGENT.greedy(a, jax.random.key(0), s, ())[0])(actors)


@jax.jit
def _values(critics: Any, s: jax.Array, a: jax.Array) -> jax.Array:
    return jax.vmap(lambda c, own: AGENT.q(c, s, own).mean(0))(critics, a)


def greedy(state: Any, observations: list) -> np.ndarray:
    """`[seeds, rows]`: the policy's own actions."""
    return np.asarray(_greedy(state.actor, jnp.array(observations)[:, None]))[..., 0]


def values(state: Any, observations: list, actions: Any = None) -> np.ndarray:
    """`[seeds, rows]`: the critics' mean at given actions, or at the policy's own."""
    s = jnp.array(observations)[:, None]
    a = greedy(state, observations) if actions is None else np.stack([actions] * 2)
    return np.asarray(_values(state.critic, s, jnp.asarray(a, jnp.float32)[..., None]))


ALTERNATING = np.arange(ROWS) % 2


def test_a_reward_that_ends_the_episode_is_its_own_value() -> None:
    state, data = learn(0.0, 1.0, 0.0, done=True)
    np.testing.assert_allclose(values(state, [0.0]), 1.0, atol=0.03)
    actions = data.actions[:, 0]
    np.testing.assert_allclose(values(state, [0.0] * ROWS, actions), 1.0, atol=0.05)


def test_a_truncation_does_not_end_the_value() -> None:
    state, _ = learn(0.0, 1.0, 0.0, done=False, cut=True)
    np.testing.assert_allclose(values(state, [0.0]), 1.0 / (1.0 - GAMMA), atol=0.06)


def test_both_endings_at_once_are_a_termination() -> None:
    state, _ = learn(0.0, 1.0, 0.0, done=True, cut=True)
    np.testing.assert_allclose(values(state, [0.0]), 1.0, atol=0.03)


def test_the_value_depends_on_the_observation() -> None:
    sign = 2.0 * ALTERNATING - 1.0
    state, _ = learn(sign, sign, sign, done=True)
    np.testing.assert_allclose(values(state, [-1.0, 1.0]), [[-1.0, 1.0]] * 2, atol=0.06)


def test_a_later_reward_is_discounted() -> None:
    """State 0 leads to state 1 without a reward; there the episode ends with reward 1."""
    state, _ = learn(ALTERNATING, ALTERNATING, 1.0, done=ALTERNATING)
    np.testing.assert_allclose(values(state, [0.0, 1.0]), [[GAMMA, 1.0]] * 2, atol=0.06)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_policy_finds_the_better_action(sign: float) -> None:
    state, _ = learn(0.0, lambda a: sign * a, 0.0, done=True)
    want = [[-0.8 * sign, 0.0, 0.8 * sign]] * 2
    np.testing.assert_allclose(values(state, [0.0] * 3, [-0.8, 0.0, 0.8]), want, atol=0.1)
    assert (sign * greedy(state, [0.0]) > 0.9).all()


def test_the_best_action_depends_on_the_state() -> None:
    sign = 2.0 * ALTERNATING - 1.0
    state, _ = learn(sign, lambda a: sign * a, sign, done=True)
    assert (greedy(state, [-1.0, 1.0]) * [-1, 1] > 0.9).all()
