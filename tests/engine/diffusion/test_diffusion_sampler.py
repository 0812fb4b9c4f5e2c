"""The sampler on data whose denoiser is known: moments, order, number of calls, compilations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import wrong

from jaxrl_rollouts.diffusion import EdmConfig, Guidance, SamplerConfig, noise_levels, sample
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.sampler import churn_factors
from jaxrl_rollouts.errors import ConfigError

KEY = jax.random.key(0)
MEAN, COVARIANCE = jnp.array([0.5, -1.0]), jnp.array([[1.2, 0.6], [0.6, 0.7]])
CORRELATED = gaussian_denoise(MEAN, COVARIANCE)


def unit(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
    """Exact for standard normal data."""
    return x / (1.0 + jnp.square(sigma))


# What the algorithm gives at each number of steps: churn raises the variance, order two lowers it.
@pytest.mark.parametrize(
    ("steps", "churned", "plain"),
    [
        (16, 1.134, 1.056),
        (32, 1.046, 1.011),
        pytest.param(64, 1.020, 1.001, marks=pytest.mark.slow),
    ],
)
def test_spread_of_unit_normal_samples(steps: int, churned: float, plain: float) -> None:
    drawn = sample(unit, None, KEY, (200_000, 1), config=SamplerConfig(steps))
    np.testing.assert_allclose(drawn.std(), churned, atol=0.006)
    drawn = sample(unit, None, KEY, (200_000, 1), config=SamplerConfig(steps, churn=0.0))
    np.testing.assert_allclose(drawn.std(), plain, atol=0.006)
    np.testing.assert_allclose(drawn.mean(), 0.0, atol=0.01)


def test_mean_and_covariance() -> None:
    drawn = sample(CORRELATED, None, KEY, (50_000, 2), config=SamplerConfig(64, churn=0.0))
    np.testing.assert_allclose(drawn.mean(0), MEAN, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, atol=0.03)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("heun", 2), ("dpmpp_2m", 2)])
def test_order_of_convergence(method: Any, order: int) -> None:
    """Unit normal data: the exact path is x(0) = x(80) / sqrt(1 + 80^2)."""
    start_key, _ = jax.random.split(KEY)
    start = 80.0 * jax.random.normal(start_key, (100, 1))
    exact = start / jnp.sqrt(1.0 + 80.0**2)
    errors = []
    for steps in (16, 32, 64):
        drawn = sample(
            unit, None, KEY, (100, 1), config=SamplerConfig(steps, method=method, churn=0.0)
        )
        errors.append(float(jnp.abs(drawn / exact - 1.0).max()))
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    # The levels crowd towards zero, so the order shows fully only over many steps.
    assert (rates > order - 0.25).all() and (rates < order + 0.8).all(), (errors, rates)


def published_2m(config: SamplerConfig, denoise: Any, x: np.ndarray, key: jax.Array) -> np.ndarray:
    """DPM-Solver++(2M) in float64 as k-diffusion has it (SDE by the midpoint; eta 0: the ODE)."""
    levels, before, last = noise_levels(config.num_steps, EdmConfig()), None, 0.0
    for i in range(config.num_steps):
        sigma, following = levels[i], levels[i + 1]
        clean = denoise(x, sigma)
        if following == 0:
            return clean
        h = -np.log(following) + np.log(sigma)
        decay = config.eta * h
        x = following / sigma * np.exp(-decay) * x - np.expm1(-h - decay) * clean
        if before is not None:
            x = x - 0.5 * np.expm1(-h - decay) * (h / last) * (clean - before)
        noise = np.asarray(jax.random.normal(jax.random.fold_in(key, i), x.shape), np.float64)
        x = x + noise * following * np.sqrt(-np.expm1(-2 * decay)) * config.churn_noise
        before, last = clean, h
    raise AssertionError("levels end at 0")


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_2m_is_the_published_update(eta: float) -> None:
    def curved(x: Any, sigma: Any) -> Any:
        """Two atoms at -1 and 1."""
        return np.tanh(x / sigma**2) if isinstance(x, np.ndarray) else jnp.tanh(x / sigma**2)

    config = SamplerConfig(9, method="dpmpp_2m", eta=eta)
    drawn = sample(lambda params, x, sigma: curved(x, sigma), None, KEY, (50, 2), config=config)
    start_key, key = jax.random.split(KEY)
    start = 80.0 * np.asarray(jax.random.normal(start_key, (50, 2)), np.float64)
    np.testing.assert_allclose(drawn, published_2m(config, curved, start, key), atol=2e-3)
    assert np.abs(np.abs(drawn) - 1).mean() < 0.05


def test_the_sde_keeps_mean_and_covariance() -> None:
    exact = {"method": "dpmpp_2m", "eta": 1.0, "churn_noise": 1.0}
    drawn = sample(CORRELATED, None, KEY, (50_000, 2), config=SamplerConfig(64, **exact))
    np.testing.assert_allclose(drawn.mean(0), MEAN, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, atol=0.03)
    # Its noise does something: from the same start the ODE ends elsewhere.
    plain = sample(CORRELATED, None, KEY, (50_000, 2), config=SamplerConfig(64, method="dpmpp_2m"))
    assert np.abs(drawn - plain).mean() > 0.3
    np.testing.assert_allclose(np.cov(plain.T), COVARIANCE, atol=0.03)


def test_a_pushed_row_forgets_what_was_denoised_before() -> None:
    """With every step of first order 2M is Euler's method in `-ln sigma`; a push of 0 is none."""

    def push(guide: jax.Array, x: jax.Array, place: Any, denoise: Any) -> jax.Array:
        moves = (jnp.arange(len(x)) == 1)[:, None] & (place.index < place.steps - 1)
        return jnp.where(moves, x + guide, x)

    config = SamplerConfig(8, method="dpmpp_2m")
    plain, still, pushed = (
        np.asarray(
            sample(unit, None, KEY, (3, 2), config=config, guidance=guidance, guide_params=g)
        )
        for guidance, g in ((None, 0.0), (Guidance(push=push), 0.0), (Guidance(push=push), 0.1))
    )
    np.testing.assert_allclose(still, plain, rtol=1e-6)
    np.testing.assert_allclose(pushed[::2], plain[::2], rtol=1e-6)
    levels = noise_levels(8, EdmConfig())
    x = 80.0 * np.asarray(jax.random.normal(jax.random.split(KEY)[0], (3, 2)), np.float64)[1]
    for i, sigma in enumerate(levels[:-1]):
        x = x + (0.1 if i < 7 else 0.0)
        clean = x / (1 + sigma**2)
        x = levels[i + 1] / sigma * x + (1 - levels[i + 1] / sigma) * clean
    np.testing.assert_allclose(pushed[1], x, rtol=1e-4)


