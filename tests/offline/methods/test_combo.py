"""COMBO's critics: CQL on the data alone, its soft maximum, rho, and where values end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_learners import CADENCE, HARD, KNOWN, WORLD, A, S, imagination, rows

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents import cql
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.combo import Combo, critic_loss
from jaxrl_rollouts.offline.methods.model_based import Given, Learning, bind
from jaxrl_rollouts.offline.worlds.dynamics import Rolled

KEY = jax.random.key(3)
METHOD = Combo(agent=HARD, num_actions=4, weight=0.7, **CADENCE)
AGENT = HARD.make(S, A)
WORLDS = Rolled(KNOWN, WORLD, jnp.ones(()))


def part(first: int, last: int) -> Transitions:
    return jax.tree.map(lambda x: x[first:last], to_device(rows()))


def learned(method: Combo, state: Any, real: Transitions, imagined: Transitions) -> Any:
    given = Given(AGENT, KEY, real, imagined, WORLDS)
    return jax.jit(lambda s: method.learn(Learning(s), given))(state)


def test_on_real_rows_alone_it_is_cql() -> None:
    """Without CQL's scaler, multiplier and clip; critics after one step."""
    config = CqlConfig(
        **{name: getattr(HARD, name) for name in ("hidden_dims", "actor_lr", "critic_lr")},
        normalize_obs=False,
        num_actions=4,
        weight=0.7,
        target_gap=None,
        alpha_lr=HARD.alpha_lr,
        backup_entropy=False,
    )
    agent = config.make(S, A)
    begun = agent.init(KEY)
    ours = AGENT.init(KEY)._replace(actor=begun.actor.net, critic=begun.critic.net)
    ours = ours._replace(target_critic=begun.target_critic)
    want, _ = jax.jit(agent.update)(begun, KEY, part(0, 8))
    found, _ = learned(METHOD, ours, part(0, 8), part(0, 0))
    for a, b in zip(
        jax.tree.leaves(found.agent.critic), jax.tree.leaves(want.critic.net), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_without_a_weight_it_is_base_bit_for_bit() -> None:
    kinds = Combo(agent=HARD, weight=0.0, num_actions=2, **CADENCE), Base(agent=HARD, **CADENCE)
    states = []
    for method in kinds:
        learner, data = bind(method.program(), KNOWN, S, A), imagination(method)
        states.append(jax.jit(learner.update)(learner.init(KEY, data), data)[0])
    jax.tree.map(np.testing.assert_array_equal, *((s.agent, s.imagined) for s in states))


def constant(value: float) -> Any:
    """Critics that are a number everywhere."""
    critic = jax.tree.map(jnp.zeros_like, AGENT.init(KEY).critic)
    last = max(critic, key=lambda name: (len(name), name))
    critic[last] = {**critic[last], "bias": jnp.full_like(critic[last]["bias"], value)}
    seen = part(0, 5)
    np.testing.assert_allclose(AGENT.q(critic, seen.observations, seen.actions), value)
    return critic


def test_the_gap_of_constant_values_counts_actions_and_their_density() -> None:
    """`log(3 K) + A log 2` with uniform actions from all three sources."""
    seen, k = part(0, 6), 5
    drawn = (
        jax.random.uniform(KEY, (3 * k, 6, A), minval=-1.0),
        jnp.full((3 * k, 6), -A * np.log(2)),
    )
    more = jnp.zeros(6), seen, drawn, part(6, 9), jnp.float32(1.0)
    _, metrics = critic_loss(constant(2.5), AGENT.nets, seen, *more)
    want = np.log(3 * k) + A * np.log(2)
    np.testing.assert_allclose(metrics["conservative_gap"], want, rtol=1e-5)


def test_values_are_pushed_down_at_rhos_states_and_up_at_the_datas() -> None:
    real, imagined, state = part(0, 4), part(20, 25), AGENT.init(KEY)
    batch = jax.tree.map(lambda *x: jnp.concatenate(x), real, imagined)
    critic = jax.tree.map(lambda p: 3.0 * p, state.critic)
    nets = AGENT.nets
    for low in (batch, imagined):
        actions, densities = cql.candidates(nets, state.actor, KEY, low, 4)
        tried = np.stack([np.asarray(AGENT.q(critic, low.observations, a)) for a in actions])
        tried = tried - np.asarray(densities)[:, None]
        soft = np.log(np.exp(tried).sum(0)).mean(1)
        gap = soft - np.asarray(AGENT.q(critic, real.observations, real.actions)).mean(1)
        values = np.asarray(AGENT.q(critic, batch.observations, batch.actions))
        want = np.square(values - 1.0).mean(1).sum() + 0.7 * gap.sum()
        more = jnp.ones(9), low, (actions, densities), real, jnp.float32(0.7)
        found, _ = critic_loss(critic, nets, batch, *more)
        np.testing.assert_allclose(found, want, rtol=1e-4)


def test_rho_is_what_is_asked() -> None:
    real, imagined = part(0, 4), part(20, 25)
    state = AGENT.init(KEY)
    gaps = [
        float(learned(replace(METHOD, rho=rho), state, real, imagined)[1]["conservative_gap"])
        for rho in ("mixed", "model")
    ]
    assert gaps[0] != gaps[1]
    with pytest.raises(ConfigError, match="rho: found 'model', expected mixed"):
        check(replace(METHOD, rho="model", real_ratio=1.0))


@pytest.mark.parametrize(("rho", "share"), [("model", 1.0), ("mixed", 0.5)])
def test_two_states_of_one_action_end_where_the_paper_says(
    rho: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Q = y - beta (rho - d) / (2 d_f)` for r = 1, gamma = 0 and the mean-square fit.

    The data have state 0 only, the model state 1 only, half of a batch each.
    """

    def table(nets: Any, critic: Any, seen: Any, actions: Any) -> Any:
        return critic[seen[..., 0].astype(int)][None]

    monkeypatch.setattr(cql.soft, "q", table)
    batch = part(0, 2)._replace(observations=jnp.array([[0.0], [1.0]]))
    real, imagined = (jax.tree.map(lambda x, k=k: x[k : k + 1], batch) for k in (0, 1))
    low, nets, beta = (imagined if rho == "model" else batch), AGENT.nets, 0.3
    drawn = jnp.zeros((1, len(low.rewards), A)), jnp.zeros((1, len(low.rewards)))

    def loss(values: jax.Array) -> jax.Array:
        return critic_loss(values, nets, batch, jnp.ones(2), low, drawn, real, jnp.float32(beta))[0]

    values, slope = jnp.zeros(2), jax.jit(jax.grad(loss))
    for _ in range(60):
        values = values - 0.5 * slope(values)
    np.testing.assert_allclose(values, [1 + share * beta, 1 - share * beta], rtol=1e-4)
