"""SAC-N/EDAC: each loss against an explicit version, and the order of the updates."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import normal_rows
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.actors import LOG_STD_RANGE
from jaxrl_rollouts.offline.agents.sac import (
    SacConfig,
    SacState,
    diversity_loss,
    make_sac,
)
from jaxrl_rollouts.offline.agents.soft import climbed, min_q, soft_value
from jaxrl_rollouts.offline.data import Transitions, to_device

S, A, B, N = 3, 2, 4, 3
# Rates so large that it shows which of the old and the new parameters a loss has used.
CONFIG = SacConfig(
    num_critics=N,
    eta=0.7,
    hidden_dims=(16, 16),
    discount=0.9,
    tau=0.2,
    actor_lr=0.1,
    critic_lr=0.05,
    alpha_lr=0.3,
)
KEY = jax.random.key(3)


def some_batch(seed: int = 0) -> Transitions:
    done = np.array([True, False, False, True])
    rows = normal_rows(B, S, A, seed)._replace(terminations=done, truncations=np.roll(done, 1))
    return to_device(rows)


@functools.cache
def updated(eta: float = 0.7, penalty: float = 0.0) -> tuple[Any, SacState, SacState, dict]:
    agent = make_sac(replace(CONFIG, eta=eta), S, A)
    before = agent.init(jax.random.key(0))
    # An update first: target critics and temperature leave their special initial values.
    update = jax.jit(agent.update)
    before, _ = update(before, jax.random.key(9), some_batch(1), jnp.zeros((B,)))
    fresh = agent.init(jax.random.key(1))  # fresh moments: the next step shows the gradient
    before = before._replace(
        opt_actor=fresh.opt_actor, opt_critic=fresh.opt_critic, opt_alpha=fresh.opt_alpha
    )
    after, metrics = update(before, KEY, some_batch(), jnp.full((B,), penalty))
    return agent, before, after, metrics


def layers(params: Any, x: jax.Array) -> jax.Array:
    """Two hidden ReLU layers in plain sight."""
    for i in (0, 1):
        x = jnp.maximum(x @ params[f"Dense_{i}"]["kernel"] + params[f"Dense_{i}"]["bias"], 0.0)
    return x


def one_q(params: Any, s: jax.Array, a: jax.Array) -> jax.Array:
    """Q of one critic for one row."""
    head = params["Dense_2"]
    return (layers(params, jnp.concatenate([s, a])) @ head["kernel"] + head["bias"])[0]


def member(params: Any, i: int) -> Any:
    return jax.tree.map(lambda p: p[i], params)


def explicit_draw(actor: Any, key: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = layers(actor, s)
    mean, log_std = (
        hidden @ actor[f"Dense_{i}"]["kernel"] + actor[f"Dense_{i}"]["bias"] for i in (2, 3)
    )
    std = jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE))
    u = mean + std * jax.random.normal(key, mean.shape)
    density = jax.scipy.stats.norm.logpdf(u, mean, std) - jnp.log(1 - jnp.tanh(u) ** 2 + 1e-6)
    return jnp.tanh(u), density.sum(-1)


def all_q(critic: Any, s: jax.Array, a: jax.Array) -> jax.Array:
    return jnp.stack([jax.vmap(one_q, (None, 0, 0))(member(critic, i), s, a) for i in range(N)])


def explicit_target(before: SacState, after: SacState, batch: Transitions) -> np.ndarray:
    """Bootstraps with the new actor, the new temperature and the old target critics."""
    _, key = jax.random.split(KEY)
    action, log_prob = explicit_draw(after.actor, key, batch.next_observations)
    value = all_q(before.target_critic, batch.next_observations, action).min(0)
    soft = value - jnp.exp(after.log_alpha) * log_prob
    return np.asarray(batch.rewards + CONFIG.discount * jnp.where(batch.terminations, 0.0, soft))


def gradient_of(moments: Any) -> Any:
    """Adam's first moment after one step is a tenth of the gradient."""
    return jax.tree.map(lambda m: 10.0 * m, moments[0].mu)


def assert_trees(left: Any, right: Any, **tolerance: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), left, right)


def explicit_diversity(gradients: np.ndarray) -> float:
    """The paper's double loop over pairs of critics."""
    total = 0.0
    for b in range(gradients.shape[1]):
        for i in range(len(gradients)):
            for j in range(len(gradients)):
                if i != j:
                    gi, gj = gradients[i, b], gradients[j, b]
                    total += (gi @ gj) / jnp.sqrt((gi @ gi) * (gj @ gj))
    return total / gradients.shape[1] / (len(gradients) - 1)


