"""CQL and behaviour cloning: each loss against an explicit version, in the order of updates."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers_data import normal_rows

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import BcConfig, make_bc
from jaxrl_rollouts.offline.agents.cql import (
    Cql,
    CqlConfig,
    CqlState,
    conservative_gap,
    make_cql,
    soft_maximum,
)
from jaxrl_rollouts.offline.agents.references import ReferencedTransitions
from jaxrl_rollouts.offline.agents.soft import q
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.scaler import Scaler

S, A, B, K, N = 3, 2, 6, 4, 2
CLIP = 3.825  # between the gaps of the rows
# Rates so large that it shows which of the old and the new parameters a loss has used.
CONFIG = CqlConfig(
    hidden_dims=(16,),
    critic_hidden_dims=(12,),
    discount=0.9,
    tau=0.2,
    actor_lr=0.1,
    critic_lr=0.05,
    alpha_lr=0.3,
    weight=3.0,
    num_actions=K,
    target_gap=2.0,
    clip_diff_min=CLIP,
    bc_steps=2,
)
SCALER = Scaler(jnp.array([0.5, -1.0, 0.0]), jnp.array([2.0, 0.5, 1.0]))
KEY = jax.random.key(3)


def some_batch(seed: int = 0) -> Transitions:
    rows, done = normal_rows(B, S, A, seed), np.arange(B) % 3 == 0
    rows.actions[0] = 1.0  # at the bound, as many of D4RL's
    return to_device(rows._replace(terminations=done, truncations=np.roll(done, 1)))


def seen_batch() -> Transitions:
    """With observations as the networks see them."""
    batch = some_batch()
    seen = {
        k: (getattr(batch, k) - SCALER.mean) / SCALER.std
        for k in ("observations", "next_observations")
    }
    return batch._replace(**seen)


@functools.cache
def updated(steps: int) -> tuple[CqlState, CqlState, dict]:
    """A state that has left its initial weights and counts `steps`, the next one, its metrics."""
    agent = make_cql(CONFIG, S, A)
    update = jax.jit(agent.update)
    before, _ = update(agent.init(jax.random.key(0), SCALER), jax.random.key(9), some_batch(1))
    fresh = agent.init(jax.random.key(1), SCALER)  # fresh moments: the next step shows the gradient
    moments = {name: getattr(fresh, name) for name in fresh._fields if name.startswith("opt_")}
    before = before._replace(**moments, steps=jnp.int32(steps))
    return before, *update(before, KEY, some_batch())


def dense(params: Any, index: int, x: Any) -> Any:
    return x @ params[f"Dense_{index}"]["kernel"] + params[f"Dense_{index}"]["bias"]


def explicit_draw(actor: Any, key: Any, s: Any, times: tuple = ()) -> tuple[Any, Any]:
    hidden = jnp.maximum(dense(actor, 0, s), 0)
    mean, std = dense(actor, 1, hidden), jnp.exp(jnp.clip(dense(actor, 2, hidden), -5, 2))
    u = mean + std * jax.random.normal(key, (*times, *mean.shape))
    density = jax.scipy.stats.norm.logpdf(u, mean, std) - jnp.log(1 - jnp.tanh(u) ** 2 + 1e-6)
    return jnp.tanh(u), density.sum(-1)


def all_q(critic: Any, s: Any, a: Any) -> Any:
    """`[N, ..., B]` of actions `[..., B, A]`."""
    joined = jnp.concatenate([jnp.broadcast_to(s, (*a.shape[:-1], S)), a], -1)
    each = [jax.tree.map(lambda p: p[i], critic) for i in range(N)]  # noqa: B023
    return jnp.stack([dense(c, 1, jnp.maximum(dense(c, 0, joined), 0))[..., 0] for c in each])


def gradient_of(moments: Any) -> Any:
    """Adam's first moment after one step is a tenth of the gradient."""
    return jax.tree.map(lambda m: 10.0 * m, moments[0].mu)


def assert_trees(left: Any, right: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4), left, right)


