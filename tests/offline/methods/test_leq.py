"""LEQ's returns, losses and gradient, against numpy, a full Jacobian and finite differences."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.agents.leq import LeqConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.methods.leq import (
    Leq,
    Path,
    actor_loss,
    lambda_returns,
)
from jaxrl_rollouts.offline.methods.model_based import Given, Learning
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, Rolled
from jaxrl_rollouts.rollouts import Model, step_result

S, A, B, H = 2, 1, 6, 3
GAMMA = 0.9
CONFIG = LeqConfig(hidden_dims=(8,), discount=GAMMA, tau=0.2, actor_lr=1e-2, critic_lr=1e-2)
METHOD = Leq(agent=CONFIG, horizon=H, expectile=0.3, decay=0.8)
KEY = jax.random.key(3)
FLOOR = -0.5  # below it an episode is over


def step(world: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    noise = 0.1 * jax.random.normal(key, s.shape)
    following = 0.8 * s + jnp.sin(a) + world + noise
    reward = s[:, 0] * a[:, 0] + jnp.square(s[:, 1])
    return following, step_result(len(s), reward=reward, terminated=following[:, 0] < FLOOR)


WORLD = Rolled(Dynamics(Model(step), None, 1), jnp.zeros(S), jnp.ones(()))  # type: ignore[arg-type]
STARTS = 0.7 * jax.random.normal(jax.random.key(1), (B, S))
STILL = jnp.zeros((H + 1, B, A))


@functools.cache
def begun() -> tuple[Any, Any]:
    agent = CONFIG.make(S, A)
    state = agent.init(KEY)
    return agent, state._replace(
        target_critic=jax.tree.map(lambda p: 1.5 * p, state.critic.net),
        actor=state.actor._replace(net=jax.tree.map(lambda p: 2.0 * p, state.actor.net)),
    )


def real() -> Transitions:
    rng = np.random.default_rng(0)
    s, n = (jnp.asarray(rng.normal(size=(8, S)), jnp.float32) for _ in range(2))
    a, r = rng.uniform(-1, 1, (8, A)), rng.normal(size=8)
    ends = jnp.asarray(rng.random(8) < 0.3)
    floats = jnp.asarray(a, jnp.float32), jnp.asarray(r, jnp.float32)
    return Transitions(s, *floats, n, ends, jnp.zeros(8, bool))


@functools.cache
def given() -> Given:
    """What a gradient step is given: imagined rows count by their states alone."""
    imagined = jax.tree.map(lambda x: x[:B], real())._replace(observations=STARTS)
    return Given(begun()[0], KEY, real(), imagined, WORLD)


def by_hand(values: np.ndarray, path: Path, decay: float) -> np.ndarray:
    """Mean of the k-step returns of every step, weighted by lambda^k; they stop at an end."""
    found = np.zeros_like(values)
    steps = len(values) - 1
    for b in range(values.shape[1]):
        for i in range(steps + 1):
            returns = []
            for k in range(steps - i + 1):
                total, over = 0.0, False
                for j in range(i, i + k):
                    if not over:
                        total += GAMMA ** (j - i) * float(path.rewards[j, b])
                        over = bool(path.terminations[j, b])
                if not over:
                    total += GAMMA**k * float(values[i + k, b])
                returns.append(total)
            weights = decay ** np.arange(len(returns))
            found[i, b] = (weights * returns).sum() / weights.sum()
    return found


@functools.cache
def travelled() -> tuple[Path, np.ndarray]:
    agent, state = begun()
    path = METHOD.path(state, given(), KEY, STILL)
    return path, np.asarray(agent.q(state.critic, path.observations, path.actions)[0])


def test_a_path_follows_the_mean_policy_and_its_ends_are_known() -> None:
    agent, state = begun()
    path, _ = travelled()
    alive = np.asarray(path.alive)
    assert alive[0].all() and 0 < (~alive[-1]).sum() < B
    want, _ = agent.greedy(state.actor, KEY, path.observations, ())
    np.testing.assert_allclose(path.actions[alive], want[alive], rtol=1e-5)
    np.testing.assert_array_equal(alive[1:], alive[:-1] & ~np.asarray(path.terminations))


@pytest.mark.parametrize("decay", [0.1, 0.8, 1.0])
def test_lambda_returns_are_means_of_k_step_returns(decay: float) -> None:
    path, values = travelled()
    found = lambda_returns(jnp.asarray(values), path, GAMMA, decay)
    alive = np.asarray(path.alive)
    np.testing.assert_allclose(found[alive], by_hand(values, path, decay)[alive], rtol=1e-4)


def test_limits_of_lambda() -> None:
    """0 is the value itself, and without bound the return of all steps; of one step the gap is
    lambda / (1 + lambda) of TD's."""
    path, values = travelled()
    none = lambda_returns(jnp.asarray(values), path, GAMMA, 0.0)
    np.testing.assert_allclose(none, values, rtol=1e-6)
    longest = values[-1]
    for reward, ended in zip(path.rewards[::-1], path.terminations[::-1], strict=True):
        longest = np.asarray(reward) + GAMMA * np.where(ended, 0.0, longest)
    whole = lambda_returns(jnp.asarray(values), path, GAMMA, 1e6)[0]
    np.testing.assert_allclose(whole, longest, rtol=1e-4, atol=1e-5)
    one = Path(*(x[: 2 if len(x) == H + 1 else 1] for x in path))
    found = np.asarray(lambda_returns(jnp.asarray(values[:2]), one, GAMMA, 0.95))[0]
    error = np.asarray(one.rewards[0]) - values[0]
    error = error + GAMMA * np.where(one.terminations[0], 0.0, values[1])
    np.testing.assert_allclose(found - values[0], 0.95 / 1.95 * error, rtol=1e-4, atol=1e-6)


