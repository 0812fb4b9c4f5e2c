"""Jumps on data whose map is known, guided ones, and a student that is trained for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import diffusion as df
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.errors import ConfigError, DataError

KEY = jax.random.key(0)
MEAN, COVARIANCE = jnp.array([0.5, -1.0]), jnp.array([[1.2, 0.6], [0.6, 0.7]])
EXACT = df.make_denoiser(df.make_residual_mlp(df.ResidualMlp(8, 1, 8), 2))._replace(
    denoise=gaussian_denoise(MEAN, COVARIANCE)
)


def unit_average(params: Any, x: jax.Array, t: Any, s: Any) -> jax.Array:
    """The exact average velocity of unit normal data, whose map is `x size(s) / size(t)`."""
    size = lambda t: jnp.sqrt(jnp.square(1.0 - t) + jnp.square(t))  # noqa: E731
    gap = jnp.where(t - s < 1e-3, 1e-3, t - s)
    return (x - x * size(t - gap) / size(t)) / gap


UNIT = df.Flow(None, unit_average, None, df.FlowConfig())  # type: ignore[arg-type]


@pytest.mark.parametrize("renoise", [0.0, 1.0])
@pytest.mark.parametrize("jumps", [1, 4])
def test_jumps_of_the_exact_map_are_samples(jumps: int, renoise: float) -> None:
    config = df.JumpConfig(jumps, renoise=renoise)
    drawn = df.sample_jumps(UNIT, None, KEY, (20_000, 1), config=config)
    np.testing.assert_allclose((drawn.mean(), drawn.std()), (0.0, 1.0), atol=0.02)
    if not renoise:
        start, _ = jax.random.split(KEY)
        np.testing.assert_allclose(drawn, jax.random.normal(start, (20_000, 1)), atol=1e-4)


def test_a_denoiser_and_its_velocities_have_the_same_samples() -> None:
    """EDM's Heun and Heun on the linear path, from the same noise at the same 256 levels."""
    levels = df.noise_levels(256, df.EdmConfig())
    config = df.SamplerConfig(256, churn=0.0)
    by_edm = df.sample(EXACT.denoise, None, KEY, (500, 2), config=config)
    times = tuple((levels[:-1] / (1.0 + levels[:-1])).tolist())
    jumps = df.JumpConfig(256, method="heun", times=times)
    by_flow = df.sample_jumps(df.flow_of_denoiser(EXACT), None, KEY, (500, 2), config=jumps)
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
        config = df.JumpConfig(jumps, method=method, times=times)
        drawn = df.sample_jumps(df.flow_of_denoiser(half), None, KEY, (100, 1), config=config)
        errors.append(float(jnp.abs(drawn / exact - 1.0).max()))
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (np.abs(rates - order) < 0.5).all(), (errors, rates)


def log_prob(params: Any, rows: jax.Array) -> jax.Array:
    """Normal around 1 with deviation 1."""
    return -0.5 * jnp.square(rows - 1.0).sum(tuple(range(1, rows.ndim)))


TARGET = df.Target(log_prob, (0, 1), lambda params, rows: jnp.ones_like(rows))


def test_four_guided_jumps_are_nearly_the_product() -> None:
    """Unit normal data times a unit normal around 1: mean 1/2, deviation 0.707."""
    guidance = df.make_guidance(TARGET, df.GuidanceConfig(rule="calibrated"))
    drawn = df.sample_jumps(
        UNIT, None, KEY, (30_000, 1), guidance=guidance, guide_params=GuideParams(None, 1.0)
    )
    np.testing.assert_allclose(drawn.mean(), 0.5, rtol=0.1)
    np.testing.assert_allclose(drawn.std(), 0.5**0.5, rtol=0.1)


def test_a_guidance_that_changes_nothing_changes_nothing() -> None:
    same = df.Guidance(correct=lambda guide, x, sigma, denoise: denoise(x, sigma))
    plain, guided = (
        df.sample_jumps(UNIT, None, KEY, (64, 1), guidance=guidance) for guidance in (None, same)
    )
    np.testing.assert_allclose(plain, guided, atol=1e-5)
    with pytest.raises(ConfigError, match="push"):
        df.sample_jumps(UNIT, None, KEY, (4, 1), guidance=df.make_guidance(TARGET))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_steps": 0},
        {"method": "dpmpp_2m"},
        {"renoise": 1.5},
        {"renoise": 0.5, "method": "euler"},
        {"times": (0.5, 0.7, 0.2, 0.1)},
        {"times": (1.0, 0.5)},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        df.sample_jumps(UNIT, None, KEY, (4, 1), config=df.JumpConfig(**settings))


CONFIG = df.ResidualMlp(width=32, blocks=2, embedding=16)
STUDENT = df.make_flow(
    df.make_residual_mlp(CONFIG, 2, interval=True),
    df.FlowConfig(loss="consistency", segments=2, steps=8),
    df.flow_of_denoiser(EXACT),
)


