"""Probe problems with known answers for the agents that learn from transitions alone."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents import AGENTS as REGISTERED
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.agents.fql import FqlConfig
from jaxrl_rollouts.offline.agents.ifql import IfqlConfig
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.agents.td3_awr import Td3AwrConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, to_device

ROWS, GAMMA = 64, 0.5
FAST: dict[str, Any] = {
    "hidden_dims": (32,),
    "discount": GAMMA,
    "tau": 0.05,
    "actor_lr": 3e-3,
    "critic_lr": 3e-3,
}
# The temperature falls to zero: values are those of the policy without an entropy bonus.
SOFT = SacConfig(**FAST, num_critics=2, eta=0.0, alpha_lr=0.1, target_entropy=-20.0)
# Imitation is weak, so that the values decide; the probes' actions are uniformly random.
AGENTS = [
    SOFT,
    Td3BcConfig(**FAST, alpha=20.0, normalize_obs=False),
    RebracConfig(**FAST, actor_bc_coef=0.01, critic_bc_coef=0.0),
    IqlConfig(**FAST, value_lr=3e-3, expectile=0.9, beta=10.0),
    # Hardly conservative, and a temperature that falls to where the entropy costs nothing.
    CqlConfig(**FAST, weight=0.01, num_actions=4, initial_alpha=0.01),
    Td3AwrConfig(**FAST, value_lr=3e-3, actor_bc_coef=0.01, critic_bc_coef=0.0),
    FqlConfig(**FAST, alpha=0.1, flow_steps=3),
    IfqlConfig(**FAST, value_lr=3e-3, flow_steps=5),
]
every_agent = pytest.mark.parametrize("config", AGENTS, ids=REGISTERED.name_of)
ALTERNATING = np.arange(ROWS) % 2


@functools.cache
def built(config: Any) -> Any:
    return make_model_free(config, 1, 1, batch_size=32, per_iteration=100)


def learn(
    config: Any,
    observations: Any,
    rewards: Any,
    following: Any,
    done: Any,
    cut: Any = False,
    act: Any = lambda uniform: uniform,
) -> tuple[Any, Any]:
    """Train two seeds on uniformly random actions, of which `rewards` may be a function."""
    actions = act(np.random.default_rng(0).uniform(-1, 1, (ROWS, 1)).astype(np.float32))
    rewards = rewards(actions[:, 0]) if callable(rewards) else rewards

    def spread(x: Any, dtype: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(x, dtype), (ROWS,))

    data = Transitions(
        spread(observations, np.float32)[:, None],
        actions,
        spread(rewards, np.float32),
        spread(following, np.float32)[:, None],
        spread(done, bool),
        spread(cut, bool),
    )
    agent = built(config)
    dataset = to_device(getattr(config, "rows", lambda t: t)(data))
    keys = jax.random.split(jax.random.key(0), 2)
    trained = train_loop(agent.update, agent.init, keys, dataset, iterations=12, stage="probe")
    return trained.state.agent, data


def greedy(config: Any, state: Any, observations: list) -> np.ndarray:
    """`[seeds, rows]`: the policy's own actions."""
    s = jnp.array(observations)[:, None]
    act = built(config).agent.greedy
    return np.asarray(jax.vmap(lambda a: act(a, jax.random.key(0), s, ())[0])(state.actor))[..., 0]


def values(config: Any, state: Any, observations: list, actions: Any) -> np.ndarray:
    """`[seeds, rows]`: the critics' mean."""
    s, a = (jnp.array(x, jnp.float32)[:, None] for x in (observations, actions))
    return np.asarray(jax.vmap(lambda c: built(config).agent.q(c, s, a).mean(0))(state.critic))


@every_agent
def test_a_termination_ends_the_value_and_a_truncation_does_not(config: Any) -> None:
    """Every row is cut. State 0: reward 1 and a fall. State 1: reward 1, back to itself."""
    state, _ = learn(config, ALTERNATING, 1.0, ALTERNATING, done=ALTERNATING == 0, cut=True)
    found = values(config, state, [0.0, 1.0], [0.0, 0.0])
    np.testing.assert_allclose(found, [[1.0, 1.0 / (1.0 - GAMMA)]] * 2, atol=0.12)


@every_agent
def test_a_later_reward_is_discounted(config: Any) -> None:
    """State 0 leads to state 1 without a reward; there the episode ends with reward 1."""
    state, _ = learn(config, ALTERNATING, ALTERNATING, 1.0, done=ALTERNATING)
    found = values(config, state, [0.0, 1.0], [0.2, 0.2])
    np.testing.assert_allclose(found, [[GAMMA, 1.0]] * 2, atol=0.08)


@every_agent
def test_the_best_action_depends_on_the_state(config: Any) -> None:
    sign = 2.0 * ALTERNATING - 1.0
    state, _ = learn(config, sign, lambda a: sign * a, sign, done=True)
    found = values(config, state, [-1.0, 1.0, 1.0], [-0.5, 0.5, -0.5])
    np.testing.assert_allclose(found, [[0.5, 0.5, -0.5]] * 2, atol=0.12)
    assert (greedy(config, state, [-1.0, 1.0]) * [-1, 1] > 0.6).all()


def test_imitation_alone_is_the_mean_action() -> None:
    """With no weight on the value, TD3+BC and IQL do what the data do on average, as BC does."""
    for config in (
        BcConfig(hidden_dims=(32,), actor_lr=3e-3),
        Td3BcConfig(**FAST, alpha=0.0, normalize_obs=False),
        IqlConfig(**FAST, beta=0.0),
    ):
        state, data = learn(config, 0.0, lambda a: a, 0.0, done=True)
        mean = float(data.actions.mean())
        np.testing.assert_allclose(greedy(config, state, [0.0]), mean, atol=0.12)


def test_every_agent_is_probed() -> None:
    unprobed = {"bc", "edac", "leq", "planner"}
    assert {REGISTERED.name_of(config) for config in AGENTS} == set(REGISTERED) - unprobed


def test_cql_is_low_where_no_data_are() -> None:
    """Reward is the action; the data's are below zero, and the line goes on in either direction."""
    config = CqlConfig(**FAST, weight=2.0, num_actions=4, initial_alpha=0.01)
    state, _ = learn(config, 0.0, lambda a: a, 0.0, done=True, act=lambda a: 0.5 * a - 0.5)
    assert (greedy(config, state, [0.0]) < 0.2).all()
    inside, outside = values(config, state, [0.0, 0.0], [-0.1, 0.9]).T
    assert (inside > outside + 0.5).all()
