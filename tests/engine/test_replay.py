"""The ring buffer against a deque; Gaussian heads and scalers against scipy."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jaxrl_rollouts import replay
from jaxrl_rollouts.gaussian import Gaussian, gaussian_nll, soft_clamp
from jaxrl_rollouts.scaler import fit_scaler, fit_scaler_by_blocks, identity_scaler

BLOCK, CAPACITY = 4, 7
ROW = {"tag": jax.ShapeDtypeStruct((), jnp.int32), "x": jax.ShapeDtypeStruct((2,), jnp.float32)}
add = jax.jit(replay.add)
sample = jax.jit(replay.sample, static_argnames="count")


def rows(tags: Any) -> dict:
    """Rows whose number is never zero, so that a row nobody wrote stands out."""
    tags = jnp.asarray(tags, jnp.int32)
    return {"tag": tags, "x": jnp.stack([tags, -tags], -1).astype(jnp.float32)}


def held(buffer: replay.Replay) -> list[int]:
    """Tags from the oldest to the newest."""
    size, tags = int(buffer.size), np.asarray(buffer.rows["tag"])
    return [int(tags[(int(buffer.next) - size + i) % buffer.capacity]) for i in range(size)]


@given(
    masks=st.lists(st.lists(st.booleans(), min_size=BLOCK, max_size=BLOCK), max_size=12),
    seed=st.integers(0, 2**31 - 1),
)
def test_the_buffer_is_a_deque(masks: list[list[bool]], seed: int) -> None:
    buffer, model = replay.create(ROW, CAPACITY), deque(maxlen=CAPACITY)
    for n, mask in enumerate(masks):
        tags = [BLOCK * n + i + 1 for i in range(BLOCK)]
        buffer = add(buffer, rows(tags), jnp.array(mask))
        model.extend(tag for tag, valid in zip(tags, mask, strict=True) if valid)
        assert held(buffer) == list(model)
    drawn = sample(buffer, jax.random.key(seed), count=64)
    if model:
        assert set(drawn["tag"].tolist()) <= set(model)
        np.testing.assert_array_equal(drawn["x"][:, 0], drawn["tag"])  # leaves stay aligned
        np.testing.assert_array_equal(drawn["x"][:, 1], -drawn["tag"])
    else:
        assert np.isnan(drawn["x"]).all() and not drawn["tag"].any()


def test_draws_are_uniform_over_what_is_held() -> None:
    buffer = add(replay.create(ROW, CAPACITY), rows([1, 2, 3, 4]))
    counts = np.bincount(sample(buffer, jax.random.key(0), count=8000)["tag"], minlength=5)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], 2000, rtol=0.1)


def test_too_many_rows_and_too_small_a_buffer() -> None:
    with pytest.raises(ValueError, match="found 8, expected at most the capacity 7"):
        replay.add(replay.create(ROW, CAPACITY), rows(range(1, 9)))
    with pytest.raises(ValueError, match="capacity: found 0"):
        replay.create(ROW, 0)


FLOATS = st.floats(-30, 30, width=32)


@given(mean=FLOATS, log_var=st.floats(-5, 5, width=32), target=FLOATS)
def test_nll_is_scipys(mean: float, log_var: float, target: float) -> None:
    want = -stats.norm.logpdf(target, mean, np.exp(0.5 * log_var))
    got = gaussian_nll(jnp.float32(mean), jnp.float32(log_var), jnp.float32(target))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@given(low=st.floats(-10, 0), gap=st.floats(0.5, 12))
def test_soft_clamp_is_two_softplus_within_its_bounds(low: float, gap: float) -> None:
    high = low + gap
    x = jnp.linspace(low - 20, high + 20, 201)
    y = np.asarray(soft_clamp(x, jnp.float32(low), jnp.float32(high)), np.float64)
    below = high - np.logaddexp(high - np.asarray(x, np.float64), 0)
    np.testing.assert_allclose(y, low + np.logaddexp(below - low, 0), atol=1e-5)
    assert y.min() >= low - 1e-5
    assert y.max() <= high + np.log1p(np.exp(low - high)) + 1e-5
    assert (np.diff(y) >= -1e-5).all() and y[-1] - y[0] > 0.5 * gap


def test_soft_clamp_is_the_identity_far_from_its_bounds_and_passes_gradients() -> None:
    x = jnp.linspace(-2.0, 2.0, 9)
    np.testing.assert_allclose(soft_clamp(x, -20.0, 20.0), x, atol=1e-4)
    slope = jax.vmap(jax.grad(soft_clamp), (0, None, None))(jnp.array([-13.0, 3.0]), -10.0, 0.5)
    assert (slope > 1e-3).all()  # unlike a hard clip


def test_samples_have_the_mean_and_the_deviation() -> None:
    mean, std = jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 3.0]])
    wide = Gaussian(jnp.tile(mean, (20_000, 1)), jnp.tile(std, (20_000, 1)))
    drawn = np.asarray(wide.sample(jax.random.key(0)))
    np.testing.assert_allclose(drawn.mean(0), mean[0], atol=0.08)
    np.testing.assert_allclose(drawn.std(0), std[0], rtol=0.03)


@pytest.mark.parametrize("rows", [60, 70_000])  # at once, and in blocks
@pytest.mark.parametrize("value", [9.81, -273.15, 101325.7])
def test_a_constant_is_not_scaled_by_its_rounding(value: float, rows: int) -> None:
    columns = np.random.default_rng(0).normal(value, 0.01 * abs(value), (rows, 2))
    columns[:, 0] = value
    scaler = fit_scaler(jnp.asarray(columns, jnp.float32))
    assert scaler.std[0] == 1.0
    np.testing.assert_allclose(scaler.std[1], columns[:, 1].std(), rtol=1e-2)


@pytest.mark.parametrize("fit", [fit_scaler, fit_scaler_by_blocks])
def test_blocks_that_lie_apart_are_one_set_of_rows(fit: Any) -> None:
    rows = np.linspace(0.0, 1.0, 140_000, dtype=np.float32)[:, None]
    scaler = fit(jnp.asarray(rows))
    np.testing.assert_allclose(scaler.mean, 0.5, rtol=1e-4)
    np.testing.assert_allclose(scaler.std, np.sqrt(1 / 12), rtol=1e-3)


def test_scaler() -> None:
    rows = np.random.default_rng(0).normal(3.0, 5.0, (50, 3)).astype(np.float32)
    rows[:, 1] = 7.0  # a column that never varies
    scaler = fit_scaler(jnp.asarray(rows))
    scaled = np.asarray(scaler.normalise(rows))
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), [1.0, 0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(scaler.denormalise(scaled), rows, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(identity_scaler(3).normalise(rows), rows)
    np.testing.assert_array_equal(identity_scaler(3).denormalise(rows), rows)