@pytest.mark.slow
def test_a_student_jumps_where_its_teacher_steps() -> None:
    """Two jumps of the student are nearer to the exact teacher's ends than two steps of his."""
    rows = (
        MEAN + jax.random.normal(jax.random.key(1), (20_000, 2)) @ jnp.linalg.cholesky(COVARIANCE).T
    )
    config = df.small_training(600, 128, lr=3e-3)
    taught = df.distil(
        STUDENT, config, df.DistillationBatch(rows, {}), KEY[None], stage="student", context=None
    )
    student = jax.tree.map(lambda leaf: leaf[0], taught.state.average)

    def drawn(flow: df.Flow, params: Any, jumps: int, method: Any) -> jax.Array:
        config = df.JumpConfig(jumps, method=method)
        return df.sample_jumps(flow, params, KEY, (2000, 2), config=config)

    velocities = df.flow_of_denoiser(EXACT)
    ends = drawn(velocities, None, 64, "heun")
    far = {
        name: float(jnp.square(rows - ends).mean()) ** 0.5
        for name, rows in {
            "student": drawn(STUDENT, student, 2, "jump"),
            "teacher": drawn(velocities, None, 2, "euler"),
        }.items()
    }
    assert far["student"] < 0.35 * far["teacher"], far


@pytest.mark.slow
def test_two_students_side_by_side_are_two_alone_and_start_as_their_teachers(
    programs: Callable[[], int],
) -> None:
    denoiser = df.make_denoiser(df.make_residual_mlp(TINY, 2))
    flow = df.make_flow(
        df.make_residual_mlp(TINY, 2, interval=True),
        df.FlowConfig(loss="consistency", segments=2, steps=2),
        df.flow_of_denoiser(denoiser),
    )
    config = df.DenoiserTrainingConfig(steps=2, batch=8, per_iteration=2)
    training = df.make_denoiser_training(flow, config, df.distillation_batch, df.start_from_teacher)
    keys, rows = jax.random.split(KEY, 2), jax.random.normal(KEY, (100, 2))
    teachers = [denoiser.init(key) for key in keys]
    first = training.init(keys[0], df.DistillationBatch(rows, teachers[0]))
    for name, leaf in teachers[0].items():
        jax.tree.map(np.testing.assert_array_equal, first.params[name], leaf)
    lesson = df.DistillationBatch(rows, jax.tree.map(lambda *leaves: jnp.stack(leaves), *teachers))
    seeds = (0, df.DistillationBatch(None, 0))
    step = jax.jit(jax.vmap(training.update, seeds))
    both = jax.vmap(training.init, seeds)(keys, lesson)
    after, _ = step(both, lesson)
    one = jax.jit(training.update)
    for i, teacher in enumerate(teachers):
        own = df.DistillationBatch(rows, teacher)
        alone, _ = one(training.init(keys[i], own), own)
        of_both = jax.tree.map(lambda leaf, i=i: leaf[i], after.params)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), of_both, alone.params
        )
    # The teacher is data: another one runs in the same program.
    others, before = jax.tree.map(lambda x: 2 * x, lesson.teacher), programs()
    step(both, lesson._replace(teacher=others))
    assert programs() == before


TINY = df.ResidualMlp(width=8, blocks=1, embedding=8)


def test_every_model_is_drawn_from_as_the_settings_say() -> None:
    flow = df.flow_of_denoiser(EXACT)
    few = df.SamplerConfig(8, churn=0.0)
    by_edm = df.draw_samples(EXACT, None, KEY, (50, 2), config=few)
    # A flow's velocities as a denoiser: the same ones back, so the same samples.
    by_flow = df.draw_samples(flow, None, KEY, (50, 2), config=few)
    np.testing.assert_allclose(by_edm, by_flow, atol=2e-3)
    heun = df.JumpConfig(8, method="heun")
    found = df.draw_samples(EXACT, None, KEY, (50, 2), config=heun)
    np.testing.assert_array_equal(found, df.draw_samples(flow, None, KEY, (50, 2), config=heun))
    with pytest.raises(ConfigError, match="distil"):
        df.draw_samples(EXACT, None, KEY, (50, 2), config=df.JumpConfig())


@pytest.mark.slow
def test_a_fitted_model_is_distilled_in_one_call() -> None:
    """Data in their own units, far from standardised; four calls find their moments."""
    rng = np.random.default_rng(0)
    data = 50.0 + 10.0 * rng.normal(size=(4000, 2)).astype(np.float32)
    data[:, 1] += data[:, 0]
    model = df.fit(data, CONFIG, steps=400, batch=128)
    untaught = model.sample(2000, config=df.JumpConfig(4, method="heun"))
    np.testing.assert_allclose(untaught.mean(0), data.mean(0), atol=2.0)
    with pytest.raises(ConfigError, match="method: found 'jump'"):
        model.sample(1, config=df.JumpConfig(4))
    few = model.distil(data, calls=4, steps=200)
    assert few.sampling.calls == 4
    drawn = few.sample(2000)
    np.testing.assert_allclose(drawn.mean(0), data.mean(0), atol=2.0)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(data.T), rtol=0.25)
    np.testing.assert_array_equal(drawn, few.sample(2000, key=0))
    with pytest.raises(DataError, match="model's"):
        model.distil(data[:, :1])
    with pytest.raises(ConfigError, match="count"):
        few.sample(0)
    with pytest.raises(ConfigError, match="flow.loss"):
        model.distil(data, config=df.DistilConfig(df.FlowConfig()))