def returns_of(shifts: jax.Array) -> jax.Array:
    agent, state = begun()
    path = METHOD.path(state, given(), KEY, shifts)
    values = agent.q(state.critic, path.observations, path.actions)[0]
    return lambda_returns(values, path, GAMMA, METHOD.decay)


def test_one_backward_pass_is_the_diagonal_of_the_jacobian() -> None:
    agent, state = begun()
    path, pull = METHOD.ascent(state, given(), KEY, STILL)
    whole = np.asarray(jax.jit(jax.jacrev(lambda shifts: returns_of(shifts).sum(1)))(STILL))
    own = np.stack([whole[t, t] for t in range(H + 1)])  # [H + 1, B, A]
    values = np.asarray(agent.q(state.critic, path.observations, path.actions)[0])
    above = np.asarray(returns_of(STILL)) > values
    weight = np.where(above, 0.3, 0.7)
    weight[-1] = 0.5
    alive = np.asarray(path.alive)
    want = (weight * alive)[..., None] * own
    np.testing.assert_allclose(pull, want, rtol=1e-3, atol=1e-5)
    assert (np.abs(np.asarray(pull)[alive]) > 1e-4).any() and not np.asarray(pull)[~alive].any()


def test_the_derivative_is_a_finite_difference() -> None:
    """Of `Y_0` in the first action, through the model and every later action of the policy."""
    agent, state = begun()
    path, pull = METHOD.ascent(state, given(), KEY, STILL)
    small = 1e-3
    up, down = (returns_of(STILL.at[0].add(sign * small))[0] for sign in (1, -1))
    slope = np.asarray(up - down) / (2 * small)
    values = agent.q(state.critic, path.observations, path.actions)[0]
    weight = np.where(np.asarray(returns_of(STILL))[0] > np.asarray(values)[0], 0.3, 0.7)
    same = np.asarray(path.alive)[-1]  # where the difference crosses no end
    np.testing.assert_allclose(np.asarray(pull)[0, same, 0], (weight * slope)[same], rtol=2e-2)


