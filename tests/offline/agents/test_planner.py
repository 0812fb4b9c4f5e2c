"""The planner: its rows against loops, what a plan keeps, which branch it takes, how it acts."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import SamplerConfig, Unet
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents.bc import BcConfig, make_bc
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.plan_rows import mean_to_go, plan_rows, ranks
from jaxrl_rollouts.offline.agents.planner import (
    PlannerConfig,
    actions_between,
    make_planner,
    planner_parts,
    plans,
)
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.policy import Policy
from jaxrl_rollouts.offline.saved_policies import read_policy, save_policy

S, A = 2, 1
KEY = jax.random.key(0)
TINY = PlannerConfig(
    history=2,
    horizon=3,
    unet=Unet(features=16, blocks=1),
    sampler=SamplerConfig(3, churn=0.0),
    hidden_dims=(16,),
    actor_lr=3e-3,
    average=0.9,
)
TEACHER = replace(TINY, by="teacher")


def walk(count: int = 60, seed: int = 0) -> Transitions:
    """Episodes of 4 steps that terminate and of 8 that are cut, in turns."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(count + 1, S)).astype(np.float32).cumsum(0)
    place = np.arange(count) % 12
    following = states[1:].copy()
    actions = rng.uniform(-0.9, 0.9, (count, A)).astype(np.float32)
    rewards = rng.normal(size=count).astype(np.float32)
    return Transitions(states[:-1], actions, rewards, following, place == 3, place == 11)


def test_mean_to_go_is_the_discounted_mean_of_what_follows() -> None:
    data, g = walk(24), 0.8
    found = mean_to_go(data, g)
    ends = np.flatnonzero(data.terminations | data.truncations)
    for t in range(24):
        last = ends[ends >= t][0]
        powers = g ** np.arange(last - t + 1)
        total = 1.0 / (1.0 - g) if data.terminations[last] else powers.sum()
        np.testing.assert_allclose(found[t], powers @ data.rewards[t : last + 1] / total)
    unfinished = mean_to_go(data._replace(truncations=np.zeros(24, bool)), g)
    np.testing.assert_allclose(unfinished[-1], data.rewards[-1])


def test_ranks_are_even_and_equal_ones_share_theirs() -> None:
    np.testing.assert_allclose(ranks(np.array([3.0, 1.0, 2.0])), [1.0, -1.0, 0.0])
    np.testing.assert_allclose(ranks(np.array([0.0, 0.0, 0.0, 5.0])), [-1 / 3] * 3 + [1.0])
    np.testing.assert_array_equal(ranks(np.zeros(1)), [-1.0])


def test_windows_are_what_was_seen_and_what_came() -> None:
    data, history, horizon = walk(24), 3, 4
    rows = plan_rows(data, history, horizon, discount=0.9, most=1000)
    presents = [t for t in range(24) if t % 12 < 4 or t % 12 + horizon - 1 <= 11]
    assert len(rows.rewards) == len(presents)
    windows = rows.observations.reshape(-1, history + horizon, S)
    for window, action, t in zip(windows, rows.actions, presents, strict=True):
        start = t - t % 12 + (4 if t % 12 >= 4 else 0)
        last = start + (3 if t % 12 < 4 else 7)
        for i in range(history):
            np.testing.assert_array_equal(window[i], data.observations[max(t - 2 + i, start)])
        for i in range(horizon):
            ahead = data.next_observations[min(t + i, last)] - data.observations[t]
            np.testing.assert_allclose(window[history + i], ahead, atol=1e-6)
        np.testing.assert_array_equal(action, data.actions[t])
    some = plan_rows(data, history, horizon, discount=0.9, most=7)
    assert 4 <= len(some.rewards) <= 7 and some.rewards.max() == 1.0
    with pytest.raises(DataError, match="found at most 8 steps, expected 9 steps"):
        cut = data._replace(terminations=np.zeros(24, bool), truncations=np.arange(24) % 8 == 7)
        plan_rows(cut, 1, 9, discount=0.9, most=7)


@functools.cache
def built(config: PlannerConfig, updates: int = 20) -> Any:
    return make_model_free(config, S, A, batch_size=64, per_iteration=updates)


def learned(config: Any, data: Transitions, iterations: int = 1) -> Any:
    """Two seeds' states."""
    learner, keys = built(config, 100), jax.random.split(KEY, 2)
    rows = to_device(config.rows(data) if isinstance(config, PlannerConfig) else data)
    done = train_loop(
        learner.update, learner.init, keys, rows, iterations=iterations, stage="probe"
    )
    return done.state.agent


def first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


@functools.cache
def walked(config: PlannerConfig) -> Any:
    return first(learned(config, walk()).actor)


@pytest.mark.parametrize("config", [TINY, TEACHER, replace(TEACHER, guidance=2.0)])
def test_a_plan_begins_with_what_was_seen(config: PlannerConfig) -> None:
    parts, actor = planner_parts(config, S, A), walked(TINY)
    history = jax.random.normal(KEY, (5, 2, S))
    drawn = plans(parts, actor, KEY, history)
    assert drawn.shape == (5, 5, S) and np.isfinite(drawn).all()
    np.testing.assert_array_equal(drawn[:, :2], history)
    assert np.abs(drawn - plans(parts, actor, jax.random.key(1), history)).max() > 1e-3


