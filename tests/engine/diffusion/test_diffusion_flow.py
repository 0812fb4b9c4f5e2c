"""Flows: paths, what an EDM denoiser is as one, the three losses against exact maps and numpy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import wrong

from jaxrl_rollouts import diffusion as df
from jaxrl_rollouts.diffusion.flow import with_weights_of
from jaxrl_rollouts.diffusion.flow_losses import consistency_target, mean_target, midpoint
from jaxrl_rollouts.errors import ConfigError

KEY = jax.random.key(0)
SMALL = df.ResidualMlp(width=16, blocks=2, embedding=8)
MEAN, STD = 0.7, 0.6  # of normal data in one dimension


def spread(t: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square((1.0 - t) * STD) + jnp.square(t))


def exact_velocity(x: jax.Array, t: jax.Array) -> jax.Array:
    """d/dt of the exact map: `-m + (t - (1 - t) s^2) (x - (1 - t) m) / spread^2`."""
    t = t[:, None]
    slope = t - (1.0 - t) * STD**2
    return -MEAN + slope * (x - (1.0 - t) * MEAN) / jnp.square(spread(t))


def exact_end(x: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
    t, s = t[:, None], s[:, None]
    return (1.0 - s) * MEAN + spread(s) / spread(t) * (x - (1.0 - t) * MEAN)


def exact_average(x: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
    """The exact average velocity, its limit where the interval is empty."""
    empty = (t - s < 1e-3)[:, None]
    long = (x - exact_end(x, t, s)) / jnp.where(empty, 1.0, (t - s)[:, None])
    return jnp.where(empty, exact_velocity(x, t), long)


@pytest.mark.parametrize(("kind", "sigma_data"), [("mlp", 1.0), ("mlp", 0.5), ("unet", 1.0)])
def test_a_students_first_velocities_are_its_teachers(kind: str, sigma_data: float) -> None:
    """And the teacher's are `(x - D) / t`, so EDM's denoiser comes back from the student."""
    edm = df.EdmConfig(sigma_data=sigma_data)
    if kind == "mlp":
        nets = [df.make_residual_mlp(SMALL, 3, interval=i) for i in (False, True)]
        x = jax.random.normal(KEY, (9, 3))
    else:
        small = df.Unet(features=8, blocks=2)
        nets = [df.make_temporal_unet(small, 6, 3, interval=i) for i in (False, True)]
        x = jax.random.normal(KEY, (9, 6, 3))
    denoiser, flow = df.make_denoiser(nets[0], edm), df.make_flow(nets[1], df.FlowConfig(edm=edm))
    taught = denoiser.init(KEY)
    params = with_weights_of(flow.init(jax.random.key(1)), taught)
    t = jnp.linspace(0.05, 0.98, 9)
    velocity = df.flow_of_denoiser(denoiser).average(taught, x, t, t)
    for s in (t, 0.5 * t, 0.0 * t):
        np.testing.assert_allclose(flow.average(params, x, t, s), velocity, atol=3e-5)
    sigma = t / (1.0 - t)
    wide = sigma.reshape(-1, *(1,) * (x.ndim - 1))
    found = df.denoiser_of_flow(flow).denoise(params, wide * x, sigma)
    np.testing.assert_allclose(found, denoiser.denoise(taught, wide * x, sigma), atol=3e-5)


def test_a_teacher_of_another_shape_is_refused() -> None:
    flow = df.make_flow(df.make_residual_mlp(SMALL, 3, interval=True))
    other = df.make_denoiser(df.make_residual_mlp(df.ResidualMlp(8, 2, 8), 3)).init(KEY)
    with pytest.raises(ValueError, match="student"):
        with_weights_of(flow.init(KEY), other)
    deeper = df.make_denoiser(df.make_residual_mlp(df.ResidualMlp(16, 3, 8), 3)).init(KEY)
    with pytest.raises(ValueError, match="block_2"):
        with_weights_of(flow.init(KEY), deeper)


def places(count: int = 64) -> tuple[jax.Array, jax.Array, jax.Array]:
    t_key, s_key, x_key = jax.random.split(KEY, 3)
    t = jax.random.uniform(t_key, (count,), minval=0.05, maxval=0.98)
    s = t * jax.random.uniform(s_key, (count,), maxval=0.9)
    return jax.random.normal(x_key, (count, 1)) + 0.3, t, s


def test_meanflows_identity_holds_at_the_exact_average() -> None:
    x, t, s = places()
    u, target = mean_target(exact_average, x, t, s, exact_velocity(x, t))
    np.testing.assert_allclose(u, target, atol=1e-5)
    v = exact_velocity(x, t) + 0.3
    assert float(jnp.abs(jnp.subtract(*mean_target(exact_average, x, t, s, v))).max()) > 0.1


def test_consistency_holds_at_the_exact_map() -> None:
    """From any point of the same path; a midpoint step is off by its cube."""
    x, t, s = places()
    half = 0.5 * (t + s)
    there = exact_end(x, t, half)
    u, target = consistency_target(exact_average, x, there, t, half, s)
    np.testing.assert_allclose(u, target, atol=1e-4)
    far = []
    for steps in (2, 4):
        h = t / steps
        gap = midpoint(exact_velocity, x, t, t - h) - exact_end(x, t, t - h)
        far.append(float(jnp.abs(gap).max()))
    assert far[1] < 1e-3 and far[0] > 6.0 * far[1], far  # at least h^3


# In float64 and without jax: the same draws, the same formulas.
class Linear:
    """A network whose `F` is `a x + b c_noise + c share`, with its derivatives at hand."""

    params = {"a": jnp.float32(0.4), "b": jnp.float32(-0.3), "c": jnp.float32(0.2)}

    @staticmethod
    def apply(params: Any, x: jax.Array, c_noise: jax.Array, share: jax.Array) -> jax.Array:
        return params["a"] * x + (params["b"] * c_noise + params["c"] * share)[:, None]

    @staticmethod
    def average(x: np.ndarray, t: np.ndarray, s: np.ndarray) -> np.ndarray:
        t, s = np.asarray(t, np.float64), np.asarray(s, np.float64)
        share = (t - s) / np.maximum(t, 1e-6)
        kept = np.clip(t, 0.002 / 1.002, 80 / 81)
        size = np.sqrt(t**2 + (1 - t) ** 2)[:, None]
        output = 0.4 * x / size
        output = output + (-0.3 * 0.25 * np.log(kept / (1 - kept)) + 0.2 * share)[:, None]
        return ((2 * t - 1)[:, None] * x / size - output) / size


def linear_flow(config: df.FlowConfig, teacher: Any = None) -> Any:
    from jaxrl_rollouts.networks import Network

    return df.make_flow(Network(lambda key: Linear.params, Linear.apply), config, teacher)


def drawn(key: jax.Array, rows: jax.Array, times: Any) -> tuple[np.ndarray, ...]:
    """Rows, noise and whatever `times(keys)` draws, float64, from the keys that the loss uses."""
    key, _ = jax.random.split(key)
    noise_key, others = times(key)
    noise = jax.random.normal(noise_key, rows.shape)
    return tuple(np.asarray(part, np.float64) for part in (rows, noise, *others))


def test_losses_are_their_formulas() -> None:
    rows = jax.random.normal(jax.random.key(3), (50, 2))
    average = Linear.average

    def one(key: jax.Array) -> Any:
        time_key, noise_key = jax.random.split(key)
        return noise_key, (jax.nn.sigmoid(-0.4 + jax.random.normal(time_key, (50,))),)

    x0, e, t = drawn(KEY, rows, one)
    x, v = (1 - t)[:, None] * x0 + t[:, None] * e, e - x0
    want = np.square(average(x, t, t) - v).mean()
    found = linear_flow(df.FlowConfig()).loss(Linear.params, KEY, rows)
    np.testing.assert_allclose(found, want, rtol=1e-5)

    def two(key: jax.Array) -> Any:
        time_key, noise_key, equal_key = jax.random.split(key, 3)
        draws = jax.nn.sigmoid(-0.4 + jax.random.normal(time_key, (100,))).reshape(50, 2)
        pair = jnp.sort(draws, -1)
        s = jnp.where(jax.random.bernoulli(equal_key, 0.5, (50,)), pair[:, 1], pair[:, 0])
        return noise_key, (pair[:, 1], s)

    x0, e, t, s = drawn(KEY, rows, two)
    x, v, h = (1 - t)[:, None] * x0 + t[:, None] * e, e - x0, 1e-5
    slope = (average(x + h * v, t + h, s) - average(x - h * v, t - h, s)) / (2 * h)
    square = np.square(average(x, t, s) - (v - (t - s)[:, None] * slope)).mean(1)
    for power in (0.0, 1.0):
        found = linear_flow(df.FlowConfig(loss="mean", power=power)).loss(Linear.params, KEY, rows)
        np.testing.assert_allclose(found, (square / (2 * square + 0.01) ** power).mean(), rtol=2e-5)

    def three(key: jax.Array) -> Any:
        step_key, noise_key = jax.random.split(key)
        return noise_key, (jax.random.randint(step_key, (50,), 0, 32),)

    x0, e, step = drawn(KEY, rows, three)
    t0, t, s = step // 8 / 4, (step + 1) / 32, step / 32
    x = (1 - t)[:, None] * x0 + t[:, None] * e
    config = df.FlowConfig(loss="consistency", segments=4, steps=8, huber=0.1)
    teacher = linear_flow(df.FlowConfig())
    half = 0.5 * (t + s)
    middle = x - (t - half)[:, None] * average(x, t, t)
    for there, taught in (
        (x - (t - s)[:, None] * (e - x0), None),
        (x - (t - s)[:, None] * average(middle, half, half), teacher),
    ):
        end = there - (s - t0)[:, None] * average(there, s, t0)
        error = average(x, t, t0) - (x - end) / (t - t0)[:, None]
        want = (np.sqrt(np.square(error).mean(1) + 0.01) - 0.1).mean()
        flow = linear_flow(config, taught)
        found = flow.loss(Linear.params, KEY, rows, teacher=Linear.params)
        np.testing.assert_allclose(found, want, rtol=2e-5)


@pytest.mark.parametrize(
    ("settings", "name"),
    wrong(
        dict(loss="slide", equal=1.5, segments=0, huber=0.0),
        dict(times="beta"),
    ),
)
def test_bad_settings_are_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        df.make_flow(df.make_residual_mlp(SMALL, 2, interval=True), df.FlowConfig(**settings))
