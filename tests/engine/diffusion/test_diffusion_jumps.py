"""Jumps on data whose map is known, guided ones, and a student that is trained for them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    EdmConfig,
    Flow,
    FlowConfig,
    Guidance,
    GuidanceConfig,
    JumpConfig,
    Lesson,
    ResidualMlpConfig,
    SamplerConfig,
    Target,
    flow_of_denoiser,
    lesson_batch,
    make_denoiser,
    make_denoiser_training,
    make_flow,
    make_guidance,
    make_residual_mlp,
    noise_levels,
    sample,
    sample_jumps,
    start_from_teacher,
)
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train

KEY = jax.random.key(0)
MEAN, COVARIANCE = jnp.array([0.5, -1.0]), jnp.array([[1.2, 0.6], [0.6, 0.7]])
EXACT = make_denoiser(make_residual_mlp(ResidualMlpConfig(8, 1, 8), 2))._replace(
    denoise=gaussian_denoise(MEAN, COVARIANCE)
)


def unit_average(params: Any, x: jax.Array, t: Any, s: Any, condition: Any = None) -> jax.Array:
    """The exact average velocity of unit normal data, whose map is `x size(s) / size(t)`."""
    size = lambda t: jnp.sqrt(jnp.square(1.0 - t) + jnp.square(t))  # noqa: E731
    gap = jnp.where(t - s < 1e-3, 1e-3, t - s)
    return (x - x * size(t - gap) / size(t)) / gap


UNIT = Flow(None, unit_average, None, FlowConfig())  # type: ignore[arg-type]


@pytest.mark.parametrize("renoise", [0.0, 1.0])
@pytest.mark.parametrize("jumps", [1, 4])
def test_jumps_of_the_exact_map_are_samples(jumps: int, renoise: float) -> None:
    config = JumpConfig(jumps, renoise=renoise)
    drawn = sample_jumps(UNIT, None, KEY, (20_000, 1), config=config)
    np.testing.assert_allclose((drawn.mean(), drawn.std()), (0.0, 1.0), atol=0.02)
    if not renoise:
        start, _ = jax.random.split(KEY)
        np.testing.assert_allclose(drawn, jax.random.normal(start, (20_000, 1)), atol=1e-4)


def test_a_denoiser_and_its_velocities_have_the_same_samples() -> None:
    """EDM's Heun and Heun on the linear path, from the same noise at the same 256 levels."""
    levels = noise_levels(256, EdmConfig())
    config = SamplerConfig(256, churn=0.0)
    by_edm = sample(EXACT.denoise, None, KEY, (500, 2), config=config)
    times = tuple((levels[:-1] / (1.0 + levels[:-1])).tolist())
    jumps = JumpConfig(256, method="heun", times=times)
    by_flow = sample_jumps(flow_of_denoiser(EXACT), None, KEY, (500, 2), config=jumps)
    assert float(jnp.abs(by_edm - by_flow).mean()) < 1e-3
    assert jumps.calls == config.calls == 511


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("heun", 2)])
def test_order_of_convergence(method: Any, order: int) -> None:
    """Normal data of deviation 1/2, from the greatest noise down: the exact map scales."""
    half = EXACT._replace(denoise=lambda params, x, sigma: x / (1.0 + jnp.square(2.0 * sigma)))
    start, _ = jax.random.split(KEY)
    begin = 80.0 / 81.0
    scale = 0.5 * begin / np.hypot(0.5 * (1.0 - begin), begin)
    exact = scale * jax.random.normal(start, (100, 1))
    errors = []
    for jumps in (8, 16, 32):
        times = tuple(begin * (1.0 - i / jumps) for i in range(jumps))
        config = JumpConfig(jumps, method=method, times=times)
        drawn = sample_jumps(flow_of_denoiser(half), None, KEY, (100, 1), config=config)
        errors.append(float(jnp.abs(drawn / exact - 1.0).max()))
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (np.abs(rates - order) < 0.5).all(), (errors, rates)


def log_prob(params: Any, rows: jax.Array) -> jax.Array:
    """Normal around 1 with deviation 1."""
    return -0.5 * jnp.square(rows - 1.0).sum(tuple(range(1, rows.ndim)))


TARGET = Target(log_prob, (0, 1), lambda params, rows: jnp.ones_like(rows))


def test_four_guided_jumps_are_nearly_the_product() -> None:
    """Unit normal data times a unit normal around 1: mean 1/2, deviation 0.707."""
    guidance = make_guidance(TARGET, GuidanceConfig(rule="calibrated"))
    drawn = sample_jumps(
        UNIT, None, KEY, (30_000, 1), guidance=guidance, guide_params=GuideParams(None, 1.0)
    )
    np.testing.assert_allclose(drawn.mean(), 0.5, rtol=0.1)
    np.testing.assert_allclose(drawn.std(), 0.5**0.5, rtol=0.1)


