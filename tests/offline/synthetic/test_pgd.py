"""Guided windows act as the policy does; refreshes follow it and compile once."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import logged

from jaxrl_rollouts.diffusion import (
    GuidanceConfig,
    SamplerConfig,
    make_denoiser,
)
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.errors import ConfigError, DivergenceError
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.synthetic.pgd import (
    PgdConfig,
    PgdData,
    make_pgd,
    policy_target,
)
from jaxrl_rollouts.offline.synthetic.relabel import Relabeller, along
from jaxrl_rollouts.offline.synthetic.windows import (
    cut_windows,
    fit_window_layout,
    generate_windows,
)
from jaxrl_rollouts.rollouts import Model, step_result

S, A, KEY = 2, 1, jax.random.key(0)


def setting(length: int = 5) -> tuple[Any, Any, Transitions, list]:
    """Windows of episodes with a fall, and a denoiser that is exact for normal windows."""
    data = logged(*[30] * 20, ended=tuple(range(20)))
    data = data._replace(
        observations=data.observations % 100 / 10,
        next_observations=data.next_observations % 100 / 10,
    )
    windows = cut_windows(data, length, 2)
    layout = fit_window_layout(windows)
    flat = layout.pack(windows).reshape(-1, length * layout.channels)
    covariance = jnp.cov(flat.T) + 1e-3 * jnp.eye(flat.shape[1])
    exact, traces = gaussian_denoise(flat.mean(0), covariance), []

    def denoise(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        traces.append(1)
        return exact(None, x.reshape(len(x), -1), sigma).reshape(x.shape)

    nothing = make_denoiser(Network(lambda key: (), lambda p, x, c: x))
    return nothing._replace(denoise=denoise), layout, data, traces


SMALL = PgdConfig(
    guidance=GuidanceConfig(rule="calibrated"),
    guidance_scale=8.0,
    sampler=SamplerConfig(16),
    windows=64,
    steps=4,
    lifetime=2,
)
AGENT = Td3BcConfig(hidden_dims=(8,), alpha=0.0, normalize_obs=False)


def test_windows_are_generated_in_whole_batches_and_cut() -> None:
    denoiser, layout, _, _ = setting()
    sizes: dict[str, Any] = {"config": SamplerConfig(8), "batch": 4}
    drawn = generate_windows(denoiser, (), KEY, layout, 10, **sizes)
    assert drawn.shape == (10, layout.length, layout.channels)
    assert len(np.unique(drawn[:, 0, 0])) == 10
    lost = denoiser._replace(denoise=lambda params, x, sigma: x * jnp.nan)
    with pytest.raises(DivergenceError, match="windows"):
        generate_windows(lost, (), KEY, layout, 10, **sizes)


def test_target_is_the_policys_density_and_its_slope() -> None:
    _, layout, _, _ = setting()
    target = policy_target(lambda actor, s: (0.1 * s[..., :1], jnp.float32(0.5)), layout)
    rows = jax.random.normal(KEY, (3, 5, layout.channels))
    plain = np.asarray(layout.scaler.denormalise(rows), np.float64)[:, :-1]
    a = np.tanh(plain[..., 2:3])
    scaled = (a - 0.1 * plain[..., :1]) / 0.5
    want = (-0.5 * scaled**2 - math.log(0.5) - 0.5 * math.log(2 * math.pi)).sum((1, 2))
    np.testing.assert_allclose(target.log_prob((), rows), want, rtol=1e-4)
    assert target.precision is not None
    found = target.precision((), rows)
    assert found.shape == (3, 5, 1) and (found[:, -1] == 0).all()
    inner = ((1 - a**2) * float(layout.scaler.std[2]) / 0.5) ** 2
    np.testing.assert_allclose(found[:, :-1], inner, rtol=1e-3)
    wrong = policy_target(lambda actor, s: (s, s), layout)
    with pytest.raises(ConfigError, match="policy: found '2 actions'"):
        wrong.log_prob((), rows)


@pytest.mark.parametrize(("rule", "strength"), [("published", 0.06), ("calibrated", 4.0)])
def test_guided_windows_act_as_the_policy_does(rule: Any, strength: float) -> None:
    denoiser, layout, data, _ = setting()
    guidance = GuidanceConfig(rule=rule, reference_steps=256 if rule == "published" else None)
    config = PgdConfig(
        guidance=guidance,
        guidance_scale=strength,
        sampler=SamplerConfig(16, churn=0.0),
        windows=256,
        steps=2,
    )
    pgd, shared = make_pgd(config, AGENT, denoiser, layout), PgdData(to_device(data), ())
    state, imagine = pgd.init(KEY, shared), jax.jit(pgd.imagine)
    gaps = []
    for refreshes in (0, 1):  # before the first one nothing is guided
        rows = imagine(state._replace(refreshes=jnp.int32(refreshes)), KEY, shared)
        made, _ = layout.unpack(rows)
        gaps.append(
            float(
                jnp.square(
                    made.actions - pgd.agent.gaussian(state.agent.actor, made.observations)[0]
                ).mean()
            )
        )
    assert gaps[1] < 0.5 * gaps[0], gaps


def test_refreshes_follow_the_policy_in_one_program() -> None:
    denoiser, layout, data, traces = setting()
    pgd = make_pgd(SMALL, AGENT, denoiser, layout, batch_size=32)
    shared = PgdData(to_device(data), ())
    states = jax.vmap(pgd.init, (0, None))(jax.random.split(KEY, 2), shared)
    update = jax.jit(jax.vmap(pgd.update, (0, None)))
    capacity = 2 * 64 * 4
    assert states.synthetic.rows.rewards.shape == (2, capacity)
    states, first = update(states, shared)
    before = len(traces)
    assert (states.synthetic.size <= capacity // 2).all()
    states, second = update(states, shared)
    assert len(traces) == before and (states.refreshes == 2).all()
    assert (states.synthetic.size > capacity // 2).all()
    # The first refresh is unguided, the second is not.
    assert (second["action_gap"] < 0.6 * first["action_gap"]).all()
    assert all(np.isfinite(value).all() for value in second.values())
    # Falls are in the data, so they are in what the agents see.
    assert (first["synthetic_terminations"] > 0).all()
    assert np.asarray(states.synthetic.rows.terminations).any()


def test_refreshes_are_relabelled_as_trajectories() -> None:
    """By a model of one's own: states double, the reward is the action, and below zero it ends."""
    denoiser, layout, data, _ = setting()

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> Any:
        found = {"reward": action[:, 0], "uncertainty": jnp.zeros(len(action))}
        return 2.0 * state, step_result(len(action), terminated=params + state[:, 1] < 0.0, **found)

    relabeller = Relabeller(along(Model(step), 1), jnp.float32(0.0), jnp.float32(1.0))
    pgd = make_pgd(SMALL, AGENT, denoiser, layout, relabeller, batch_size=32)
    shared = PgdData(to_device(data), (), relabeller.data)
    state, metrics = jax.jit(pgd.update)(pgd.init(KEY, shared), shared)
    assert np.isfinite(metrics["critic_loss"])
    made = jax.tree.map(lambda x: np.asarray(x)[: int(state.synthetic.size)], state.synthetic.rows)
    np.testing.assert_allclose(made.next_observations, 2.0 * made.observations, rtol=1e-6)
    np.testing.assert_array_equal(made.rewards, made.actions[:, 0])
    np.testing.assert_array_equal(made.terminations, made.observations[:, 1] < 0.0)
    # Windows, steps beside each other: one goes on where the one before led, unless it was cut.
    within = ~(made.truncations | made.terminations)[:-1]
    assert within.any()
    np.testing.assert_array_equal(
        made.next_observations[:-1][within], made.observations[1:][within]
    )


def test_pgd_settings_are_checked() -> None:
    denoiser, layout, _, _ = setting()
    with pytest.raises(ConfigError, match="steps: found 3"):
        make_pgd(PgdConfig(steps=3), AGENT, denoiser, layout)
    with pytest.raises(ConfigError, match="normal policy"):
        make_pgd(SMALL, SacConfig(), denoiser, layout)
    assert make_pgd(SMALL, IqlConfig(hidden_dims=(8,)), denoiser, layout).agent.period == 1
