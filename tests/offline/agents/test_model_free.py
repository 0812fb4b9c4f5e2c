"""Agents straight on a dataset: what they need of it, seeds side by side, settings."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from helpers_data import normal_rows

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents import AGENTS
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig, make_rebrac, with_next_actions
from jaxrl_rollouts.offline.agents.sac import EdacConfig, SacConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig, make_td3_bc
from jaxrl_rollouts.offline.data import Transitions, sample_batch, to_device
from jaxrl_rollouts.offline.method import observation_scaler

S, A, B = 3, 2, 16
KEY = jax.random.key(3)
SMALL: dict[str, Any] = {"hidden_dims": (16,), "discount": 0.9, "tau": 0.2}
BC = Td3BcConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, alpha=1.7)
BRAC = RebracConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, actor_bc_coef=0.3, critic_bc_coef=0.7)
IQL = IqlConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, value_lr=0.01, expectile=0.8)


def test_next_actions_stay_in_their_episode() -> None:
    data = normal_rows(8, S, A, 0)._replace(
        terminations=np.arange(8) == 2, truncations=np.arange(8) == 5
    )
    found = with_next_actions(data)
    np.testing.assert_array_equal(found.next_known, [1, 1, 0, 1, 1, 0, 1, 0])
    for i in (0, 1, 3, 4, 6):
        np.testing.assert_array_equal(found.next_actions[i], data.actions[i + 1])
    assert (found.next_actions[[2, 5, 7]] == 0).all()
    np.testing.assert_array_equal(found.rewards, data.rewards)


def test_rebrac_asks_for_next_actions_unless_it_does_not_need_them() -> None:
    batch = to_device(normal_rows(B, S, A, 0))
    agent = make_rebrac(BRAC, S, A)
    with pytest.raises(ConfigError, match="with_next_actions"):
        agent.update(agent.init(KEY), KEY, batch)
    free = RebracConfig(**SMALL, critic_bc_coef=0.0)
    assert isinstance(free.rows(normal_rows(B, S, A, 0)), Transitions)
    agent = make_rebrac(free, S, A)
    assert np.isfinite(agent.update(agent.init(KEY), KEY, batch)[1]["target_mean"])


def test_normalisation_comes_from_the_dataset() -> None:
    built = make_model_free(BC, S, A)
    assert make_model_free(BC, S, A) is built
    data = to_device(normal_rows(64, S, A, 0))
    scaler = built.init(KEY, data).agent.actor.scaler
    np.testing.assert_allclose(scaler.mean, data.observations.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaler.std, data.observations.std(0) + 1e-3, rtol=1e-5)
    assert (
        observation_scaler(np.ones((4, 2), np.float32)).std > 0.5
    ).all()  # a constant column stays


def test_settings_of_no_agent_are_named() -> None:
    with pytest.raises(
        ConfigError, match="agent: found 'object', expected .* settings of bc, sac, "
    ):
        AGENTS.name_of(object())


def test_iterations_hold_whole_periods() -> None:
    with pytest.raises(ConfigError, match="per_iteration: found 5"):
        make_model_free(BC, S, A, per_iteration=5)
    known = {"bc", "sac", "edac", "cql", "td3_bc", "iql", "rebrac"}
    known |= {"td3_awr", "fql", "ifql", "leq", "planner"}
    assert set(AGENTS) == known
    assert (AGENTS.name_of(SacConfig()), AGENTS.name_of(EdacConfig())) == ("sac", "edac")
    assert (SacConfig().num_critics, SacConfig().eta) == (2, 0.0)
    assert (EdacConfig().num_critics, EdacConfig().eta) == (10, 1.0)
    assert make_td3_bc(BC, S, A) is BC.make(S, A)


def test_a_rate_falls_to_zero_over_the_steps_of_the_training() -> None:
    """Half-way along the cosine it is half the rate; the length is no setting of the agent."""
    falling = replace(IQL, cosine=True)
    assert make_model_free(falling, S, A, steps=8) is not make_model_free(falling, S, A, steps=9)
    constant = replace(IQL, cosine=False)
    assert make_model_free(constant, S, A, steps=8) is make_model_free(constant, S, A, steps=9)
    batch, moved = to_device(normal_rows(B, S, A, 0)), {}
    for steps in (8, None):
        agent = falling.make(S, A, steps)
        state, change = agent.init(KEY), []
        update = jax.jit(agent.update)
        for _ in range(8):
            after, _ = update(state, KEY, batch)
            difference = jax.tree.map(lambda a, b: np.abs(a - b).max(), after.actor, state.actor)
            change.append(max(float(x) for x in jax.tree.leaves(difference)))
            state = after
        moved[steps] = np.array(change)
    shares = 0.5 * (1 + np.cos(np.pi * np.arange(8) / 8))
    np.testing.assert_allclose(moved[8][0], moved[None][0], rtol=1e-5)
    assert moved[8][7] < 0.2 * moved[None][7] and shares[7] < 0.05


@pytest.mark.parametrize("unroll", [3, 100])
def test_an_unrolled_loop_takes_the_same_steps(unroll: int) -> None:
    """On the rows that a draw in every step takes: `sample_batch` of the step's key."""
    data = to_device(normal_rows(64, S, A, 0))
    sizes = {"batch_size": 8, "per_iteration": 10}

    def in_the_loop(rows: Transitions, key: jax.Array, batch: int) -> Transitions:
        return sample_batch(rows, key, batch)

    plain = make_model_free(BC, S, A, **sizes, draw=in_the_loop)
    unrolled = make_model_free(BC, S, A, **sizes, unroll=unroll)
    (state, found), (other, metrics) = (
        jax.jit(learner.update)(plain.init(KEY, data), data) for learner in (plain, unrolled)
    )
    np.testing.assert_array_equal(*map(jax.random.key_data, (state.key, other.key)))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, (state.agent, found), (other.agent, metrics))
