"""Recurrent SAC: each loss against an explicit version, the order of updates, a memory probe."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.agents.actors import sample_and_log_prob
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.offline.recurrent.actor_critic import make_actor_critic
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import (
    RecurrentSacConfig,
    RecurrentSacState,
    make_recurrent_sac,
)
from jaxrl_rollouts.offline.recurrent.tapes import Tape
from jaxrl_rollouts.offline.recurrent.timesteps import Timestep, timestep_shapes

L, D, A, N = 10, 4, 2, 4
KEY = jax.random.key(5)
CONFIG = RecurrentSacConfig(
    memory=MemoryConfig("gru", width=8, layers=1),
    head_dims=(8,),
    num_critics=N,
    subset_size=2,
    discount=0.9,
    tau=0.3,
    memory_lr=1e-2,
    head_lr=0.1,
    alpha_lr=0.2,
    real_weight=0.2,
    reward_shift=0.3,
)


NETS = make_actor_critic(CONFIG.memory, CONFIG.head_dims, N, D, A)


def some_tape(seed: int = 0) -> Tape:
    rng = np.random.default_rng(seed)
    starts = np.isin(np.arange(L), [0, 4, 8])
    timesteps = Timestep(
        rng.normal(size=(L, D)).astype(np.float32),
        np.tanh(rng.normal(size=(L, A))).astype(np.float32),
        2 * rng.normal(size=L).astype(np.float32),
        rng.random(L) < 0.3,
        np.zeros(L, bool),
        rng.random(L) < 0.5,
    )
    return jax.tree.map(jnp.asarray, Tape(timesteps, starts, np.append(~starts[1:], False)))


@functools.cache
def updated(huber: float | None = 0.25) -> tuple[Any, RecurrentSacState, list]:
    """The agent, a state whose target differs from its critic, and three updates from there.

    With squared errors its temperature is fixed: one program for both.
    """
    config = replace(CONFIG, learn_alpha=huber is not None, huber=huber)
    agent = make_recurrent_sac(config, D, A, steps=2)
    init, update = jax.jit(agent.init), jax.jit(agent.update)
    state = init(jax.random.key(0))._replace(target_critic=init(jax.random.key(1)).critic)
    results = [update(state, KEY, some_tape())]
    for _ in range(2):
        results.append(update(results[-1][0], KEY, some_tape()))
    return agent, state, results


def explicit_mean(values: jax.Array, tape: Tape) -> jax.Array:
    """Separate means over real and imagined timesteps whose successor is on the tape."""
    starts, reals = np.asarray(tape.starts), np.asarray(tape.timesteps.real)
    parts: dict[bool, list] = {True: [], False: []}
    for t in range(L - 1):
        if not starts[t + 1]:
            parts[bool(reals[t])].append(values[t])
    real, imagined = (sum(parts[k]) / max(len(parts[k]), 1) for k in (True, False))
    return 0.2 * real + 0.8 * imagined


def explicit_target(before: RecurrentSacState, tape: Tape) -> np.ndarray:
    next_key, pair_key, _ = jax.random.split(KEY, 3)
    seen, starts = tape.timesteps.observations, tape.starts
    heads = NETS.heads(before.actor, seen, starts)
    action, log_prob = map(np.asarray, sample_and_log_prob(next_key, *heads, "exact"))
    q = np.asarray(NETS.q(before.target_critic, seen, starts, jnp.asarray(action)))
    pair = np.asarray(jax.random.permutation(pair_key, N))[:2]
    alpha, target = float(jnp.exp(before.log_alpha)), np.zeros(L, np.float32)
    for t in range(L - 1):
        follows = min(q[pair[0], t + 1], q[pair[1], t + 1]) - alpha * log_prob[t + 1]
        ended = bool(tape.timesteps.terminations[t])
        target[t] = tape.timesteps.rewards[t] + 0.3 + (0.0 if ended else 0.9 * follows)
    return target


def gradient_of(moments: Any) -> Any:
    """Adam's first moment after one step is a tenth of the gradient."""
    adams = {part: moments.inner_states[part].inner_state[1][0] for part in ("memory", "head")}
    return [jax.tree.map(lambda m: 10.0 * m, getattr(a.mu, part)) for part, a in adams.items()]


def assert_gradients(found: Any, want: Any) -> None:
    for a, b in zip(found, want, strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=3e-3, atol=3e-5), a, b)