def test_a_guidance_that_changes_nothing_changes_nothing() -> None:
    same = Guidance(correct=lambda guide, x, sigma, denoise: denoise(x, sigma))
    plain, guided = (
        sample_jumps(UNIT, None, KEY, (64, 1), guidance=guidance) for guidance in (None, same)
    )
    np.testing.assert_allclose(plain, guided, atol=1e-5)
    with pytest.raises(ConfigError, match="push"):
        sample_jumps(UNIT, None, KEY, (4, 1), guidance=make_guidance(TARGET))


def test_strength_extrapolates_from_the_unconditioned() -> None:
    def average(params: Any, x: jax.Array, t: Any, s: Any, condition: Any = None) -> jax.Array:
        return x if condition is None else x - condition

    flow = UNIT._replace(average=average)
    start, _ = jax.random.split(KEY)
    noise, told = jax.random.normal(start, (5, 1)), jnp.full((5, 1), 2.0)
    for strength, want in ((1.0, 2.0), (3.0, 6.0), (0.0, 0.0)):
        config = JumpConfig(1, strength=strength)
        drawn = sample_jumps(flow, None, KEY, (5, 1), config=config, condition=told)
        np.testing.assert_allclose(drawn, noise - (noise - want), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"jumps": 0},
        {"method": "dpmpp_2m"},
        {"renoise": 1.5},
        {"renoise": 0.5, "method": "euler"},
        {"times": (0.5, 0.7, 0.2, 0.1)},
        {"times": (1.0, 0.5)},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        sample_jumps(UNIT, None, KEY, (4, 1), config=JumpConfig(**settings))


CONFIG = ResidualMlpConfig(width=32, blocks=2, embedding=32)
DENOISER = make_denoiser(make_residual_mlp(CONFIG, 2))
STUDENT = make_flow(
    make_residual_mlp(CONFIG, 2, interval=True),
    FlowConfig(loss="consistency", segments=2, steps=8),
    flow_of_denoiser(DENOISER),
)


def taught(updates: int, **given: Any) -> tuple[Any, DenoiserTrainingConfig]:
    config = DenoiserTrainingConfig(
        updates, 128, rate=3e-3, per_iteration=updates // 2, ramp="steps", average_every=1, **given
    )
    training = make_denoiser_training(STUDENT, config, lesson_batch, start_from_teacher)
    return training, config


def test_a_student_jumps_where_its_teacher_steps() -> None:
    """Two jumps of the student are nearer to the teacher's ends than two steps of his."""
    rows = jax.random.normal(jax.random.key(1), (20_000, 2)) @ jnp.linalg.cholesky(COVARIANCE).T
    config = DenoiserTrainingConfig(
        1000, 128, rate=3e-3, per_iteration=500, ramp="steps", average_every=1
    )
    training = make_denoiser_training(DENOISER, config)
    keys = jax.random.split(KEY, 1)
    budget: dict[str, Any] = {"iterations": 2, "stage": "denoiser"}
    own = train(training.update, training.init, keys, rows, **budget).state.average
    teacher = jax.tree.map(lambda leaf: leaf[0], own)
    training, _ = taught(1000)
    lesson = Lesson(rows, teacher)
    state = train(training.update, training.init, keys, lesson, **budget).state
    student = jax.tree.map(lambda leaf: leaf[0], state.average)
    velocities = flow_of_denoiser(DENOISER)

    def drawn(flow: Flow, params: Any, jumps: int, method: Any) -> jax.Array:
        config = JumpConfig(jumps, method=method)
        return sample_jumps(flow, params, KEY, (2000, 2), config=config)

    ends = drawn(velocities, teacher, 64, "heun")
    far = {
        name: float(jnp.square(rows - ends).mean()) ** 0.5
        for name, rows in {
            "student": drawn(STUDENT, student, 2, "jump"),
            "teacher": drawn(velocities, teacher, 2, "euler"),
        }.items()
    }
    assert far["student"] < 0.25 * far["teacher"], far


def test_two_students_side_by_side_are_two_alone_and_start_as_the_teacher() -> None:
    training, _ = taught(4)
    rows = jax.random.normal(KEY, (100, 2))
    lesson = Lesson(rows, DENOISER.init(KEY))
    keys = jax.random.split(KEY, 2)
    first = training.init(keys[0], lesson)
    for name, leaf in lesson.teacher.items():
        jax.tree.map(np.testing.assert_array_equal, first.params[name], leaf)
    both = jax.vmap(training.init, (0, None))(keys, lesson)
    step = jax.jit(jax.vmap(training.update, (0, None)))
    after, _ = step(both, lesson)
    for i in range(2):
        alone, _ = jax.jit(training.update)(training.init(keys[i], lesson), lesson)
        of_both = jax.tree.map(lambda leaf, i=i: leaf[i], after.params)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), of_both, alone.params
        )
    step(both, lesson._replace(teacher=jax.tree.map(lambda x: 2 * x, lesson.teacher)))
    assert step._cache_size() == 1
