"""Guidance against the closed form of normal data and a normal target, and its guards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import wrong

from jaxrl_rollouts.diffusion import (
    Guidance,
    GuidanceConfig,
    SamplerConfig,
    Target,
    make_guidance,
    sample,
)
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guide import GuideParams, strength, unit_length
from jaxrl_rollouts.diffusion.sampler import Place
from jaxrl_rollouts.errors import ConfigError

KEY = jax.random.key(0)
ROWS = 30_000  # their moments are known to 0.006 or better


def unit(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
    return x / (1.0 + jnp.square(sigma))


def log_prob(params: Any, rows: jax.Array) -> jax.Array:
    """Normal around 1 of every channel; `params` is its standard deviation."""
    return -0.5 * jnp.square((rows - 1.0) / params).sum(tuple(range(1, rows.ndim)))


def precision(params: Any, rows: jax.Array) -> jax.Array:
    return 1.0 / jnp.square(params) * jnp.ones_like(rows)


def draw(
    config: GuidanceConfig,
    coefficient: float,
    steps: int,
    *,
    churn: float = 80.0,
    width: int = 1,
    std: float = 1.0,
) -> tuple[float, float]:
    """Mean and standard deviation of guided unit normal channels."""
    guidance = make_guidance(Target(log_prob, (0, width), precision), config)
    guide = GuideParams(jnp.float32(std), jnp.float32(coefficient))
    drawn = sample(
        unit,
        None,
        KEY,
        (ROWS // width, width),
        config=SamplerConfig(steps, churn=churn),
        guidance=guidance,
        guide_params=guide,
    )
    return float(drawn.mean()), float(drawn.std())


CALIBRATED = GuidanceConfig(rule="calibrated")


@pytest.mark.parametrize("spread", ["unit", "joint"])
@pytest.mark.parametrize(
    ("coefficient", "std", "steps", "churn"),
    [(1.0, 1.0, 32, 0.0), (1.0, 1.0, 128, 80.0), (4.0, 1.0, 32, 0.0), (1.0, 0.3, 32, 0.0)],
)
def test_the_calibrated_rule_is_the_product(
    spread: Any, coefficient: float, std: float, steps: int, churn: float
) -> None:
    config = GuidanceConfig(rule="calibrated", spread=spread)
    mean, found = draw(config, coefficient, steps, churn=churn, std=std)
    pull = coefficient / std**2
    assert abs(mean - pull / (1 + pull)) < 0.01
    np.testing.assert_allclose(found, (1 + pull) ** -0.5, rtol=0.05)


def test_the_published_rule_collapses_onto_the_target() -> None:
    """Its product would have mean 0.5 and spread 0.71 at coefficient 1."""
    plain = GuidanceConfig(normalise="none")
    np.testing.assert_allclose(draw(plain, 1.0, 32), (0.995, 0.041), atol=0.004)
    np.testing.assert_allclose(draw(plain, 1.0, 256), (1.000, 0.000), atol=0.002)
    np.testing.assert_allclose(draw(plain, 0.03, 256), (0.525, 0.550), atol=0.008)


def test_reference_steps_take_the_number_of_steps_out() -> None:
    config = GuidanceConfig(reference_steps=256)
    few, many = (draw(config, 0.05, n, width=16)[0] for n in (32, 256))
    plain = draw(GuidanceConfig(), 0.05, 32, width=16)[0]
    assert 0.5 * many < few < 2.0 * many and plain < 0.3 * many, (few, many, plain)


def explicit_push(
    x: np.ndarray, i: int, n: int, config: GuidanceConfig, sigma: float
) -> np.ndarray:
    """The published step, channels 1 and 2 of `[B, L, 3]` guided towards `1 + channel 0`."""
    reference = x / (1 + sigma**2) if config.reference == "denoised" else x
    slope = (1.0 + reference[..., :1] - reference[..., 1:]) / 0.25
    norm = {
        "trajectory": lambda: np.sqrt((slope**2).sum((1, 2), keepdims=True)),
        "step": lambda: np.sqrt((slope**2).sum(2, keepdims=True)),
        "none": lambda: 1.0,
    }[config.normalise]()
    rate = 0.0 if i == n - 1 else (1 - i / n) + 0.3 * np.sin(np.pi * (i + 1) / n)
    moved = x.copy()
    moved[..., 1:] += 0.7 * rate * slope / norm
    return moved


def state_log_prob(params: Any, rows: jax.Array) -> jax.Array:
    return -0.5 * jnp.square((rows[..., 1:] - 1.0 - rows[..., :1]) / 0.5).sum((1, 2))


@pytest.mark.parametrize("reference", ["denoised", "noised"])
@pytest.mark.parametrize("normalise", ["trajectory", "step", "none"])
def test_push_is_its_formula_and_leaves_states_alone(reference: Any, normalise: Any) -> None:
    config = GuidanceConfig(reference=reference, normalise=normalise)
    push = make_guidance(Target(state_log_prob, (1, 3)), config).push
    assert push is not None
    x = jax.random.normal(KEY, (4, 5, 3))
    for i in (0, 6, 9):
        place = Place(jnp.int32(i), jnp.float32(1.5), 10)
        got = push(GuideParams(None, 0.7), x, place, lambda x, sigma: unit(None, x, sigma))
        want = explicit_push(np.asarray(x, np.float64), i, 10, config, 1.5)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got[..., 0], x[..., 0])


def test_pushes_sum_to_what_is_known() -> None:
    """Sum of the schedule: 177 at 256 steps, 22.6 at 32."""
    for steps, want in ((256, 177.0), (32, 22.6)):
        place = Place(jnp.arange(steps), jnp.float32(1.0), steps)
        np.testing.assert_allclose(strength(place, 0.3).sum(), want, atol=0.5)


def action_log_prob(params: Any, rows: jax.Array) -> jax.Array:
    """A policy that acts like a normal of standard deviation 0.5 around minus the state."""
    return -0.5 * jnp.square((rows[:, 1] + rows[:, 0]) / 0.5)


@pytest.mark.parametrize("coefficient", [1.0, 4.0])
def test_the_joint_rule_is_the_product_given_every_state(coefficient: float) -> None:
    """Unit normal states; actions 0.8 of them plus a spread of 0.6. `unit` misses slope and spread,
    and leaves more states where data and policy disagree than the product has."""
    denoise = gaussian_denoise(jnp.zeros(2), jnp.array([[1.0, 0.8], [0.8, 1.0]]))
    target = Target(action_log_prob, (1, 2), lambda p, rows: 4.0 * jnp.ones_like(rows[:, 1:]))
    data, pull = 1 / 0.6**2, coefficient / 0.5**2
    product = np.array([[1 + 0.64 * data + pull, pull - 0.8 * data], [0.0, data + pull]])
    product[1, 0] = product[0, 1]
    want = np.linalg.inv(product)  # covariance of the density that is the product
    errors = {}
    for spread in ("unit", "joint"):
        config = GuidanceConfig(rule="calibrated", spread=spread)  # type: ignore[arg-type]
        drawn = sample(
            denoise,
            None,
            KEY,
            (ROWS, 2),
            config=SamplerConfig(64, churn=0.0),
            guidance=make_guidance(target, config),
            guide_params=GuideParams(None, coefficient),
        )
        errors[spread] = np.abs(np.cov(drawn.T) / want - 1.0)
    assert errors["joint"].max() < 0.04, errors
    assert errors["unit"].max() > 0.5, errors


@pytest.mark.parametrize("rule", ["published", "calibrated"])
def test_coefficient_zero_is_no_guidance_to_the_bit(rule: Any) -> None:
    config = SamplerConfig(8)
    guidance = make_guidance(Target(log_prob, (0, 2), precision), GuidanceConfig(rule=rule))
    plain = sample(unit, None, KEY, (16, 2), config=config)
    guide = GuideParams(jnp.float32(1.0), jnp.float32(0.0))
    drawn = sample(unit, None, KEY, (16, 2), config=config, guidance=guidance, guide_params=guide)
    # The calibrated rule is fused with the network, which rounds otherwise.
    tolerance = 0.0 if rule == "published" else 1e-5
    np.testing.assert_allclose(drawn, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", ["published", "calibrated"])
def test_guidance_acts_within_its_interval_only(rule: Any) -> None:
    """All noises are no interval, none of the sampler's no guidance; beyond it nothing is asked."""
    asked = []

    def counted(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: asked.append(float(s)), sigma)
        return unit(params, x, sigma)

    def drawn(interval: Any) -> tuple[np.ndarray, int]:
        asked.clear()
        config = GuidanceConfig(rule=rule, interval=interval)
        guide = GuideParams(jnp.float32(1.0), jnp.float32(0.5))
        settings = {"config": SamplerConfig(8, method="dpmpp_2m"), "guide_params": guide}
        settings["guidance"] = make_guidance(Target(log_prob, (0, 2), precision), config)
        rows = np.asarray(sample(counted, None, KEY, (16, 2), **settings))
        jax.effects_barrier()
        return rows, len(asked)

    (always, calls), (wide, wide_calls) = drawn(None), drawn((0.0, 1e6))
    np.testing.assert_allclose(wide, always, rtol=1e-4, atol=1e-5)
    assert calls == wide_calls == (16 if rule == "published" else 8)
    plain = sample(unit, None, KEY, (16, 2), config=SamplerConfig(8, method="dpmpp_2m"))
    never, calls = drawn((90.0, 1e6))
    np.testing.assert_allclose(never, plain, rtol=1e-4, atol=1e-5)
    assert calls == 8
    some, calls = drawn((0.3, 1e6))
    assert np.abs(some - always).max() > 0.01 < np.abs(some - plain).max()
    assert calls == (8 + 5 if rule == "published" else 8)