def test_plans_are_drawn_when_it_is_their_turn_and_actions_follow_them() -> None:
    config = replace(TINY, replan=3)
    agent, parts, actor = make_planner(config, S, A), planner_parts(config, S, A), walked(TINY)
    memory, seen, drawn = agent.memory(4), [], None
    act = jax.jit(agent.greedy)
    for t in range(5):
        key, now = jax.random.key(t), jax.random.normal(jax.random.key(50 + t), (4, S))
        actions, memory = act(actor, key, now, memory)
        seen.append(now)
        if t in (0, 3):  # before an episode begins is its first state
            drawn = plans(parts, actor, key, jnp.stack([seen[max(t - 1, 0)], now], 1))[:, 2:]
        np.testing.assert_allclose(memory.plan, drawn, atol=1e-5)
        np.testing.assert_allclose(
            actions, actions_between(parts, actor, now, drawn[:, t % 3]), atol=1e-5
        )
    np.testing.assert_array_equal(memory.history, jnp.stack(seen[-2:], 1))


def test_the_inverse_model_finds_the_actions_of_a_linear_system() -> None:
    """`s' = s + B a + c`: one step tells the action."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(2000, S)).astype(np.float32)
    actions = rng.uniform(-0.8, 0.8, (2000, A)).astype(np.float32)
    following = states + 0.1 * actions @ np.array([[1.0, -2.0]], np.float32) + 0.05
    over = np.ones(2000, bool)
    config = replace(TEACHER, history=1, horizon=1, hidden_dims=(32,))
    agent = learned(config, Transitions(states, actions, states[:, 0], following, over, ~over), 4)
    parts = planner_parts(config, S, A)
    for seed in range(2):
        actor = jax.tree.map(lambda x, i=seed: x[i], agent.actor)
        found = actions_between(parts, actor, states[:200], following[:200])
        assert np.abs(found - actions[:200]).mean() < 0.04


def fork() -> Transitions:
    """From 0 by an action of .8 to 1, which pays, or by -.8 to -1, which does not; the end."""
    side = np.where(np.arange(400) % 2, 1.0, -1.0).astype(np.float32)
    noise = np.random.default_rng(0).normal(size=(400, 1)).astype(np.float32) * 0.05
    goal = np.concatenate([side[:, None] + noise, noise], 1)
    over = np.ones(400, bool)
    return Transitions(np.zeros((400, S), np.float32), 0.8 * side[:, None], side, goal, over, ~over)


@pytest.mark.slow
def test_who_asks_for_a_high_return_takes_the_good_branch() -> None:
    """Cloning takes the mean of both, which nobody did; so does, of plans, who asks for nothing."""
    config = replace(TINY, history=1, horizon=2, expectile=0.95, hidden_dims=(32,))
    agent, now = learned(config, fork(), 4), jnp.zeros((64, S))

    def chosen(config: PlannerConfig) -> np.ndarray:
        acting = make_planner(config, S, A)

        def one(actor: Any) -> jax.Array:
            return acting.greedy(actor, KEY, now, acting.memory(64))[0][:, 0]

        return np.asarray(jax.vmap(one)(agent.actor))

    teacher = replace(config, by="teacher", sampler=SamplerConfig(8, churn=0.0))
    for asks in (config, teacher):
        assert ((chosen(asks) > 0.5).mean(1) > 0.8).all()
    free = chosen(replace(teacher, guidance=0.0))
    assert ((free > 0.4).mean(1) > 0.2).all() and ((free < -0.4).mean(1) > 0.2).all()
    cloned = learned(BcConfig(hidden_dims=(32,), actor_lr=3e-3), fork(), 2)
    bc = make_bc(BcConfig(hidden_dims=(32,), actor_lr=3e-3), S, A)
    mean = np.asarray(jax.vmap(lambda a: bc.greedy(a, KEY, now, ())[0])(cloned.actor))
    np.testing.assert_allclose(mean, 0.0, atol=0.15)


def test_a_saved_planner_acts_with_its_memory(tmp_path: Path) -> None:
    """Step by step as its functions do; an episode that begins anew forgets."""
    actor, agent = walked(TINY), make_planner(TINY, S, A)
    actors = jax.tree.map(lambda x: x[None], actor)
    save_policy(tmp_path / "policy", TINY, actors, sizes=(S, A), method="planner")
    saved = read_policy(tmp_path / "policy")
    assert saved.agent is agent and not saved.remembers
    policy, seen, memory = (
        Policy(saved),
        np.random.default_rng(0).normal(size=(3, S)),
        agent.memory(1),
    )
    key = jax.random.key(0)
    for now in seen:
        want, memory = agent.greedy(actor, key, jnp.asarray(now, jnp.float32)[None], memory)
        np.testing.assert_allclose(policy(now), want[0], atol=1e-5)
    policy.reset()
    want, _ = agent.greedy(actor, key, jnp.asarray(seen[-1], jnp.float32)[None], agent.memory(1))
    np.testing.assert_allclose(policy(seen[-1]), want[0], atol=1e-5)
