"""Training of a denoiser, its average and rate; `diffusion.fit`, its units and rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import wrong

from jaxrl_rollouts import diffusion
from jaxrl_rollouts import diffusion as df
from jaxrl_rollouts.diffusion.edm import gaussian_denoise
from jaxrl_rollouts.diffusion.fitted import fit_units
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.networks import Network

COVARIANCE = jnp.array([[1.0, 0.8], [0.8, 1.0]])
SMALL = df.make_denoiser(df.make_residual_mlp(df.ResidualMlp(width=32, blocks=2, embedding=32), 2))


def rows(count: int) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (count, 2)) @ jnp.linalg.cholesky(COVARIANCE).T


def test_it_learns_the_denoiser_of_normal_data_and_samples_it() -> None:
    config = df.DenoiserTrainingConfig(steps=1200, batch=128, lr=3e-3, per_iteration=300)
    training = df.make_denoiser_training(SMALL, config)
    data = rows(20_000)
    keys = jax.random.split(jax.random.key(0), 2)
    trained = train_loop(
        training.update, training.init, keys, data, iterations=training.iterations, stage="denoiser"
    )
    # No network can be better than the posterior variance at the noises that are drawn.
    variance = np.exp(2 * np.random.default_rng(0).normal(-1.2, 1.2, (50_000, 1)))
    own = np.linalg.eigvalsh(COVARIANCE)
    floor = (own * (variance + 1) / (own + variance)).mean()
    loss = trained.history.curve("loss")[1][-1]
    assert (np.abs(loss / floor - 1.0) < 0.04).all(), (loss, floor)
    average = jax.tree.map(lambda x: x[0], trained.state.average)
    noise = jax.random.normal(jax.random.key(2), (500, 2))
    for sigma in (0.3, 1.0, 3.0):
        x = data[:500] + sigma * noise
        got = SMALL.denoise(average, x, jnp.float32(sigma))
        exact = gaussian_denoise(jnp.zeros(2), COVARIANCE)(None, x, jnp.float32(sigma))
        gained = jnp.square(got - exact).mean() / jnp.square(x - exact).mean()
        assert gained < 0.1, (sigma, gained)
    drawn = df.sample(
        SMALL.denoise, average, jax.random.key(3), (4000, 2), config=df.SamplerConfig(32, churn=0.0)
    )
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, atol=0.12)


def test_equal_arguments_share_a_program() -> None:
    config = df.DenoiserTrainingConfig(steps=10, per_iteration=10)
    assert df.make_denoiser_training(SMALL, config) is df.make_denoiser_training(SMALL, config)
    assert df.make_residual_mlp(df.ResidualMlp(), 2) is df.make_residual_mlp(df.ResidualMlp(), 2)


# One weight and a loss whose gradient is one: Adam's step is the learning rate itself.
STRAIGHT = df.make_denoiser(
    Network(lambda key: jnp.float32(0.0), lambda p, x, c: p + 0.0 * x), df.EdmConfig()
)._replace(loss=lambda params, key, rows, weights=None: params + rows.sum())


def trajectory(config: df.DenoiserTrainingConfig) -> tuple[np.ndarray, np.ndarray]:
    """Weight and average after every update."""
    training = df.make_denoiser_training(STRAIGHT, config)
    update, state = jax.jit(training.update), training.init(jax.random.key(0))
    found = []
    for _ in range(training.iterations):
        state, _ = update(state, jnp.zeros((4, 1)))
        found.append((float(state.params), float(state.average)))
    return tuple(np.array(found).T)  # type: ignore[return-value]


def test_rate_rises_then_falls_as_a_cosine() -> None:
    config = df.DenoiserTrainingConfig(steps=40, lr=1e-2, warmup=4, per_iteration=1, batch=1)
    weights, _ = trajectory(config)
    moved = -np.diff(np.append(0.0, weights))
    i = np.arange(40)
    rise = 1e-2 * (0.1 + 0.9 * i / 4)
    fall = 1e-2 * 0.5 * (1 + np.cos(np.pi * (i - 4) / 36))
    np.testing.assert_allclose(moved, np.where(i < 4, rise, fall), rtol=1e-3, atol=1e-6)


def averaged(weights: np.ndarray, every: int, decay: Any) -> np.ndarray:
    """The average of weights after each update, moved after every few; it begins at zero."""
    kept, want = 0.0, []
    for n, weight in enumerate(weights, start=1):
        if n % every == 0:
            kept = decay(n) * kept + (1 - decay(n)) * weight
        want.append(kept)
    return np.array(want)


def test_the_average_moves_every_few_updates_and_forgets_its_start() -> None:
    config = df.DenoiserTrainingConfig(
        steps=30,
        lr=1e-2,
        per_iteration=1,
        batch=1,
        average=0.7,
        average_every=5,
        ramp="immediate",
    )
    weights, average = trajectory(config)
    want = averaged(weights, 5, lambda n: min(0.7, 1 - (1 + n // 5) ** (-2 / 3)))
    np.testing.assert_allclose(average, want, rtol=1e-4, atol=1e-7)


def test_the_published_average_is_the_weights_and_then_follows_updates() -> None:
    config = df.DenoiserTrainingConfig(
        steps=140, lr=1e-2, per_iteration=1, batch=1, average=0.9, average_every=10
    )
    weights, average = trajectory(config)
    # ema_pytorch: copies up to its 100th step, then counts every update beyond, moving or not.
    want = averaged(weights, 10, lambda n: min(0.9, 1 - max(n - 100, 1) ** (-2 / 3)))
    np.testing.assert_allclose(average, want, rtol=1e-4, atol=1e-7)
    assert average[99] == weights[99] and average[109] != weights[109]


def test_batches_may_be_made_of_anything() -> None:
    """Rows and weights come from `batch_of`; entries with weight 0 do not teach."""

    def halves(data: Any, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        return data["x"][index], jnp.array([1.0, 0.0])

    config = df.DenoiserTrainingConfig(steps=20, per_iteration=20, batch=8)
    training = df.make_denoiser_training(SMALL, config, halves)
    state = training.init(jax.random.key(0))
    after, _ = jax.jit(training.update)(state, {"x": rows(64)})
    kernels = [s.params["output"]["kernel"] for s in (state, after)]
    assert np.abs(kernels[0][:, 0] - kernels[1][:, 0]).max() > 0
    np.testing.assert_array_equal(kernels[0][:, 1], kernels[1][:, 1])


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        *wrong(dict(lr=0.0, warmup=100_000, clip=0.0, average=1.0, ramp="epochs", batch=0)),
        ({"steps": 7, "per_iteration": 2}, "per_iteration"),
        ({"betas": (0.9, 1.0)}, "lr, betas"),
    ],
)
def test_denoiser_training_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        df.make_denoiser_training(SMALL, df.DenoiserTrainingConfig(**change))
    assert caught.value.setting == setting


def test_constant_columns_and_large_offsets_come_back() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=500), np.full(500, 5.1), 1e9 + rng.normal(size=500)])
    small = diffusion.ResidualMlp(width=16, blocks=1)
    model = diffusion.fit(rows, small, steps=20, batch=32)
    drawn = model.sample(64)
    assert drawn.dtype == np.float64 and (drawn[:, 1] == 5.1).all()
    # float32 has steps of 64 there, while the rows deviate by 1
    assert np.abs(drawn[:, 2] - 1e9).max() < 20 and len(np.unique(drawn[:, 2])) == 64
    single = diffusion.fit(rows.astype(np.float32), small, steps=2, batch=32).sample(4)
    assert single.dtype == np.float32 and (single[:, 1] == np.float32(5.1)).all()
    student = model.distil(rows, calls=1, steps=2, batch=16).sample(4)
    assert (student[:, 1] == 5.1).all()


def test_units_are_of_float64_numbers() -> None:
    rows = 1e15 + np.arange(8.0)[:, None]
    units = fit_units(rows)
    assert units.mean[0] == 1e15 + 3.5 and units.std[0] == np.arange(8.0).std()
    back = units.denormalise(units.normalise(rows), rows.dtype)
    assert np.abs(back - rows).max() < 0.2  # float64 has steps of 0.125 there


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 2.0], [3.0]], "lists of several lengths"),
        (np.ma.masked_equal(np.ones((4, 2)), 1), "8 masked entries"),
        ([["a", "b"]], "dtype <U1"),
        ([[1.0, np.nan]], "finite numbers"),
    ],
)
def test_rows_that_are_none_are_refused_in_one_line(rows: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        diffusion.fit(rows, steps=1)