@pytest.mark.parametrize("delta", [0.25, None])
def test_critic_loss_over_real_and_imagined_timesteps(delta: float | None) -> None:
    _, before, results = updated(delta)
    after, metrics = results[0]
    tape = some_tape()
    target = explicit_target(before, tape)

    def loss(critic: Any) -> jax.Array:
        q = NETS.q(critic, tape.timesteps.observations, tape.starts, tape.timesteps.actions)
        gap = jnp.abs(q - target)
        bound = 1e3 if delta is None else delta  # wider than any gap here
        each = jnp.where(gap < bound, 0.5 * gap**2, bound * (gap - 0.5 * bound))
        return explicit_mean(each.mean(0), tape)

    want, gradient = jax.jit(jax.value_and_grad(loss))(before.critic)
    np.testing.assert_allclose(metrics["critic_loss"], want, rtol=1e-4)
    assert_gradients(gradient_of(after.opt_critic), gradient)


def test_actor_follows_the_mean_of_the_new_critics_and_temperature_the_old_actor() -> None:
    _, before, results = updated()
    after, metrics = results[0]
    tape = some_tape()
    seen, starts = tape.timesteps.observations, tape.starts
    key, alpha = jax.random.split(KEY, 3)[2], jnp.exp(before.log_alpha)

    def loss(actor: Any) -> tuple[jax.Array, jax.Array]:
        action, log_prob = sample_and_log_prob(key, *NETS.heads(actor, seen, starts), "exact")
        q = NETS.q(after.critic, seen, starts, action)
        return explicit_mean(alpha * log_prob - q.mean(0), tape), log_prob

    gradient, log_prob = jax.jit(jax.grad(loss, has_aux=True))(before.actor)
    assert_gradients(gradient_of(after.opt_actor), gradient)
    np.testing.assert_allclose(metrics["entropy"], -log_prob[tape.mask].mean(), rtol=1e-4)
    slope = alpha * explicit_mean(-log_prob + A, tape)  # the wanted entropy is -A
    np.testing.assert_allclose(10 * after.opt_alpha[0].mu, slope, rtol=1e-3)
    np.testing.assert_allclose(after.log_alpha - before.log_alpha, -0.2 * np.sign(slope), rtol=1e-3)


def test_target_critics_follow_and_rates_differ() -> None:
    _, before, results = updated()
    after = results[0][0]
    want = jax.tree.map(lambda new, old: 0.3 * new + 0.7 * old, after.critic, before.target_critic)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        after.target_critic,
        want,
    )
    for part, rate in (("memory", 1e-2), ("head", 0.1)):
        for name in ("actor", "critic"):
            new, old = (jax.tree.leaves(getattr(getattr(s, name), part)) for s in (after, before))
            moved = max(float(np.abs(a - b).max()) for a, b in zip(new, old, strict=True))
            np.testing.assert_allclose(moved, rate, rtol=0.05)


def test_the_actor_s_rates_have_fallen_to_zero_after_all_steps() -> None:
    _, _, results = updated()
    second, third = results[1][0], results[2][0]
    jax.tree.map(np.testing.assert_array_equal, second.actor, third.actor)
    assert (second.critic.head["Dense_0"]["bias"] != third.critic.head["Dense_0"]["bias"]).any()


def test_a_fixed_temperature_stays() -> None:
    _, before, results = updated(None)
    np.testing.assert_allclose(before.log_alpha, np.log(0.2), rtol=1e-6)
    for state, metrics in results:
        assert state.log_alpha == before.log_alpha
        np.testing.assert_allclose(metrics["alpha"], 0.2, rtol=1e-6)


def test_policies_of_the_recurrent_agent_are_their_tape() -> None:
    agent, state, _ = updated()
    tape = some_tape()
    mean, log_std = NETS.heads(state.actor, tape.timesteps.observations, tape.starts)
    carry, key = agent.memory(1), jax.random.key(3)
    for t in range(4):  # the first episode
        seen = tape.timesteps.observations[t : t + 1]
        drawn, _ = agent.policy(state.actor, key, seen, carry)
        want = sample_and_log_prob(key, mean[t : t + 1], log_std[t : t + 1])[0]
        np.testing.assert_allclose(drawn, want, atol=1e-4)
        best, carry = agent.greedy(state.actor, key, seen, carry)
        np.testing.assert_allclose(best[0], np.tanh(mean[t]), atol=1e-5)


