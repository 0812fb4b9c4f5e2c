"""How the methods differ: MOPO's rewards, MOBILE's targets, RAVL's critics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import coefficients, settings
from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.offline.agents.sac import SacConfig, bellman_target
from jaxrl_rollouts.offline.agents.soft import make_nets
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.methods import METHODS
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.combo import Combo
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.model_based import Imagination, ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples, Rolled, Uncertainty
from jaxrl_rollouts.rollouts import Model, step_result

SAC = SacConfig(num_critics=2, eta=0.0, hidden_dims=(8,))
E, S, A = 3, 2, 1
PARAMS = {"shift": jnp.array([-1.0, 0.5, 2.0]), "noise": 0.0}


def step(params: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    following = s + a + params["shift"][member][:, None]
    return following, step_result(len(s), reward=s[:, 0], uncertainty=2.0 + a[:, 0])


def sample_elites(params: Any, key: Any, s: Any, a: Any) -> EliteSamples:
    noise = params["noise"] * jax.random.normal(key, (E, *s.shape))
    following = s + a + params["shift"][:, None, None] + noise
    rewards = jnp.broadcast_to(s[:, 0], (E, len(s)))
    return EliteSamples(rewards, following, jnp.zeros((E, len(s)), bool))


SHIFTED = Dynamics(Model(step), sample_elites, E)
CADENCE: dict[str, Any] = {
    "rollouts": Rollouts(length=2, batch_size=6, retain_epochs=2, every=1),
    "batch_size": 8,
    "real_ratio": 0.5,
}


def dataset() -> Transitions:
    rng = np.random.default_rng(0)
    s, n = (jnp.asarray(rng.normal(size=(20, S)), jnp.float32) for _ in range(2))
    a, r = jnp.asarray(rng.uniform(-1, 1, (20, A)), jnp.float32), jnp.full((20,), 100.0)
    return Transitions(s, a, r, n, jnp.zeros(20, bool), jnp.zeros(20, bool))


def an_epoch(method: ModelBased) -> tuple:
    built = bind(method.program(), SHIFTED, S, A)
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    data = Imagination(dataset(), PARAMS, own, jnp.ones(()))
    return jax.jit(built.update)(built.init(jax.random.key(0), data), data)


def test_mopos_penalty_arrives_in_the_buffer() -> None:
    state, metrics = an_epoch(Mopo(agent=SAC, penalty=0.7, **CADENCE))
    rows = jax.tree.map(lambda x: x[: int(state.imagined.size)], state.imagined.rows)
    assert len(rows.rewards) == 12
    uncertainty = 2.0 + rows.actions[:, 0]
    np.testing.assert_allclose(rows.rewards, rows.observations[:, 0] - 0.7 * uncertainty, rtol=1e-5)
    np.testing.assert_allclose(metrics["imagined_uncertainty"], uncertainty.mean(), rtol=1e-5)
    # The logged reward is the model's, before the penalty.
    np.testing.assert_allclose(
        metrics["imagined_reward"], rows.observations[:, 0].mean(), rtol=1e-4
    )


@pytest.mark.parametrize(
    "kind", [Mobile, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (Ravl, Combo))]
)
def test_others_keep_the_models_rewards(kind: type[ModelBased]) -> None:
    state, _ = an_epoch(kind(agent=SAC, **CADENCE))
    rows = jax.tree.map(lambda x: x[: int(state.imagined.size)], state.imagined.rows)
    np.testing.assert_allclose(rows.rewards, rows.observations[:, 0], rtol=1e-6)


AGENT = SAC.make(S, A)
BATCH = jax.tree.map(lambda x: x[:5], dataset())
KEY = jax.random.key(2)


def agent_state() -> Any:
    """Target critics that differ from the critics, to see which are asked."""
    state = AGENT.init(jax.random.key(1))
    return state._replace(target_critic=jax.tree.map(lambda p: 3.0 * p, state.critic))


def inconsistency(state: Any, params: Any, samples: int, noise: str = "own") -> np.ndarray:
    method = Mobile(agent=SAC, num_samples=samples, sample_noise=noise)

    @jax.jit
    def of(state: Any, params: Any) -> jax.Array:
        world = Rolled(SHIFTED, params, jnp.ones(()))
        return method.inconsistency(AGENT, state, KEY, BATCH, world)

    return np.asarray(of(state, params))


def penalty_of(state: Any, params: Any, penalty: float, samples: int) -> np.ndarray:
    return penalty * inconsistency(state, params, samples)


def test_mobiles_penalty_is_its_formula() -> None:
    """Spread over members of the mean, over samples, of the least target critic."""
    params, samples, state = PARAMS | {"noise": 0.3}, 4, agent_state()
    draw, q_of = jax.jit(AGENT.sample), jax.jit(AGENT.q)
    estimates = np.zeros((samples, E, 5))
    for k, sample_key in enumerate(jax.random.split(KEY, samples)):
        model_key, action_key = jax.random.split(sample_key)
        following = sample_elites(
            params, model_key, BATCH.observations, BATCH.actions
        ).next_observations
        actions = draw(state.actor, action_key, following)[0]
        for e in range(E):
            q = np.asarray(q_of(state.target_critic, following[e], actions[e]))
            estimates[k, e] = np.minimum(q[0], q[1])
    mean = estimates.mean(0)
    want = 1.5 * np.sqrt(((mean - mean.mean(0)) ** 2).sum(0) / (E - 1))
    got = penalty_of(state, params, 1.5, samples)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)
    assert (got > 1e-3).all()


def test_mobile_is_silent_where_members_agree() -> None:
    agreeing, state = {"shift": jnp.ones(3), "noise": 0.0}, agent_state()

    def penalty(params: Any, samples: int, log_std: float) -> float:
        """With the policy's deviation set by hand."""
        head = jax.tree.map(jnp.zeros_like, state.actor["Dense_2"])
        head["bias"] = jnp.full((A,), log_std)
        actor = state.actor | {"Dense_2": head}  # Dense_1 is the mean's head
        return float(penalty_of(state._replace(actor=actor), params, 1.0, samples).mean())

    assert penalty(agreeing, 2, -5.0) < 0.02 * penalty(PARAMS, 2, -5.0)
    assert penalty(agreeing, 100, 0.0) < 0.5 * penalty(agreeing, 2, 0.0)  # averaged out
    agreeing, state = {"shift": jnp.ones(3), "noise": 0.0}, agent_state()
    assert inconsistency(state, agreeing, 1, "common").max() < 1e-6
    assert inconsistency(state, PARAMS, 1, "common").min() > 1e-3


