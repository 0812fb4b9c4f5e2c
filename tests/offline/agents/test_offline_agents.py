"""TD3+BC, ReBRAC and IQL: each loss against plain numpy, the order of the updates, the guards."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import normal_rows

from jaxrl_rollouts.offline.agents import AGENTS
from jaxrl_rollouts.offline.agents.iql import IqlConfig, expectile_loss, make_iql, normal_log_prob
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.method import Agent
from jaxrl_rollouts.scaler import Scaler

S, A, B, GAMMA = 3, 2, 16, 0.9
KEY = jax.random.key(3)
SMALL: dict[str, Any] = {"hidden_dims": (16,), "discount": GAMMA, "tau": 0.2}
BC = Td3BcConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, alpha=1.7)
BRAC = RebracConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, actor_bc_coef=0.3, critic_bc_coef=0.7)
IQL = IqlConfig(**SMALL, actor_lr=0.01, critic_lr=0.01, value_lr=0.01, expectile=0.8)
SCALER = Scaler(jnp.array([0.5, -1.0, 0.0]), jnp.array([2.0, 0.5, 1.0]))


def dense(params: Any, index: int, x: np.ndarray) -> np.ndarray:
    layer = params[f"Dense_{index}"]
    return x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])


def scaled(x: Any) -> np.ndarray:
    return (np.asarray(x, np.float64) - SCALER.mean) / SCALER.std


def act(params: Any, s: Any) -> np.ndarray:
    return np.tanh(dense(params, 1, np.maximum(dense(params, 0, scaled(s)), 0)))


def all_q(params: Any, s: Any, a: Any, *, norm: bool = False) -> np.ndarray:
    """`[2, B]`."""
    found = []
    for i in range(2):
        own = jax.tree.map(lambda p: p[i], params)  # noqa: B023
        h = np.maximum(dense(own, 0, np.concatenate([scaled(s), np.asarray(a)], 1)), 0)
        found.append(dense(own, 1, layer_normed(own, h) if norm else h)[:, 0])
    return np.stack(found)


def layer_normed(params: Any, h: np.ndarray) -> np.ndarray:
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    return h * params["LayerNorm_0"]["scale"] + params["LayerNorm_0"]["bias"]


@functools.cache
def updated(config: Any, actor: bool = True) -> tuple[Agent, Any, Any, dict, Any]:
    """A state that has left its initial weights, the next one, its metrics and its batch."""
    agent = config.make(S, A)
    seen = getattr(config, "rows", lambda transitions: transitions)
    first, batch = (jax.tree.map(jnp.asarray, seen(normal_rows(B, S, A, i))) for i in (1, 0))
    delayed = agent.period > 1
    update = jax.jit(agent.update, static_argnames=("actor",) if delayed else ())
    state = agent.init(jax.random.key(0), SCALER)
    for i in range(3):
        state, _ = update(state, jax.random.key(i), first)
    after, metrics = update(state, KEY, batch, **({"actor": actor} if delayed else {}))
    return agent, state, after, metrics, batch


def td3_target(config: Any, before: Any, batch: Any, norm: bool) -> np.ndarray:
    noise = 0.2 * np.asarray(jax.random.normal(KEY, (B, A)), np.float64)
    following = act(before.target_actor, batch.next_observations) + np.clip(noise, -0.5, 0.5)
    following = np.clip(following, -1, 1)
    value = all_q(before.target_critic, batch.next_observations, following, norm=norm).min(0)
    if norm:
        distance = ((following - np.asarray(batch.next_actions)) ** 2).sum(1)
        value = value - 0.7 * np.where(batch.next_known, distance, 0.0)
    return np.asarray(batch.rewards) + GAMMA * np.where(batch.terminations, 0.0, value)


@pytest.mark.parametrize("config", [BC, BRAC], ids=AGENTS.name_of)
def test_td3_losses(config: Any) -> None:
    agent, before, after, metrics, batch = updated(config)
    norm = config is BRAC
    target = td3_target(config, before, batch, norm)
    np.testing.assert_allclose(metrics["target_mean"], target.mean(), rtol=1e-4)
    q = all_q(before.critic.net, batch.observations, batch.actions, norm=norm)
    np.testing.assert_allclose(
        agent.q(before.critic, batch.observations, batch.actions), q, rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(metrics["critic_loss"], ((q - target) ** 2).mean(), rtol=1e-4)
    # The actor's loss is that of the old actor under the new critics.
    actions = act(before.actor.net, batch.observations)
    own = all_q(after.critic.net, batch.observations, actions, norm=norm)
    square = (actions - np.asarray(batch.actions)) ** 2
    if config is BC:
        want = square.mean() - 1.7 / np.abs(own[0]).mean() * own[0].mean()
    else:
        lowest = own.min(0)
        want = (0.3 * square.sum(1) - lowest / np.abs(lowest).mean()).mean()
    np.testing.assert_allclose(metrics["actor_loss"], want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("config", [BC, BRAC], ids=AGENTS.name_of)
def test_targets_and_actor_wait_for_their_turn(config: Any) -> None:
    _, before, after, metrics, _ = updated(config, actor=False)
    jax.tree.map(
        np.testing.assert_array_equal,
        (before.actor, before.target_actor, before.target_critic, before.opt_actor),
        (after.actor, after.target_actor, after.target_critic, after.opt_actor),
    )
    assert "actor_loss" not in metrics
    kernels = [s.critic.net["Dense_0"]["kernel"] for s in (before, after)]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-3
    _, before, after, _, _ = updated(config)
    for name, new in (("target_actor", after.actor.net), ("target_critic", after.critic.net)):
        jax.tree.map(
            lambda t, n, o: np.testing.assert_allclose(t, 0.2 * n + 0.8 * o, rtol=1e-4, atol=1e-6),
            getattr(after, name),
            new,
            getattr(before, name),
        )


def test_the_weight_of_the_value_has_no_gradient() -> None:
    """TD3+BC with alpha and no imitation to do: scaling Q cannot matter."""
    agent, before, after, _, batch = updated(BC)
    wide = jax.tree.map(lambda x: x, after.critic.net)

    def slope(factor: float) -> Any:
        def loss(net: Any) -> jax.Array:
            actions = agent.greedy(before.actor._replace(net=net), KEY, batch.observations, ())[0]
            q = factor * agent.q(after.critic._replace(net=wide), batch.observations, actions)[0]
            weight = 1.7 / jax.lax.stop_gradient(jnp.abs(q).mean())
            return jnp.square(actions - batch.actions).mean() - weight * q.mean()

        return jax.grad(loss)(before.actor.net)

    want = slope(1.0)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), want, slope(50.0)
    )
    # Adam's first moment is what the update has seen: m' = 0.9 m + 0.1 g.
    moments = [s.opt_actor[0].mu for s in (before, after)]
    jax.tree.map(
        lambda m, n, g: np.testing.assert_allclose(10 * (n - 0.9 * m), g, rtol=1e-2, atol=1e-4),
        *moments,
        want,
    )


@pytest.mark.parametrize(("norm", "rate"), [(False, 0.0), (True, 0.0), (False, 0.25)])
def test_iql_losses_in_their_order(norm: bool, rate: float) -> None:
    config = replace(IQL, critic_norm=norm, dropout_rate=rate)
    _, before, after, metrics, batch = updated(config)

    def value(params: Any, s: Any) -> np.ndarray:
        h = np.maximum(dense(params, 0, scaled(s)), 0)
        return dense(params, 1, layer_normed(params, h) if norm else h)[:, 0]

    lowest = all_q(before.target_critic, batch.observations, batch.actions, norm=norm).min(0)
    u = lowest - value(before.value, batch.observations)
    want = (np.abs(0.8 - (u < 0)) * u**2).mean()
    np.testing.assert_allclose(metrics["value_loss"], want, rtol=1e-4)
    advantage = lowest - value(after.value, batch.observations)  # the new value
    weight = np.minimum(np.exp(3.0 * advantage), 100.0)
    np.testing.assert_allclose(metrics["weight"], weight.mean(), rtol=1e-3)
    mlp, log_std = before.actor.net["MLP_0"], np.asarray(before.actor.net["log_std"])
    hidden = np.maximum(dense(mlp, 0, scaled(batch.observations)), 0)
    (key,) = jax.random.split(KEY, 1)
    kept = np.asarray(jax.random.uniform(key, hidden.shape)) >= rate
    assert kept.all() == (rate == 0)
    mean = np.tanh(dense(mlp, 1, np.where(kept, hidden / (1 - rate), 0)))
    scaled_square = ((np.asarray(batch.actions) - mean) / np.exp(log_std)) ** 2
    log_prob = (-0.5 * scaled_square - log_std - 0.5 * np.log(2 * np.pi)).sum(1)
    np.testing.assert_allclose(metrics["actor_loss"], -(weight * log_prob).mean(), rtol=1e-3)
    following = value(after.value, batch.next_observations)
    target = np.asarray(batch.rewards) + GAMMA * np.where(batch.terminations, 0, following)
    q = all_q(before.critic.net, batch.observations, batch.actions, norm=norm)
    np.testing.assert_allclose(metrics["critic_loss"], ((q - target) ** 2).mean(), rtol=1e-3)
    jax.tree.map(
        lambda t, n, o: np.testing.assert_allclose(t, 0.2 * n + 0.8 * o, rtol=1e-4, atol=1e-6),
        after.target_critic,
        after.critic.net,
        before.target_critic,
    )


def test_expectile_and_density() -> None:
    u = np.array([-2.0, 0.0, 3.0])
    np.testing.assert_allclose(expectile_loss(jnp.asarray(u), 0.9), [0.4, 0.0, 8.1], rtol=1e-5)
    x, mean, std = (np.random.default_rng(i).uniform(0.1, 1, (4, 2)) for i in range(3))
    want = jax.scipy.stats.norm.logpdf(x, mean, std).sum(-1)
    np.testing.assert_allclose(normal_log_prob(x, mean, jnp.asarray(std)), want, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_dropout_is_the_actors_while_it_learns(rate: float) -> None:
    """Critics, and a policy that acts, are the same as without to the bit."""
    agent, before, after, _, batch = updated(replace(IQL, dropout_rate=rate))
    _, plain, _, _, _ = updated(IQL)
    for name in ("critic", "value", "target_critic"):
        jax.tree.map(np.testing.assert_array_equal, getattr(before, name), getattr(plain, name))
    other, _ = jax.jit(agent.update)(before, jax.random.key(99), batch)
    equal = jax.tree.map(lambda a, b: bool((a == b).all()), after.actor, other.actor)
    assert all(jax.tree.leaves(equal)) == (rate == 0)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), before.actor, plain.actor)
    assert all(jax.tree.leaves(same)) == (rate == 0)
    mlp = before.actor.net["MLP_0"]
    mean = np.tanh(dense(mlp, 1, np.maximum(dense(mlp, 0, scaled(batch.observations)), 0)))
    acted = agent.greedy(before.actor, KEY, batch.observations, ())[0]
    np.testing.assert_allclose(acted, mean, rtol=1e-4, atol=1e-6)


def test_great_advantages_are_clipped_and_stay_finite() -> None:
    config = IqlConfig(**SMALL, beta=1e6)
    agent = make_iql(config, S, A)
    state, metrics = jax.jit(agent.update)(
        agent.init(KEY), KEY, jax.tree.map(jnp.asarray, normal_rows(B, S, A, 0))
    )
    assert 0 < metrics["weight"] <= 100.001
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("config", [BC, BRAC, IQL], ids=AGENTS.name_of)
def test_policies_take_raw_observations(config: Any) -> None:
    agent, _, after, _, batch = updated(config)
    s = batch.observations
    best, memory = agent.greedy(after.actor, KEY, s, "memory")
    assert memory == "memory" and best.shape == (B, A)
    mean, std = agent.gaussian(after.actor, s)
    np.testing.assert_allclose(mean, best, rtol=1e-5)
    plain = after.actor._replace(scaler=Scaler(jnp.zeros(S), jnp.ones(S)))
    normalised = SCALER.normalise(s)
    np.testing.assert_allclose(
        agent.greedy(plain, KEY, normalised, ())[0], best, rtol=1e-4, atol=1e-5
    )
    drawn, _ = agent.policy(after.actor, KEY, s, ())
    assert (np.abs(drawn) <= 1).all()
    if config is IQL:
        noise = jax.random.normal(KEY, (B, A))
        np.testing.assert_allclose(drawn, np.clip(mean + std * noise, -1, 1), rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(drawn, best)
        np.testing.assert_array_equal(std, np.ones((B, A)))
