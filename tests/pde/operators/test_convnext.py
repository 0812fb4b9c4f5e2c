"""The ConvNeXt U-Net: published sizes, the network written out in numpy, shifts, refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred
from scipy.special import erf

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import ConvNext
from jaxrl_rollouts.pde.operators.convnext import ConvNextNet, doubled, halved


@pytest.mark.parametrize(
    ("config", "channels", "published", "norms"),
    [
        (ConvNext(42, 4, 2, 0), (8, 2), 18_571_562, 45 * 42),
        (ConvNext(42, 4, 2, 0), (44, 11), 18_588_581, 45 * 42),
        (ConvNext(8, 3, 1, 0), (2, 1), 124_825, 21 * 8),
    ],
)
def test_it_has_the_published_size(
    config: ConvNext, channels: tuple[int, int], published: int, norms: int
) -> None:
    """The Well's count less the biases of its channel norms, which it never adds."""
    net = ConvNextNet(config, channels[1], ("zero", "zero"))
    given = jnp.zeros((32, 32, channels[0])), jnp.zeros(()), jnp.zeros(0)
    params = jax.eval_shape(net.init, jax.random.key(0), *given)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == published - norms


def convolved(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """`[n, Cin]` with zeros beyond the ends; a kernel `[k, C]` convolves each channel by itself."""
    reach, out = len(kernel) // 2, []
    for at in range(len(x)):
        total = bias.astype(np.float64)
        for tap, weights in enumerate(kernel):
            if 0 <= at + tap - reach < len(x):
                value = x[at + tap - reach]
                total = total + (value @ weights if weights.ndim == 2 else value * weights)
        out.append(total)
    return np.array(out)


def dense(p: Any, x: np.ndarray) -> np.ndarray:
    return x @ p["kernel"] + p["bias"]


def block(p: Any, x: np.ndarray) -> np.ndarray:
    h = convolved(x, p["Depthwise_0"]["kernel"], p["Depthwise_0"]["bias"])
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6)
    h = dense(p["Dense_0"], h * p["LayerNorm_0"]["scale"] + p["LayerNorm_0"]["bias"])
    h = 0.5 * h * (1 + erf(h / np.sqrt(2)))
    return x + p["gamma"] * dense(p["Dense_1"], h)


def norm(p: Any, x: np.ndarray) -> np.ndarray:
    return p["scale"] * x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def test_the_network_is_that_written_out_in_numpy() -> None:
    """One axis, two stages of one block; skips from before the blocks, the finest one unused."""
    config = ConvNext(4, 2, 1, 0, zero_padding=True, form="matmul")
    net = config.make(FieldShape(1, 16))
    params = stirred(net)
    field = jax.random.normal(jax.random.key(2), (1, 16))
    found = net.apply(params, field, jnp.zeros_like(field), 0.0, jnp.zeros(0))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    x = np.stack([np.asarray(field[0], np.float64), np.zeros(16)], -1)
    x = convolved(x, p["PeriodicConv_0"]["kernel"], p["PeriodicConv_0"]["bias"])
    skips = []
    for stage in (0, 1):
        skips.append(x)
        x = norm(p[f"ChannelNorm_{stage}"], block(p[f"Block_{stage}"], x))
        x = dense(p[f"Dense_{stage}"], x.reshape(len(x) // 2, -1))
    x = block(p["Block_2"], x)
    for number in (0, 1):
        if number == 1:
            x = dense(p["Dense_2"], np.concatenate([x, skips[1]], -1))
        x = norm(p[f"ChannelNorm_{2 + number}"], block(p[f"Block_{3 + number}"], x))
        up = p[f"DoubledDense_{number}"]
        x = (x @ up["kernel"]).reshape(2 * len(x), -1) + up["bias"]
    want = convolved(x, p["PeriodicConv_1"]["kernel"], p["PeriodicConv_1"]["bias"])
    np.testing.assert_allclose(found[0], want[:, 0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("grid", [(32,), (16, 32)])
def test_a_shift_of_the_coarsest_cells_is_a_shift_of_the_answer(grid: tuple[int, ...]) -> None:
    net = ConvNext(4, 2, 1, 4).make(FieldShape(2, grid, 1))
    params, axes = stirred(net), tuple(range(1, len(grid) + 1))
    field, noised = jax.random.normal(jax.random.key(1), (2, 2, *grid))
    by = (4,) * len(grid)
    moved = (jnp.roll(x, by, axes) for x in (field, noised))
    out = net.apply(params, field, noised, 3.0, jnp.ones(1))
    again = net.apply(params, *moved, 3.0, jnp.ones(1))
    np.testing.assert_allclose(again, jnp.roll(out, by, axes), rtol=1e-3, atol=1e-5)


def test_both_forms_of_the_convolutions_agree() -> None:
    shape = FieldShape(1, (8, 12))
    made = [ConvNext(4, 1, 1, 0, form=form).make(shape) for form in ("matmul", "conv")]
    params = stirred(made[0])
    field = jax.random.normal(jax.random.key(1), (1, 8, 12))
    one, two = (net.apply(params, field, field, 0.0, jnp.zeros(0)) for net in made)
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grid", [(8,), (4, 6), (2, 4, 6)])
def test_halving_is_undone(grid: tuple[int, ...]) -> None:
    x = jax.random.normal(jax.random.key(0), (*grid, 3))
    half = halved(x, len(grid))
    assert half.shape == (*(n // 2 for n in grid), 3 * 2 ** len(grid))
    np.testing.assert_array_equal(half[(0,) * len(grid)][:3], x[(0,) * len(grid)])
    np.testing.assert_array_equal(doubled(half, len(grid)), x)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="embedding.*conditions"):
        ConvNext(embedding=0).make(FieldShape(1, 32, 1))
    with pytest.raises(ConfigError, match="points: found 16, expected at least 24 with 3 stages"):
        ConvNext().make(FieldShape(1, 16))
    with pytest.raises(ConfigError, match="a multiple of 8"):
        ConvNext().make(FieldShape(1, 36))
    with pytest.raises(ConfigError, match="embedding: found 3"):
        ConvNext(embedding=3).make(FieldShape(1, 32))