def test_mobiles_targets_leave_the_entropy_out_and_end_at_a_floor() -> None:
    """Against numpy, from the authors' `clamp(r - beta u + gamma (1 - d) min Q', 0)`."""
    state = agent_state()
    actions, _ = AGENT.sample(state.actor, KEY, BATCH.next_observations)
    value = AGENT.q(state.target_critic, BATCH.next_observations, actions).min(0)
    hard = np.asarray(BATCH.rewards - 0.5 + SAC.discount * value)
    floor = float(np.median(hard))
    for least, want in ((None, hard), (floor, np.maximum(hard, floor))):
        agent = replace(SAC, backup_entropy=False, min_target=least)
        nets = make_nets(agent, S, A, agent.actor)
        got = bellman_target(nets, state, KEY, BATCH, 0.5)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (hard < floor).any()


@dataclass(frozen=True, kw_only=True)
class Loud(Mobile):
    """MOBILE with a penalty that is told by the rows it is of."""

    def inconsistency(self, agent: Any, state: Any, key: Any, batch: Any, world: Any) -> Any:
        return jnp.where(batch.rewards == 100.0, 1e8, 1e4)


def test_mobile_penalises_imagined_rows_only() -> None:
    """Dataset rows earn 100 and imagined ones little: the target's mean shows which are lowered."""
    target = float(an_epoch(Loud(agent=SAC, **CADENCE))[1]["target_mean"])
    assert target == pytest.approx(0.5 * 100 - 0.5 * 1e4, abs=20)  # half of the rows are imagined


def test_base_and_ravl_differ_in_their_critics_only() -> None:
    base, ravl = Base(), Ravl()
    assert (base.agent.num_critics, base.agent.eta) == (2, 0.0)
    assert (ravl.agent.num_critics, ravl.agent.eta) == (10, 1.0)
    ours, theirs = settings(base), settings(ravl)
    changed = {name for name in ours if ours[name] != theirs[name]}
    # Apart from the world models, which RAVL's authors fit with settings of their own.
    assert {n for n in changed if not n.startswith("world.")} == {"agent.num_critics", "agent.eta"}
    assert base.uncertainty() is ravl.uncertainty() is None


def test_what_a_method_reads_of_its_world_model() -> None:
    assert Mopo().uncertainty() == Uncertainty(max_aleatoric, "members")
    assert Mopo(penalty_scale="mean", penalty_members="elites").uncertainty() == Uncertainty(
        max_aleatoric, "elites", measured=True
    )
    assert Mobile().uncertainty() is None and Mobile(sample_noise="common").sampling() == "common"
    assert [METHODS[name].name for name in METHODS] == list(METHODS)
    # Equal settings are equal methods, so that what is built from them compiles once.
    assert Mobile(penalty=2.0, steps=3).program() == Mobile(penalty=0.5).program()
    assert hash(Mobile(penalty=2.0)) == hash(Mobile(penalty=2.0))


def test_the_highest_of_ten_actions_is_bootstrapped_from() -> None:
    """`r + gamma (1 - d) min_i max_k Q'_i(s', a_k)`; the entropy is not counted."""
    state, config = agent_state(), replace(SAC, max_q_backup=True)
    nets = make_nets(config, S, A, config.actor)
    values = []
    for key in jax.random.split(KEY, 10):
        actions, _ = AGENT.sample(state.actor, key, BATCH.next_observations)
        values.append(np.asarray(AGENT.q(state.target_critic, BATCH.next_observations, actions)))
    want = np.asarray(BATCH.rewards) + SAC.discount * np.max(values, 0).min(0)
    np.testing.assert_allclose(bellman_target(nets, state, KEY, BATCH), want, rtol=1e-5)
    plain = bellman_target(make_nets(SAC, S, A, SAC.actor), state, KEY, BATCH)
    assert np.abs(np.asarray(plain) - want).max() > 1e-3
