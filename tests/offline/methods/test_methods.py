"""How the methods differ: MOPO's rewards, MOBILE's targets, RAVL's critics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.sac import SacConfig, bellman_target
from jaxrl_rollouts.offline.agents.soft import make_nets
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.methods.mobile import bellman_inconsistency
from jaxrl_rollouts.offline.methods.registry import (
    NAMES,
    MethodConfig,
    Mobile,
    Mopo,
    Ravl,
    make_method,
)
from jaxrl_rollouts.offline.methods.scheme import (
    Method,
    ModelBasedConfig,
    imagination,
    make_model_based,
)
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, Imagined
from jaxrl_rollouts.rollouts import Model, outcome

SAC = SacConfig(num_critics=2, eta=0.0, hidden=(8,))
E, S, A = 3, 2, 1
PARAMS = {"shift": jnp.array([-1.0, 0.5, 2.0]), "noise": 0.0}


def step(params: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    following = s + a + params["shift"][member][:, None]
    return following, outcome(len(s), reward=s[:, 0], uncertainty=2.0 + a[:, 0])


def imagine(params: Any, key: Any, s: Any, a: Any) -> Imagined:
    noise = params["noise"] * jax.random.normal(key, (E, *s.shape))
    following = s + a + params["shift"][:, None, None] + noise
    rewards = jnp.broadcast_to(s[:, 0], (E, len(s)))
    return Imagined(rewards, following, jnp.zeros((E, len(s)), bool))


SHIFTED = Dynamics(Model(step), imagine, E)
CADENCE = ModelBasedConfig(
    horizon=2,
    rollouts_per_epoch=6,
    epochs_retained=2,
    updates_per_epoch=1,
    batch_size=8,
    real_ratio=0.5,
)


def dataset() -> Transitions:
    rng = np.random.default_rng(0)
    s, n = (jnp.asarray(rng.normal(size=(20, S)), jnp.float32) for _ in range(2))
    a, r = jnp.asarray(rng.uniform(-1, 1, (20, A)), jnp.float32), jnp.full((20,), 100.0)
    return Transitions(s, a, r, n, jnp.zeros(20, bool), jnp.zeros(20, bool))


def an_epoch(method: Method) -> tuple:
    built = make_model_based(CADENCE, method, SHIFTED, S, A)
    data = imagination(method, dataset(), PARAMS)
    return jax.jit(built.update)(built.init(jax.random.key(0), data), data)


def test_mopos_penalty_arrives_in_the_buffer() -> None:
    state, metrics = an_epoch(make_method("mopo", SAC, MethodConfig(mopo=Mopo(0.7))))
    rows = jax.tree.map(lambda x: x[: int(state.imagined.size)], state.imagined.rows)
    assert len(rows.rewards) == 12
    uncertainty = 2.0 + rows.actions[:, 0]
    np.testing.assert_allclose(rows.rewards, rows.observations[:, 0] - 0.7 * uncertainty, rtol=1e-5)
    np.testing.assert_allclose(metrics["imagined_uncertainty"], uncertainty.mean(), rtol=1e-5)
    # The logged reward is the model's, before the penalty.
    np.testing.assert_allclose(
        metrics["imagined_reward"], rows.observations[:, 0].mean(), rtol=1e-4
    )


@pytest.mark.parametrize("name", ["mobile", "ravl"])
def test_others_keep_the_models_rewards(name: str) -> None:
    state, _ = an_epoch(make_method(name, SAC))
    rows = jax.tree.map(lambda x: x[: int(state.imagined.size)], state.imagined.rows)
    np.testing.assert_allclose(rows.rewards, rows.observations[:, 0], rtol=1e-6)


AGENT = make_model_based(CADENCE, make_method("base", SAC), SHIFTED, S, A).agent
BATCH = jax.tree.map(lambda x: x[:5], dataset())
KEY = jax.random.key(2)


def agent_state() -> Any:
    """Target critics that differ from the critics, to see which are asked."""
    state = AGENT.init(jax.random.key(1))
    return state._replace(target_critic=jax.tree.map(lambda p: 3.0 * p, state.critic))


def penalty_of(state: Any, params: Any, penalty: float, samples: int) -> np.ndarray:
    inconsistency = jax.jit(bellman_inconsistency(samples, "own"), static_argnums=(0, 1))
    return penalty * np.asarray(inconsistency(AGENT, SHIFTED, state, params, KEY, BATCH))


def test_mobiles_penalty_is_its_formula() -> None:
    """Spread over members of the mean, over samples, of the least target critic."""
    params, samples, state = PARAMS | {"noise": 0.3}, 4, agent_state()
    draw, q_of = jax.jit(AGENT.sample), jax.jit(AGENT.q)
    estimates = np.zeros((samples, E, 5))
    for k, sample_key in enumerate(jax.random.split(KEY, samples)):
        model_key, action_key = jax.random.split(sample_key)
        following = imagine(params, model_key, BATCH.observations, BATCH.actions).next_observations
        actions = draw(state.actor, action_key, following)[0]
        for e in range(E):
            q = np.asarray(q_of(state.target_critic, following[e], actions[e]))
            estimates[k, e] = np.minimum(q[0], q[1])
    mean = estimates.mean(0)
    want = 1.5 * np.sqrt(((mean - mean.mean(0)) ** 2).sum(0) / (E - 1))
    got = penalty_of(state, params, 1.5, samples)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)
    assert (got > 1e-3).all()


def test_mobile_is_silent_where_members_agree_but_for_the_policys_noise() -> None:
    agreeing, state = {"shift": jnp.ones(3), "noise": 0.0}, agent_state()

    def penalty(params: Any, samples: int, log_std: float) -> float:
        """With the policy's deviation set by hand."""
        head = jax.tree.map(jnp.zeros_like, state.actor["Dense_2"])
        head["bias"] = jnp.full((A,), log_std)
        actor = state.actor | {"Dense_2": head}  # Dense_1 is the mean's head
        return float(penalty_of(state._replace(actor=actor), params, 1.0, samples).mean())

    assert penalty(agreeing, 2, -5.0) < 0.02 * penalty(PARAMS, 2, -5.0)
    assert penalty(agreeing, 100, 0.0) < 0.5 * penalty(agreeing, 2, 0.0)  # averaged out