def test_the_critics_loss_is_its_formula() -> None:
    agent, state = begun()
    path, old = travelled()
    rows, beta = real(), METHOD.model_weight
    net = jax.tree.map(lambda p: 0.7 * p, state.critic.net)
    now = state.critic._replace(net=net)
    slow = state.critic._replace(net=state.target_critic)
    logged, seen = (rows.observations, rows.actions), (path.observations[:-1], path.actions[:-1])
    value, rolled = (np.asarray(agent.q(now, *x)[0]) for x in (logged, seen))
    value_slow, rolled_slow = (np.asarray(agent.q(slow, *x)[0]) for x in (logged, seen))
    after, _ = agent.greedy(state.actor, KEY, rows.next_observations, ())
    following = np.asarray(agent.q(state.critic, rows.next_observations, after)[0])
    y = np.asarray(rows.rewards) + GAMMA * (1 - np.asarray(rows.terminations)) * following
    gap = by_hand(old, path, METHOD.decay)[:-1] - rolled
    fading = GAMMA ** np.arange(H)[:, None] * np.asarray(path.alive)[:-1]
    want = (1 - beta) * (0.5 * np.square(value - y).mean() + np.square(value - value_slow).mean())
    low = np.where(gap < 0, 0.7, 0.3) * np.square(gap)
    want += beta * (fading * (low + np.square(rolled - rolled_slow))).mean()
    found, _ = METHOD.critic_loss(net, state, given(), path)
    np.testing.assert_allclose(found, want, rtol=1e-4)


def test_the_policys_gradient_is_the_pull_through_its_own_states() -> None:
    agent, state = begun()
    path, pull = METHOD.ascent(state, given(), KEY, STILL)
    scaler = state.actor.scaler
    slope = jax.grad(lambda net: actor_loss(net, agent, scaler, path, pull)[0])(state.actor.net)
    actions, back = jax.vjp(
        lambda net: agent.greedy(state.actor._replace(net=net), KEY, path.observations, ())[0],
        state.actor.net,
    )
    (want,) = back(-pull / B)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), slope, want)
    assert actions.shape == (H + 1, B, A)


def test_a_step_moves_both_networks_from_before_it() -> None:
    _, state = begun()
    learned, metrics = jax.jit(lambda s: METHOD.learn(Learning(s), given()))(state)
    after, critic_key = learned.agent, jax.random.split(KEY)[1]
    path = METHOD.path(state, given(), critic_key, STILL)
    want, _ = METHOD.critic_loss(state.critic.net, state, given(), path)
    np.testing.assert_allclose(metrics["critic_loss"], want, rtol=1e-4)
    mixed = jax.tree.map(lambda q, s: 0.2 * q + 0.8 * s, after.critic.net, state.target_critic)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after.target_critic, mixed
    )


@pytest.mark.parametrize("expectile", [0.1, 0.5])
def test_the_value_of_a_coin_is_its_expectile(expectile: float) -> None:
    """Outcomes 0 and 1, equally likely, of one step that ends: the value is tau."""

    def toss(world: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
        heads = jax.random.bernoulli(key, shape=(len(s),)).astype(jnp.float32)
        return s, step_result(len(s), reward=heads, terminated=jnp.ones(len(s), bool))

    config = LeqConfig(hidden_dims=(8,), discount=0.5, tau=1.0, critic_lr=1e-2, cosine=False)
    method = Leq(agent=config, horizon=1, expectile=expectile, decay=0.95, model_weight=1.0)
    agent = config.make(1, 1)
    world = Rolled(Dynamics(Model(toss), None, 1), (), jnp.ones(()))  # type: ignore[arg-type]
    zero, flags = jnp.zeros((256, 1)), jnp.zeros(256, bool)
    rows = Transitions(zero, zero, jnp.zeros(256), zero, flags, flags)

    def one(state: Any, key: Any) -> tuple[Any, None]:
        given = Given(agent, key, rows, rows, world)
        return method.learn(Learning(state), given)[0].agent, None

    keys = jax.random.split(KEY, 1500)
    state, _ = jax.jit(lambda s: jax.lax.scan(one, s, keys))(agent.init(KEY))
    action, _ = agent.greedy(state.actor, KEY, zero[:1], ())
    np.testing.assert_allclose(agent.q(state.critic, zero[:1], action), expectile, atol=0.05)


def test_exploration_is_before_the_tanh() -> None:
    agent, state = begun()
    seen = jnp.zeros((4000, S))
    drawn = np.arctanh(np.asarray(agent.policy(state.actor, KEY, seen, ())[0], np.float64))
    mean = np.arctanh(np.asarray(agent.greedy(state.actor, KEY, seen, ())[0], np.float64))
    np.testing.assert_allclose((drawn - mean).mean(), 0.0, atol=0.06)
    np.testing.assert_allclose((drawn - mean).std(), 1.0, atol=0.06)