def test_critic_and_multiplier_losses() -> None:
    before, after, metrics = updated(2)
    batch, (_, target_key, draw_key) = seen_batch(), jax.random.split(KEY, 3)
    # The new actor, and no entropy in the target.
    following, _ = explicit_draw(after.actor.net, target_key, batch.next_observations)
    value = all_q(before.target_critic, batch.next_observations, following).min(0)
    target = batch.rewards + CONFIG.discount * jnp.where(batch.terminations, 0.0, value)
    np.testing.assert_allclose(metrics["target_mean"], target.mean(), rtol=1e-4)

    keys = jax.random.split(draw_key, 3)
    tried = [jax.random.uniform(keys[0], (K, B, A), minval=-1, maxval=1)]
    densities = [np.full((K, B), np.log(0.5**A))]
    for key, s in zip(keys[1:], (batch.observations, batch.next_observations), strict=True):
        drawn, density = explicit_draw(after.actor.net, key, s, (K,))
        tried.append(drawn)
        densities.append(density)
    candidates, log_mu = jnp.concatenate(tried), jnp.concatenate(densities)
    multiplier = float(np.exp(before.log_multiplier))
    assert multiplier != 1.0

    def row_gaps(critic: Any) -> Any:
        ratio = jnp.exp(all_q(critic, batch.observations, candidates)) / jnp.exp(log_mu)
        data = all_q(critic, batch.observations, batch.actions)
        return jnp.log(ratio.sum(1)) - data

    def gaps(critic: Any) -> Any:
        return jnp.maximum(row_gaps(critic), CLIP).mean(1)

    clipped = row_gaps(before.critic.net) < CLIP
    assert clipped.any() and not clipped.all()

    def loss(critic: Any) -> Any:
        data = all_q(critic, batch.observations, batch.actions)
        total = 0.0
        for i in range(N):
            total += ((data[i] - target) ** 2).mean()
            total += multiplier * CONFIG.weight * gaps(critic)[i]
        return total

    gap = gaps(before.critic.net).mean()
    np.testing.assert_allclose(metrics["conservative_gap"], gap, rtol=1e-4)
    data = all_q(before.critic.net, batch.observations, batch.actions)
    np.testing.assert_allclose(metrics["critic_loss"], ((data - target) ** 2).mean(), rtol=1e-4)
    assert_trees(gradient_of(after.opt_critic), jax.jit(jax.grad(loss))(before.critic.net))
    # Dual ascent on multiplier weight (gap - tau).
    want = -multiplier * CONFIG.weight * (gap - CONFIG.target_gap)
    np.testing.assert_allclose(gradient_of(after.opt_multiplier), want, rtol=1e-3)
    moved = float(after.log_multiplier - before.log_multiplier)
    np.testing.assert_allclose(moved, CONFIG.critic_lr * np.sign(-want), rtol=1e-3)
    before, after, _ = updated(2)
    want = jax.tree.map(
        lambda new, old: 0.2 * new + 0.8 * old, after.critic.net, before.target_critic
    )
    assert_trees(after.target_critic, want)


@pytest.mark.parametrize("imitates", [True, False])
def test_the_policy_imitates_first(imitates: bool) -> None:
    before, after, metrics = updated(1 if imitates else 2)
    assert int(after.steps) == int(before.steps) + 1
    batch, key = seen_batch(), jax.random.split(KEY, 3)[0]

    def loss(actor: Any) -> Any:
        action, density = explicit_draw(actor, key, batch.observations)
        value = all_q(before.critic.net, batch.observations, action).min(0)
        if imitates:
            hidden = jnp.maximum(dense(actor, 0, batch.observations), 0)
            log_std = jnp.clip(dense(actor, 2, hidden), -5, 2)
            u = jnp.arctanh(jnp.clip(batch.actions, -0.999, 0.999))
            normal = jax.scipy.stats.norm.logpdf(u, dense(actor, 1, hidden), jnp.exp(log_std))
            value = (normal - jnp.log(1 - jnp.tanh(u) ** 2 + 1e-6)).sum(-1)
        return (jnp.exp(after.log_alpha) * density - value).mean()

    assert_trees(gradient_of(after.opt_actor), jax.jit(jax.grad(loss))(before.actor.net))
    density = explicit_draw(before.actor.net, key, batch.observations)[1]
    np.testing.assert_allclose(metrics["entropy"], -density.mean(), rtol=1e-3)