def test_mobile_is_silent_where_members_agree_and_draw_alike() -> None:
    agreeing, state = {"shift": jnp.ones(3), "noise": 0.0}, agent_state()
    common = jax.jit(bellman_inconsistency(1, "common"), static_argnums=(0, 1))
    assert float(common(AGENT, SHIFTED, state, agreeing, KEY, BATCH).max()) < 1e-6
    assert float(common(AGENT, SHIFTED, state, PARAMS, KEY, BATCH).min()) > 1e-3


def test_mobiles_targets_leave_the_entropy_out_and_end_at_a_floor() -> None:
    """Against numpy, from the authors' `clamp(r - beta u + gamma (1 - d) min Q', 0)`."""
    state = agent_state()
    actions, _ = AGENT.sample(state.actor, KEY, BATCH.next_observations)
    value = AGENT.q(state.target_critic, BATCH.next_observations, actions).min(0)
    hard = np.asarray(BATCH.rewards - 0.5 + SAC.discount * value)
    floor = float(np.median(hard))
    for least, want in ((None, hard), (floor, np.maximum(hard, floor))):
        settings = MethodConfig(mobile=Mobile(min_target=least))
        agent = make_method("mobile", SAC, settings).agent
        nets = make_nets(agent, S, A, agent.actor)
        got = bellman_target(nets, state, KEY, BATCH, 0.5)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (hard < floor).any()


def test_mobile_penalises_imagined_rows_only() -> None:
    """Dataset rows earn 100 and imagined ones little: the target's mean shows who was lowered."""

    def loud(agent: Any, dynamics: Any, state: Any, world: Any, key: Any, batch: Any) -> Any:
        return jnp.where(batch.rewards == 100.0, 1e8, 1e4)

    method = make_method("base", SAC)._replace(coefficient=1.0, bellman_penalty=loud)
    target = float(an_epoch(method)[1]["target_mean"])
    assert target == pytest.approx(0.5 * 100 - 0.5 * 1e4, abs=20)  # half of the rows are imagined


def test_base_and_ravl_differ_in_their_critics_only() -> None:
    settings = MethodConfig(ravl=Ravl(5, 3.0))
    base, ravl = (make_method(name, SAC, settings) for name in ("base", "ravl"))
    assert (base.agent.num_critics, base.agent.eta) == (2, 0.0)
    assert (ravl.agent.num_critics, ravl.agent.eta) == (5, 3.0)
    assert replace(ravl.agent, num_critics=2, eta=0.0) == base.agent
    assert base[2:] == ravl[2:] == Method("", SAC)[2:]
    state = make_model_based(CADENCE, ravl, SHIFTED, S, A).init(
        jax.random.key(0), imagination(ravl, dataset(), PARAMS)
    )
    assert state.agent.critic["Dense_0"]["kernel"].shape[0] == 5


def test_mopo_and_mobile_are_base_with_a_penalty() -> None:
    settings = MethodConfig(mopo=Mopo(2.5), mobile=Mobile(0.5, 3))
    base, mopo, mobile = (make_method(n, SAC, settings) for n in ("base", "mopo", "mobile"))
    assert mopo == base._replace(
        name="mopo",
        coefficient=2.5,
        disagreement=max_aleatoric,
        penalty_members="members",
        penalise_rewards=True,
    )
    penalty = bellman_inconsistency(3, "own")
    hard = replace(base.agent, backup_entropy=False)
    assert mobile == base._replace(
        name="mobile", agent=hard, coefficient=0.5, bellman_penalty=penalty
    )
    assert [make_method(name, SAC).name for name in NAMES] == list(NAMES)
    # Equal settings are equal methods, so that what is built from them compiles once.
    assert make_method("mobile", SAC, settings) == mobile
    assert hash(make_method("mobile", SAC, settings)) == hash(mobile)


@pytest.mark.parametrize(
    ("name", "settings", "setting"),
    [
        ("cql", {}, "method"),
        ("mopo", {"mopo": Mopo(-1.0)}, "penalty"),
        ("mobile", {"mobile": Mobile(-1.0)}, "penalty"),
        ("mobile", {"mobile": Mobile(samples=0)}, "samples"),
    ],
)
def test_bad_settings(name: str, settings: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_method(name, SAC, MethodConfig(**settings))
    assert caught.value.setting == setting