@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_critic_loss(eta: float) -> None:
    agent, before, after, metrics = updated(eta)
    batch = some_batch()
    target = explicit_target(before, after, batch)
    np.testing.assert_allclose(metrics["target_mean"], target.mean(), rtol=1e-4)

    def loss(critic: Any) -> jax.Array:
        q = all_q(critic, batch.observations, batch.actions)
        fit = sum(((q[i] - target) ** 2).mean() for i in range(N))
        slope = jax.vmap(jax.grad(one_q, argnums=2), (None, 0, 0))
        gradients = [slope(member(critic, i), batch.observations, batch.actions) for i in range(N)]
        return fit + eta * explicit_diversity(jnp.stack(gradients))

    want = jax.jit(jax.grad(loss))(before.critic)
    assert_trees(gradient_of(after.opt_critic), want, rtol=2e-3, atol=2e-4)
    q = np.asarray(agent.q(before.critic, batch.observations, batch.actions))
    np.testing.assert_allclose(
        q, all_q(before.critic, batch.observations, batch.actions), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(metrics["critic_loss"], np.square(q - target).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["q_spread"], q.std(0).mean(), rtol=1e-3)


def test_actor_and_temperature_losses_in_their_order() -> None:
    _, before, after, metrics = updated()
    batch = some_batch()
    key, _ = jax.random.split(KEY)

    def loss(actor: Any) -> jax.Array:
        action, log_prob = explicit_draw(actor, key, batch.observations)
        lowest = all_q(before.critic, batch.observations, action).min(0)
        return (jnp.exp(after.log_alpha) * log_prob - lowest).mean()  # the new temperature

    want = jax.jit(jax.grad(loss))(before.actor)
    assert_trees(gradient_of(after.opt_actor), want, rtol=2e-3, atol=2e-4)
    entropy = -explicit_draw(before.actor, key, batch.observations)[1].mean()
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    # d/d log_alpha of -log_alpha (log pi + H) with H = -A.
    np.testing.assert_allclose(gradient_of(after.opt_alpha), entropy + A, rtol=1e-4)
    moved = after.log_alpha - before.log_alpha
    np.testing.assert_allclose(moved, -0.3 * np.sign(entropy + A), rtol=1e-4)
    np.testing.assert_allclose(metrics["alpha"], np.exp(after.log_alpha), rtol=1e-6)


def test_critics_in_turn_learn_as_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, before, _, _ = updated()
    side_by_side, told = jax.jit(lambda s: agent.update(s, KEY, some_batch()))(before)
    monkeypatch.setattr("jaxrl_rollouts.ensemble.IN_TURN", 1)
    monkeypatch.setattr("jaxrl_rollouts.ensemble.cores_are_devices", lambda: True)
    in_turn, again = jax.jit(lambda s: agent.update(s, KEY, some_batch()))(before)
    assert_trees(in_turn, side_by_side, rtol=1e-4, atol=1e-6)
    assert_trees(again, told, rtol=1e-4, atol=1e-6)


def test_the_least_critics_gradient_is_its_own_slope() -> None:
    agent, before, _, _ = updated()
    nets, batch = agent.q.args[0], some_batch()

    def lowest(actions: jax.Array) -> jax.Array:
        return min_q(nets, before.critic, batch.observations, actions)

    values = all_q(before.critic, batch.observations, batch.actions)
    np.testing.assert_allclose(lowest(batch.actions), values.min(0), rtol=1e-5)
    found = jax.grad(lambda a: lowest(a).sum())(batch.actions)
    for b, i in enumerate(values.argmin(0)):
        slope = jax.grad(one_q, argnums=2)(
            member(before.critic, int(i)), batch.observations[b], batch.actions[b]
        )
        np.testing.assert_allclose(found[b], slope, rtol=1e-4, atol=1e-6)


def test_targets_take_the_least_of_some_critics_and_the_policy_the_mean_of_all() -> None:
    """Ball et al. 2023 (RLPD), section 4: a random subset of size Z for the target."""
    _, before, _, _ = updated()
    batch, of = some_batch(), replace(CONFIG, target_critics=2, backup_entropy=False)
    nets = make_sac(of, S, A).nets
    one = soft_value(nets, before, KEY, batch.next_observations)
    drawn, _ = explicit_draw(before.actor, KEY, batch.next_observations)
    values = np.asarray(all_q(before.target_critic, batch.next_observations, drawn))
    pairs = [values[[i, j]].min(0) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert sum(np.allclose(one, pair, rtol=1e-5) for pair in pairs) >= 1
    mean = climbed(nets, before.critic, batch.observations, batch.actions)
    np.testing.assert_allclose(
        mean, all_q(before.critic, batch.observations, batch.actions).mean(0), rtol=1e-5
    )
    with pytest.raises(ConfigError, match="at most num_critics"):
        make_sac(replace(CONFIG, target_critics=N + 1), S, A)


def test_every_critic_is_asked_in_its_turn() -> None:
    _, before, _, _ = updated()
    nets = make_sac(replace(CONFIG, target_critics=1, backup_entropy=False), S, A).nets
    batch, seen = some_batch(), set()
    for key in jax.random.split(KEY, 20):
        drawn, _ = explicit_draw(before.actor, key, batch.next_observations)
        values = np.asarray(all_q(before.target_critic, batch.next_observations, drawn))
        found = soft_value(nets, before, key, batch.next_observations)
        (which,) = np.flatnonzero(np.isclose(values, found, rtol=1e-5).all(1))
        seen.add(int(which))
    assert seen == set(range(N))


def test_normalised_critics_have_a_scale_before_each_activation() -> None:
    nets = make_sac(replace(CONFIG, critic_norm=True), S, A).nets
    state = make_sac(replace(CONFIG, critic_norm=True), S, A).init(jax.random.key(0))
    member_of = member(state.critic, 0)
    assert {name for name in member_of if name.startswith("LayerNorm")} == {
        "LayerNorm_0",
        "LayerNorm_1",
    }
    assert not any(name.startswith("LayerNorm") for name in state.actor)
    batch = some_batch()
    x = jnp.concatenate([batch.observations, batch.actions], -1)
    for i in (0, 1):
        x = x @ member_of[f"Dense_{i}"]["kernel"] + member_of[f"Dense_{i}"]["bias"]
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
        norm = member_of[f"LayerNorm_{i}"]
        x = jnp.maximum(x * norm["scale"] + norm["bias"], 0.0)
    want = (x @ member_of["Dense_2"]["kernel"] + member_of["Dense_2"]["bias"])[:, 0]
    found = nets.critics.apply_all(state.critic, batch.observations, batch.actions)[0, :, 0]
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-6)


def test_target_critics_follow_slowly_and_a_penalty_lowers_the_target() -> None:
    _, before, after, _ = updated()
    want = jax.tree.map(lambda new, old: 0.2 * new + 0.8 * old, after.critic, before.target_critic)
    assert_trees(after.target_critic, want, rtol=1e-5, atol=1e-7)
    plain, lowered = updated()[3], updated(penalty=1.5)[3]
    np.testing.assert_allclose(plain["target_mean"] - lowered["target_mean"], 1.5, rtol=1e-4)


def test_next_value_replaces_what_is_bootstrapped() -> None:
    agent, before, _, _ = updated()
    batch = some_batch()
    _, metrics = jax.jit(agent.update, static_argnums=4)(
        before, KEY, batch, 0.0, lambda s, value: jnp.full_like(value, 2.0)
    )
    want = batch.rewards + CONFIG.discount * 2.0 * ~batch.terminations
    np.testing.assert_allclose(metrics["target_mean"], want.mean(), rtol=1e-5)


@given(seed=st.integers(0, 2**31 - 1))
def test_diversity_is_the_double_loop(seed: int) -> None:
    gradients = np.random.default_rng(seed).normal(size=(N, B, A)).astype(np.float32)
    np.testing.assert_allclose(diversity_loss(gradients), explicit_diversity(gradients), atol=1e-5)


def test_diversity_of_opposed_equal_and_no_gradients() -> None:
    g = np.ones((1, B, A), np.float32)
    np.testing.assert_allclose(diversity_loss(jnp.concatenate([g] * N)), N, rtol=1e-5)
    np.testing.assert_allclose(diversity_loss(jnp.concatenate([g, -g])), -2.0, rtol=1e-5)
    gradients = jnp.zeros((N, B, A)).at[1].set(1.0)
    assert np.isfinite(diversity_loss(gradients))
    assert np.isfinite(jax.grad(diversity_loss)(gradients)).all()


def test_initial_weights() -> None:
    config = SacConfig(num_critics=N, hidden_dims=(32, 32, 32))
    state = make_sac(config, S, A).init(jax.random.key(0))
    for net, inputs, bound in ((state.actor, S, 1e-3), (state.critic, S + A, 3e-3)):
        for i, fan_in in enumerate((inputs, 32, 32)):
            kernel = np.abs(net[f"Dense_{i}"]["kernel"])
            assert 0.85 * fan_in**-0.5 < kernel.max() <= fan_in**-0.5 + 1e-7
            np.testing.assert_array_equal(net[f"Dense_{i}"]["bias"], np.float32(0.1))
        for leaf in jax.tree.leaves(net["Dense_3"]):
            assert 0 < np.abs(leaf).max() <= bound
    assert float(state.log_alpha) == 0.0
    jax.tree.map(np.testing.assert_array_equal, state.critic, state.target_critic)
    kernels = state.critic["Dense_0"]["kernel"]
    assert kernels.shape[0] == N and (kernels[0] != kernels[1]).all()


def test_policies() -> None:
    agent, _, after, _ = updated()
    s = some_batch().observations
    drawn, memory = agent.policy(after.actor, KEY, s, "memory")
    np.testing.assert_allclose(drawn, explicit_draw(after.actor, KEY, s)[0], rtol=1e-4, atol=1e-5)
    assert memory == "memory" and (np.abs(drawn) < 1).all()
    best, _ = agent.greedy(after.actor, KEY, s, ())
    head = after.actor["Dense_2"]
    want = jnp.tanh(layers(after.actor, s) @ head["kernel"] + head["bias"])
    np.testing.assert_allclose(best, want, rtol=1e-4, atol=1e-5)
