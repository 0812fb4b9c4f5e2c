"""Flow policies: densities, contraction and entropies from formulas, modes, refused settings."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents import bc, flow_actor
from jaxrl_rollouts.offline.agents.actors import ActorConfig
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.agents.soft import make_nets
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.saved_policies import policy_of, read_policy, save_policy

S, A, B = 3, 2, 5
KEY = jax.random.key(4)
SEEN = jax.random.normal(jax.random.key(1), (B, S))
HIDDEN = (8,)
FLOWS = ("plain", "gated")


def made(kind: str, steps: int = 3) -> tuple[flow_actor.FlowNets, Any]:
    """A flow and parameters whose heads are as wide as the other layers, so that it moves."""
    config = ActorConfig(kind=kind, steps=steps)
    nets = flow_actor.make_nets(config, HIDDEN, S, A)
    params = flow_actor.init(nets, jax.random.key(2))
    return nets, jax.tree.map(
        lambda leaf: jnp.where(jnp.abs(leaf) < 1e-3, 300 * leaf, leaf), params
    )


def normal(x: np.ndarray, mean: Any, std: Any) -> np.ndarray:
    return -0.5 * ((x - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)


@pytest.mark.parametrize("kind", FLOWS)
@pytest.mark.parametrize("steps", [1, 3])
def test_the_density_is_that_of_the_steps_by_hand(kind: str, steps: int) -> None:
    nets, params = made(kind, steps)
    taken, density = flow_actor.path(nets, params, KEY, SEEN)
    a = np.asarray(taken, np.float64)
    std = np.exp(np.asarray(flow_actor.log_std(nets, params["noise"], SEEN), np.float64))
    want = normal(a[0], 0.0, 1.0)
    for k in range(steps):
        v = flow_actor.velocity(nets, params, SEEN, taken[k], jnp.float32(k / steps))
        want += normal(a[k + 1], a[k] + np.asarray(v) / steps, std)
    np.testing.assert_allclose(density, want.sum(-1), rtol=1e-4, atol=1e-4)
    action, log_prob = flow_actor.sample(nets, params, KEY, SEEN)
    np.testing.assert_allclose(action, np.tanh(a[-1]), rtol=1e-5)
    squashed = (want - np.log(1 - np.tanh(a[-1]) ** 2 + 1e-6)).sum(-1)
    np.testing.assert_allclose(log_prob, squashed, rtol=1e-4, atol=1e-4)


def test_a_velocity_of_zero_leaves_noise_alone() -> None:
    nets, params = made("plain", 1)
    params = params | {"field": jax.tree.map(jnp.zeros_like, params["field"])}
    taken, _ = flow_actor.path(nets, params, KEY, SEEN)
    noise = jax.random.normal(KEY, (2 * B * A,)).reshape(2, B, A)
    std = jnp.exp(flow_actor.log_std(nets, params["noise"], SEEN))
    np.testing.assert_allclose(taken, [noise[0], noise[0] + std * noise[1]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", FLOWS)
def test_entropy_sees_the_noise_and_no_velocity(kind: str) -> None:
    """Before the tanh the gradient of the path's log-density by the velocity is exactly 0."""
    nets, params = made(kind)

    def of(function: Any) -> Any:
        slope = jax.grad(lambda params: function(nets, params, KEY, SEEN)[1].sum())(params)
        return {
            name: max(np.abs(leaf).max() for leaf in jax.tree.leaves(slope[name])) for name in slope
        }

    inner, outer = of(flow_actor.path), of(flow_actor.sample)
    moving = [name for name in params if name != "noise"]
    assert all(inner[name] == 0.0 for name in moving) and inner["noise"] > 0.1
    assert all(outer[name] > 0 for name in params), "the tanh sees all of it"


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_an_open_gate_forgets_its_noise(steps: int) -> None:
    """With a candidate of 0 and a gate of 1, a_K = (1 - 1/K)^K a_0."""
    start = jnp.linspace(-2.0, 2.0, 7)[:, None]
    end = flow_actor.follow(lambda a, t: 1.0 * (0.0 - a), start, jnp.zeros((steps, 7, 1)))[-1]
    np.testing.assert_allclose(end, (1 - 1 / steps) ** steps * start, rtol=1e-5, atol=1e-7)
    nets, params = made("gated", steps)
    params = flow_actor.init(nets, KEY)  # with its small heads: gate sigmoid(5), candidate near 0
    still = jnp.full((B, A), 1.0)
    moving = functools.partial(flow_actor.velocity, nets, params, SEEN)
    end = flow_actor.follow(moving, still, jnp.zeros((steps, B, A)))[-1]
    gate = 1 / (1 + math.exp(-flow_actor.OPEN))
    np.testing.assert_allclose(end, (1 - gate / steps) ** steps, atol=5e-3)