def test_levels_of_ones_own_and_a_method_without_churn() -> None:
    own, edm = SamplerConfig(12, sigma_max=10.0, rho=5.0), EdmConfig(sigma_max=10.0, rho=5.0)
    np.testing.assert_array_equal(own.levels(EdmConfig()), noise_levels(12, edm))
    still = SamplerConfig(12, method="dpmpp_2m", churn=0.0)
    for one, other, given in (
        (own, SamplerConfig(12), edm),
        (still, SamplerConfig(12, method="dpmpp_2m"), None),
    ):
        drawn = sample(unit, None, KEY, (4, 1), config=one)
        same = sample(unit, None, KEY, (4, 1), config=other, edm=given)
        np.testing.assert_array_equal(drawn, same)


def test_the_predictor_starts_from_the_churned_sample() -> None:
    """Started from the un-churned one, 64 steps would give a spread of 1.13 and not 1.02."""
    config = SamplerConfig(3, method="euler", churn_min=0.0, churn_max=100.0, churn=0.9)
    drawn = sample(unit, None, KEY, (4, 1), config=config)
    levels = noise_levels(3, EdmConfig())
    start_key, key = jax.random.split(KEY)
    x = 80.0 * np.asarray(jax.random.normal(start_key, (4, 1)), np.float64)
    for i, gamma in enumerate(np.full(3, 0.3)):
        raised = levels[i] * (1 + gamma)
        noise = np.asarray(jax.random.normal(jax.random.fold_in(key, i), (4, 1)))
        x = x + 1.003 * np.sqrt(raised**2 - levels[i] ** 2) * noise
        x = x + (levels[i + 1] - raised) * (x - x / (1 + raised**2)) / raised
    np.testing.assert_allclose(drawn, x, rtol=1e-4, atol=1e-6)


def test_churn_is_confined_and_capped() -> None:
    levels = noise_levels(128, EdmConfig())
    gamma = churn_factors(levels, SamplerConfig(128))
    inside = (levels[:-1] >= 0.05) & (levels[:-1] <= 50.0)
    np.testing.assert_allclose(gamma[inside], np.sqrt(2) - 1)  # 80 / 128 is above the cap
    assert (gamma[~inside] == 0).all() and inside.sum() == 96
    gamma = churn_factors(noise_levels(256, EdmConfig()), SamplerConfig(256))
    assert (gamma > 0).sum() == 191 and gamma.max() == 80 / 256


@pytest.mark.parametrize("method", ["heun", "euler", "dpmpp_2m"])
def test_number_of_network_calls(method: Any) -> None:
    calls = []

    def counted(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: calls.append(float(s)), sigma)
        return unit(params, x, sigma)

    config = SamplerConfig(6, method=method, churn=0.0)
    jax.block_until_ready(sample(counted, None, KEY, (2, 1), config=config))
    jax.effects_barrier()
    assert len(calls) == config.calls == (11 if method == "heun" else 6)
    np.testing.assert_allclose(max(calls), 80.0, rtol=1e-6)
    np.testing.assert_allclose(min(calls), 0.002, rtol=1e-5)  # never at zero noise


def test_new_parameters_run_in_the_same_program(programs: Callable[[], int]) -> None:
    def scaled(params: jax.Array, x: jax.Array, sigma: jax.Array) -> jax.Array:
        return params * unit(None, x, sigma)

    config = SamplerConfig(4)
    guidance = Guidance(push=lambda guide, x, place, denoise: x + guide)

    def draw(*of: jax.Array) -> jax.Array:
        how = {"config": config, "guidance": guidance, "guide_params": of[1]}
        return sample(scaled, of[0], KEY, (3, 2), **how)

    one, other = (jnp.float32(1.0), jnp.float32(0.0)), (jnp.float32(0.5), jnp.float32(1.0))
    first, before = draw(*one), programs()
    second = draw(*other)
    assert programs() == before and np.abs(first - second).max() > 0.1


MANY = "churn, churn_noise, churn_min, churn_max"


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        *wrong(dict(num_steps=1, method="rk4", eta=1.0, rho=0.0)),
        *(({name: value}, MANY) for name, value in (("churn", -1.0), ("churn_min", 60.0))),
        ({"method": "dpmpp_2m", "eta": -1.0}, "eta"),
        ({"sigma_max": 0.001}, "sigma_min, sigma_max"),
    ],
)
def test_sampler_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sample(unit, None, KEY, (1, 1), config=SamplerConfig(**change))
    assert caught.value.setting == setting