@pytest.mark.parametrize("normalise", ["trajectory", "step", "none"])
def test_a_flat_target_does_nothing(normalise: Any) -> None:
    assert (np.asarray(unit_length(jnp.zeros((2, 3, 1)), normalise)) == 0).all()
    flat = make_guidance(
        Target(lambda p, rows: jnp.zeros(len(rows)), (0, 2)), GuidanceConfig(normalise=normalise)
    )
    config, guide = SamplerConfig(8), GuideParams(None, 3.0)
    drawn = sample(unit, None, KEY, (5, 2), config=config, guidance=flat, guide_params=guide)
    plain = sample(unit, None, KEY, (5, 2), config=config)
    np.testing.assert_array_equal(drawn, plain)


@pytest.mark.parametrize("rule", ["published", "calibrated"])
def test_a_policy_that_says_nan_spoils_its_own_rows_only(rule: Any) -> None:
    def sick(params: Any, rows: jax.Array) -> jax.Array:
        return log_prob(params, rows) * jnp.where(jnp.arange(len(rows)) == 1, jnp.nan, 1.0)

    guidance = make_guidance(Target(sick, (0, 2), precision), GuidanceConfig(rule=rule))
    guide = GuideParams(jnp.float32(1.0), 0.1)
    drawn = sample(
        unit, None, KEY, (3, 2), config=SamplerConfig(8), guidance=guidance, guide_params=guide
    )
    assert np.isnan(drawn[1]).all() and np.isfinite(drawn[jnp.array([0, 2])]).all()


def test_guidance_settings_are_checked() -> None:
    target = Target(log_prob, (0, 1))
    for change, setting in wrong(
        dict(rule="exact", reference="x", normalise="all", spread="wide", bump=float("nan")),
        dict(reference_steps=0, interval=(0.5, 0.5)),
        dict(interval=(-1.0, 0.5)),
    ):
        with pytest.raises(ConfigError) as caught:
            make_guidance(target, GuidanceConfig(**change))
        assert caught.value.setting == setting
    with pytest.raises(ConfigError, match="precision"):
        make_guidance(target, CALIBRATED)
    assert isinstance(make_guidance(target), Guidance)