def test_euler_meets_the_exact_solution() -> None:
    """da/dt = -a + t from a(0) = 1: a(1) = 2 exp(-1)."""
    end = flow_actor.follow(lambda a, t: t - a, jnp.ones((1, 1)), jnp.zeros((2000, 1, 1)))[-1]
    np.testing.assert_allclose(end, 2 / math.e, atol=1e-3)


def test_the_target_entropy_asks_the_same_noise_of_any_number_of_steps() -> None:
    for steps in (1, 4, 16):
        for log_std in (-1.77, -3.0):
            config = SacConfig(hidden_dims=HIDDEN, actor=ActorConfig("plain", steps, log_std))
            entropy = make_nets(config, S, A, config.actor).target_entropy
            # A path of unit noise and K steps of sigma has this entropy: solved for log sigma.
            solved = (entropy / A - (steps + 1) * 0.5 * math.log(2 * math.pi * math.e)) / steps
            assert solved == pytest.approx(log_std, abs=1e-5)
    plain = SacConfig(hidden_dims=HIDDEN)
    assert make_nets(plain, S, A, plain.actor).target_entropy == -A
    given = SacConfig(hidden_dims=HIDDEN, target_entropy=0.5, actor=ActorConfig("gated"))
    assert make_nets(given, S, A, given.actor).target_entropy == 0.5


@pytest.mark.parametrize("kind", FLOWS)
def test_the_measured_entropy_is_the_formula(kind: str) -> None:
    nets, params = made(kind, 4)
    params = params | {"noise": jax.tree.map(jnp.zeros_like, params["noise"])}  # log sigma = -1.5
    seen = jnp.zeros((20_000, S))
    found = -flow_actor.path(nets, params, KEY, seen)[1].mean()
    np.testing.assert_allclose(found, flow_actor.path_entropy(4, -1.5, A), atol=0.05)