def test_it_remembers_what_it_saw_at_the_start() -> None:
    """Rewards are highest for the number shown in the first of four timesteps, and only there."""
    rng = np.random.default_rng(0)
    cue, actions = rng.uniform(-0.7, 0.7, 600), rng.uniform(-1, 1, (600, 5, 1))
    seen = np.zeros((600, 5, 2))
    seen[:, 0, 0], seen[..., 1] = cue, 1.0
    last = np.arange(5) == 3
    rewards = -4.0 * (actions[..., 0] - cue[:, None]) ** 2
    rows = (
        seen,
        actions,
        rewards,
        np.broadcast_to(last, (600, 5)),
        np.zeros((600, 5), bool),
        np.zeros((600, 5), bool),
    )
    timesteps = Timestep(*(jnp.asarray(x, bool if x.dtype == bool else jnp.float32) for x in rows))
    buffer = tapes.create(
        timestep_shapes(2, jax.ShapeDtypeStruct((1,), jnp.float32)), 3000, 600, tape_length=100
    )
    buffer = jax.jit(tapes.add)(buffer, timesteps, jnp.full(600, 5))
    config = replace(
        CONFIG,
        memory=MemoryConfig("lru", width=8, state=6, layers=1),
        num_critics=2,
        memory_lr=1e-2,
        head_lr=1e-2,
        alpha_lr=1e-2,
        tau=0.02,
        head_dims=(16,),
        real_weight=0.0,
        discount=0.5,
    )
    agent = make_recurrent_sac(config, 2, 1, steps=500)

    def one(state: RecurrentSacState, key: jax.Array) -> tuple:
        tape_key, key = jax.random.split(key)
        return agent.update(state, key, tapes.sample(buffer, tape_key, 250))

    keys = jax.random.split(jax.random.key(1), 500)
    state = jax.jit(agent.init)(jax.random.key(0))
    state, metrics = jax.jit(lambda s: jax.lax.scan(one, s, keys))(state)
    assert np.isfinite(metrics["critic_loss"]).all()
    shown = jnp.asarray(np.linspace(-0.6, 0.6, 7), jnp.float32)
    carry, found = agent.memory(7), None
    for t in range(4):
        now = jnp.stack([shown if t == 0 else jnp.zeros(7), jnp.ones(7)], 1)
        found, carry = agent.greedy(state.actor, KEY, now, carry)
    assert np.corrcoef(found[:, 0], shown)[0, 1] > 0.97
    assert np.abs(found[:, 0] - shown).max() < 0.25


@pytest.mark.parametrize(
    ("huber", "learned"),
    [pytest.param(None, 1 / (1 - 0.9 * 0.8), marks=pytest.mark.slow), (1.0, 7.5)],
)
def test_a_huber_loss_hardly_counts_a_rare_end(huber: float | None, learned: float) -> None:
    """A state that pays 1 and ends in a fifth of the cases is worth 3.57; where errors count by
    their sign, `0.8 (1 - 0.1 q) = 0.2`."""
    config = replace(
        CONFIG,
        memory=MemoryConfig("none", width=8),
        memory_lr=3e-3,
        head_lr=3e-3,
        tau=0.05,
        learn_alpha=False,
        initial_alpha=1e-6,
        reward_shift=0.0,
        huber=huber,
    )
    agent = make_recurrent_sac(config, 1, 1, steps=3000)
    pairs = jnp.arange(400) % 2 == 0  # a transition is two timesteps

    def one(state: RecurrentSacState, key: jax.Array) -> tuple:
        action_key, end_key, key = jax.random.split(key, 3)
        actions = jax.random.uniform(action_key, (400, 1), minval=-0.9, maxval=0.9)
        ends = jax.random.bernoulli(end_key, 0.2, (400,))
        flat, no = jnp.ones(400), jnp.zeros(400, bool)
        tape = Tape(Timestep(flat[:, None], actions, flat, ends, no, no), pairs, pairs)
        return agent.update(state, key, tape)

    state = jax.jit(agent.init)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 3000)
    state, _ = jax.jit(lambda s: jax.lax.scan(one, s, keys))(state)
    found = agent.q(state.critic, jnp.ones((3, 1)), jnp.asarray([[-0.5], [0.0], [0.5]]))
    np.testing.assert_allclose(found, learned, rtol=0.1)
