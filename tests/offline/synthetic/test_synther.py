"""SynthER: rows and back, sampling with a known denoiser, mixing, and what quality means."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    ResidualMlp,
    SamplerConfig,
    make_denoiser,
)
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.errors import ConfigError, DivergenceError
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.synthetic.synther import (
    MixedData,
    SyntherConfig,
    fit_layout,
    generate,
    mixing,
    upsample,
)

S, A, KEY = 3, 2, jax.random.key(0)


def rows(seed: int = 0, count: int = 400, ending: float = 0.05) -> Transitions:
    rng = np.random.default_rng(seed)
    s = rng.normal(2.0, 3.0, (count, S)).astype(np.float32)
    a = np.tanh(rng.normal(size=(count, A))).astype(np.float32)
    following = (s + 0.1 * a.sum(1, keepdims=True)).astype(np.float32)
    done = rng.random(count) < ending
    return Transitions(s, a, s[:, 0] * 0.5, following, done, np.zeros(count, bool))


@given(seed=st.integers(0, 1000), ending=st.sampled_from([0.0, 0.2]))
def test_rows_and_back(seed: int, ending: float) -> None:
    data = rows(seed, 40, ending)
    layout = fit_layout(data)
    packed = layout.pack(data)
    assert packed.shape == (40, layout.features)
    assert layout.terminals == bool(data.terminations.any())
    assert layout.features == 2 * S + A + 1 + layout.terminals
    back = layout.unpack(packed)
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_allclose(getattr(back, name), getattr(data, name), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(back.terminations, data.terminations)
    assert not np.asarray(back.truncations).any()


def test_columns_are_white_but_the_terminal_one() -> None:
    data = rows()
    packed = np.asarray(fit_layout(data).pack(data))
    np.testing.assert_allclose(packed[:, :-1].mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(packed[:, :-1].std(0), 1.0, rtol=1e-3)
    np.testing.assert_array_equal(packed[:, -1], data.terminations)


def test_constant_columns_come_back_and_actions_stay_inside() -> None:
    data = rows()._replace(rewards=np.full(400, 7.0, np.float32))
    layout = fit_layout(data)
    wild = layout.unpack(layout.pack(data).at[:, S : S + A].mul(10.0))
    assert np.abs(wild.actions).max() == 1.0
    np.testing.assert_allclose(wild.rewards, 7.0)


def exact_model(data: Transitions) -> tuple[Any, Any]:
    """A denoiser that is exact for normal rows with the dataset's own mean and covariance."""
    layout = fit_layout(data)
    packed = layout.pack(data)
    denoise = gaussian_denoise(packed.mean(0), jnp.cov(packed.T))
    nothing = make_denoiser(Network(lambda key: (), lambda p, x, c: x))
    return nothing._replace(denoise=denoise), layout


def test_generated_rows_have_the_datas_moments() -> None:
    data = rows()
    denoiser, layout = exact_model(data)
    config = SamplerConfig(32, churn=0.0)
    drawn = generate(denoiser, (), KEY, layout, 5000, config=config, batch=2000)
    assert drawn.rewards.shape == (5000,) and drawn.terminations.dtype == bool
    np.testing.assert_allclose(drawn.observations.mean(0), data.observations.mean(0), atol=0.2)
    np.testing.assert_allclose(drawn.observations.std(0), data.observations.std(0), rtol=0.06)
    # The reward is half the first entry, on every generated row as well.
    np.testing.assert_allclose(drawn.rewards, 0.5 * drawn.observations[:, 0], atol=0.05)
    again = generate(denoiser, (), KEY, layout, 5000, config=config, batch=2000)
    np.testing.assert_array_equal(again.rewards, drawn.rewards)
    assert len(np.unique(np.asarray(drawn.rewards))) > 4900  # batches differ from each other


def test_rows_that_are_not_finite_are_an_error() -> None:
    denoiser, layout = exact_model(rows())
    sick = denoiser._replace(
        denoise=lambda p, x, sigma: x / jnp.where(jnp.arange(len(x)) == 3, 0.0, 1.0)[:, None] * 0.0
    )
    with pytest.raises(DivergenceError, match="1 of 8 generated rows"):
        generate(sick, (), KEY, layout, 8, config=SamplerConfig(2))
    with pytest.raises(ConfigError, match="count, batch"):
        generate(denoiser, (), KEY, layout, 0)


@pytest.mark.slow
def test_the_trained_parts_fit_together() -> None:
    data = rows(0, 64)
    config = SyntherConfig(
        network=ResidualMlp(width=16, blocks=1, embedding=8),
        training=DenoiserTrainingConfig(steps=4, batch=8, per_iteration=4),
        sampler=SamplerConfig(4),
    )
    drawn = upsample(data, config, KEY, 10, batch=4)
    assert drawn.observations.shape == (10, S) and all(np.isfinite(x).all() for x in drawn)


@pytest.mark.parametrize(("share", "real"), [(0.0, 0), (1 / 16, 1), (0.5, 8), (1.0, 16)])
def test_batches_are_mixed_as_asked(share: float, real: int) -> None:
    data = MixedData(
        *(to_device(rows(i)._replace(rewards=np.full(400, float(i), np.float32))) for i in (0, 1))
    )
    batch = mixing(share)(data, KEY, 16)
    np.testing.assert_array_equal(batch.rewards, np.repeat([0.0, 1.0], [real, 16 - real]))
    assert mixing(share) is mixing(share)


def test_an_agent_learns_from_mixed_data_with_the_real_statistics() -> None:
    real, synthetic = rows(0), rows(1)
    synthetic = synthetic._replace(observations=synthetic.observations + 100.0)
    data = MixedData(to_device(real), to_device(synthetic))
    agent = make_model_free(
        Td3BcConfig(hidden_dims=(8,)), S, A, batch_size=8, per_iteration=2, draw=mixing(0.5)
    )
    state = agent.init(KEY, data)
    np.testing.assert_allclose(state.agent.actor.scaler.mean, real.observations.mean(0), rtol=1e-4)
    _, metrics = jax.jit(agent.update)(state, data)
    assert all(np.isfinite(value) for value in metrics.values())