def test_a_gaussian_is_sac_as_it_was() -> None:
    """Settings of flows do nothing to it, and its network is the same tree."""
    plain = make_sac(SacConfig(hidden_dims=HIDDEN), S, A)
    other = make_sac(SacConfig(hidden_dims=HIDDEN, actor=ActorConfig(steps=9, log_std=-3.0)), S, A)
    states = [agent.init(KEY) for agent in (plain, other)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert set(states[0].actor) == {"Dense_0", "Dense_1", "Dense_2"}
    drawn = [
        agent.sample(state.actor, KEY, SEEN)
        for agent, state in zip((plain, other), states, strict=True)
    ]
    jax.tree.map(np.testing.assert_array_equal, *drawn)


@pytest.mark.parametrize(
    ("actor", "setting"),
    [({"steps": 0}, "actor.steps"), ({"log_std": 3.0}, "actor.log_std")],
)
def test_settings_are_checked(actor: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_sac(SacConfig(hidden_dims=HIDDEN, actor=ActorConfig("plain", **actor)), S, A)
    assert caught.value.setting == setting
    with pytest.raises(ConfigError, match="flow_steps"):
        bc.make_bc(BcConfig(flow_steps=0), S, A)


def two_modes(rows: int = 4096) -> Transitions:
    """In every state the data do -0.7 or 0.7, as often."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=(rows, S)).astype(np.float32)
    a = 0.7 * rng.choice([-1.0, 1.0], (rows, 1)) + 0.02 * rng.normal(size=(rows, 1))
    none = np.zeros(rows, bool)
    return Transitions(s, a.astype(np.float32), np.zeros(rows, np.float32), s, none, none)


def cloned(config: BcConfig, iterations: int = 6) -> Any:
    learner = make_model_free(config, S, 1, batch_size=256, per_iteration=200)
    keys = jax.random.split(jax.random.key(0), 1)
    trained = train_loop(
        learner.update,
        learner.init,
        keys,
        to_device(two_modes()),
        iterations=iterations,
        stage="bc",
    )
    actors = trained.state.agent.actor
    return learner.agent, jax.tree.map(lambda leaf: leaf[0], actors), actors


def test_flow_matching_clones_both_modes_where_the_mean_is_neither(tmp_path: Path) -> None:
    net: dict[str, Any] = {"hidden_dims": (32, 32), "actor_lr": 3e-3}
    seen = jax.random.normal(KEY, (1000, S))
    agent, actor, _ = cloned(BcConfig(**net))
    mean = np.asarray(agent.policy(actor, KEY, seen, ())[0])
    assert (np.abs(mean) < 0.4).mean() > 0.9
    config = BcConfig(**net, flow_steps=8)
    agent, actor, actors = cloned(config)
    drawn = np.asarray(agent.policy(actor, KEY, seen, ())[0])
    for mode in (-0.7, 0.7):
        assert (np.abs(drawn - mode) < 0.2).mean() > 0.3
    assert agent.gaussian is None and agent.normalise, "nothing is guided by it"
    still, _ = agent.greedy(actor, KEY, seen, ())
    np.testing.assert_array_equal(still, agent.greedy(actor, jax.random.key(9), seen, ())[0])
    # It is saved and read as every policy is.
    save_policy(tmp_path / "policy", config, actors, sizes=(S, 1))
    read = read_policy(tmp_path / "policy")
    again, _ = read.agent.policy(read.actor(0), KEY, seen, ())
    np.testing.assert_array_equal(again, drawn)


def test_the_flow_matching_loss_is_the_formula() -> None:
    config = BcConfig(hidden_dims=HIDDEN, flow_steps=2)
    agent = bc.make_bc(config, S, 1)
    state = agent.init(KEY)
    nets = agent.update.args[0]
    rows = jax.tree.map(jnp.asarray, two_modes(B))
    loss, _ = bc.flow_loss(state.actor.net, nets, state.actor.scaler, KEY, rows)
    start_key, time_key = jax.random.split(KEY)
    a0 = np.asarray(jax.random.normal(start_key, (B, 1)), np.float64)
    t = np.asarray(jax.random.uniform(time_key, (B,)), np.float64)
    a = np.asarray(rows.actions, np.float64)
    at = (1 - t[:, None]) * a0 + t[:, None] * a
    waves = [t[:, None]] + [f(np.pi * t[:, None] * np.arange(1, 5)) for f in (np.sin, np.cos)]
    x = np.concatenate([rows.observations, at, *waves], -1)
    first, head = (state.actor.net[name] for name in ("Dense_0", "Dense_1"))
    h = x @ np.asarray(first["kernel"]) + np.asarray(first["bias"])
    v = h / (1 + np.exp(-h)) @ np.asarray(head["kernel"]) + np.asarray(head["bias"])
    np.testing.assert_allclose(loss, ((v - (a - a0)) ** 2).mean(), rtol=1e-4)


def test_a_flow_of_sac_is_saved_and_read(tmp_path: Path) -> None:
    config = SacConfig(hidden_dims=HIDDEN, actor=ActorConfig("gated", 2))
    agent = make_sac(config, S, A)
    actors = jax.vmap(lambda key: agent.init(key).actor)(jax.random.split(KEY, 2))
    save_policy(tmp_path / "policy", config, actors, sizes=(S, A))
    read = read_policy(tmp_path / "policy")
    one = jax.tree.map(lambda leaf: leaf[1], actors)
    found, want = (f(one, KEY, SEEN)[0] for f in (read.agent.sample, agent.sample))
    np.testing.assert_array_equal(found, want)
    # Policies of before there were flows say nothing of an actor: they are normal.
    facts = policy_of(replace(config, actor=ActorConfig()), actors, sizes=(S, A)).facts
    assert facts["agent"]["actor"]["kind"] == "gaussian"