@pytest.mark.parametrize("returns", [-np.inf, 0.02, 50.0])
def test_cal_ql_pushes_the_policys_actions_down_to_the_return_alone(returns: float) -> None:
    """Nakamoto et al. 2023: `max(Q(s, a), V(s))` for actions of the policy, not uniform ones."""
    agent = make_cql(replace(CONFIG, calibrated=True), S, A)
    nets, critic = agent.nets, agent.init(KEY).critic.net
    batch = ReferencedTransitions(*some_batch(), jnp.full(B, returns))
    actions = jax.random.uniform(KEY, (3 * K, B, A), minval=-1.0)
    densities = jax.random.normal(KEY, (3 * K, B))
    values = np.stack([q(nets, critic, batch.observations, a) for a in actions])
    values[K:] = np.maximum(values[K:], returns)
    want = jax.scipy.special.logsumexp(values - np.asarray(densities)[:, None], axis=0)
    found = soft_maximum(nets, critic, some_batch(), (actions, densities), batch.returns)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    plain = soft_maximum(make_cql(CONFIG, S, A).nets, critic, some_batch(), (actions, densities))
    assert bool((found == plain).all()) == (returns == -np.inf)
    if returns == 50.0:  # nothing of the policy's actions is left to push

        def pushed(critic: Any) -> jax.Array:
            drawn = actions, densities
            return soft_maximum(nets, critic, some_batch(), drawn, batch.returns).sum()

        slope = jax.grad(pushed)
        assert optax.tree.norm(slope(critic)) < 1e-3
    with pytest.raises(ConfigError, match="without returns to go"):
        conservative_gap(nets, critic, some_batch(), values[0], (actions, densities))
    gap = conservative_gap(nets, critic, batch, values[0], (actions, densities))  # type: ignore[arg-type]
    np.testing.assert_allclose(gap, np.maximum(want - values[0], CLIP).mean(1), rtol=1e-5)


def test_returns_to_go_end_with_each_episode_and_with_the_data() -> None:
    rows = normal_rows(5, S, A, 0)._replace(
        rewards=np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32),
        terminations=np.array([False, True, False, False, False]),
        truncations=np.array([False, False, False, False, False]),
    )
    found = Cql(discount=0.5, calibrated=True).rows(rows)
    np.testing.assert_allclose(found.returns, [2.0, 2.0, 3 + 0.5 * 6.5, 4 + 0.5 * 5, 5.0])
    assert found.truncations is rows.truncations and Cql().rows(rows) is rows


def test_behaviour_cloning_is_the_squared_error() -> None:
    agent = make_bc(BcConfig(hidden_dims=(16,), actor_lr=0.01), S, A)
    scaler, batch = SCALER, some_batch()
    before = agent.init(KEY, scaler)
    after, metrics = jax.jit(agent.update)(before, KEY, batch)

    def act(net: Any) -> Any:
        seen = (batch.observations - scaler.mean) / scaler.std
        return jnp.tanh(dense(net, 1, jnp.maximum(dense(net, 0, seen), 0)))

    own = np.asarray(act(before.actor.net), np.float64)
    want = np.square(own - np.asarray(batch.actions)).mean()
    np.testing.assert_allclose(metrics["actor_loss"], want, rtol=1e-4)
    slope = jax.grad(lambda net: jnp.square(act(net) - batch.actions).mean())(before.actor.net)
    assert_trees(gradient_of(after.opt_actor), slope)
    np.testing.assert_allclose(
        agent.greedy(before.actor, KEY, batch.observations, ())[0], own, rtol=1e-4, atol=1e-5
    )
    assert agent.q is None and agent.normalise


def test_policy_and_critics_see_normalised_observations() -> None:
    agent, batch, seen = make_cql(CONFIG, S, A), some_batch(), seen_batch()
    state = agent.init(KEY, SCALER)
    assert agent.normalise and not make_cql(CqlConfig(normalize_obs=False), S, A).normalise
    assert state.critic.net["Dense_0"]["kernel"].shape == (N, S + A, 12)
    assert state.actor.net["Dense_0"]["kernel"].shape == (S, 16)
    net = state.actor.net
    mean = dense(net, 1, jnp.maximum(dense(net, 0, seen.observations), 0))
    greedy = agent.greedy(state.actor, KEY, batch.observations, ())[0]
    np.testing.assert_allclose(greedy, jnp.tanh(mean), rtol=1e-4, atol=1e-6)
    drawn, density = agent.sample(state.actor, KEY, batch.observations)
    np.testing.assert_array_equal(drawn, agent.policy(state.actor, KEY, batch.observations, ())[0])
    want = explicit_draw(net, KEY, seen.observations)
    np.testing.assert_allclose(drawn, want[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(density, want[1], rtol=1e-3)
    values = agent.q(state.critic, batch.observations, batch.actions)
    want = all_q(state.critic.net, seen.observations, batch.actions)
    np.testing.assert_allclose(values, want, rtol=1e-4, atol=1e-6)
