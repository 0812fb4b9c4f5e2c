"""Denoisers: the published sizes to the parameter, the layers' arithmetic, what does not matter."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import (
    ResidualMlp,
    Unet,
    make_denoiser,
    make_residual_mlp,
    make_temporal_unet,
    unet,
)
from jaxrl_rollouts.diffusion.networks import fourier_features
from jaxrl_rollouts.diffusion.unet import double, halve, native_convolution, shift_convolution
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Network, parameter_count

KEY = jax.random.key(0)


def size(network: Network) -> int:
    return parameter_count(jax.eval_shape(network.init, KEY))


@pytest.mark.parametrize(
    ("features", "channels", "count"),
    [(1024, 25, 177_656_857), (1024, 16, 177_619_984), (64, 25, 704_857)],
)
def test_unet_has_the_published_number_of_parameters(
    features: int, channels: int, count: int
) -> None:
    assert size(make_temporal_unet(Unet(features=features), 32, channels)) == count


def test_residual_mlp_has_the_published_number_of_parameters() -> None:
    assert size(make_residual_mlp(ResidualMlp(), 42)) == 25_552_682


def dense(params: Any, name: str, x: Any) -> np.ndarray:
    return np.asarray(x) @ params[name]["kernel"] + params[name]["bias"]


def test_initial_weights_are_torchs_where_asked() -> None:
    config = ResidualMlp(width=64, blocks=2, embedding=32, initial="torch")
    params = make_residual_mlp(config, 3).init(KEY)
    for layer in params.values():
        bound = 1.0 / np.sqrt(layer["kernel"].shape[0])
        for leaf in (layer["kernel"], layer["bias"]):
            assert 0.5 * bound < np.abs(leaf).max() <= bound
    third = np.var(params["block_1"]["kernel"]) * 64
    assert third == pytest.approx(1.0 / 3.0, rel=0.05)
    with pytest.raises(ConfigError, match="initial"):
        make_residual_mlp(ResidualMlp(initial="zeros"), 3)  # type: ignore[arg-type]


def test_residual_mlp_is_its_formula() -> None:
    network = make_residual_mlp(ResidualMlp(width=16, blocks=2, embedding=8), 3)
    params = network.init(KEY)
    x, c = jax.random.normal(KEY, (5, 3)), jnp.linspace(-1.5, 1.1, 5)
    w = np.asarray(jax.random.normal(jax.random.key(0, impl="threefry2x32"), (8,)))
    angle = 2 * np.pi * np.asarray(c)[:, None] * w
    features = np.concatenate([np.asarray(c)[:, None], np.sin(angle), np.cos(angle)], 1)
    assert features.shape == (5, 17)
    np.testing.assert_allclose(fourier_features(c, w), features, rtol=1e-4, atol=1e-5)
    hidden = dense(params, "time_0", features)
    time = dense(params, "time_1", hidden / (1 + np.exp(-hidden)))
    h = dense(params, "widen", dense(params, "input", x) + time)
    for i in range(2):
        h = h + dense(params, f"block_{i}", np.maximum(h, 0))
    want = dense(params, "output", np.maximum(h, 0))
    np.testing.assert_allclose(network.apply(params, x, c), want, rtol=1e-3, atol=1e-4)


def test_another_seed_gives_other_frequencies() -> None:
    small = {"width": 8, "blocks": 1, "embedding": 8}
    first, second = (make_residual_mlp(ResidualMlp(**small, frequency_seed=i), 2) for i in (0, 1))
    params, x = first.init(KEY), jnp.ones((1, 2))
    c = jnp.array([0.5])
    assert np.abs(first.apply(params, x, c) - second.apply(params, x, c)).max() > 1e-4


@pytest.mark.parametrize("width", [1, 2, 3])
def test_convolutions_are_the_same(width: int) -> None:
    x, kernel = jax.random.normal(KEY, (2, 7, 3)), jax.random.normal(KEY, (width, 3, 4))
    got, native = shift_convolution(x, kernel), native_convolution(x, kernel)
    np.testing.assert_allclose(got, native, rtol=1e-4, atol=1e-5)
    padded = np.pad(
        np.asarray(x), ((0, 0), ((width - 1) // 2, width - 1 - (width - 1) // 2), (0, 0))
    )
    want = sum(padded[:, i : i + 7] @ np.asarray(kernel[i]) for i in range(width))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def small_unet(length: int, **settings: Any) -> Network:
    return make_temporal_unet(Unet(features=8, **settings), length, 5)


@functools.cache
def unet_params() -> Any:
    """Of `small_unet`, for windows of any length."""
    return small_unet(4).init(KEY)


@pytest.mark.parametrize("length", [4, 5, 16])
def test_unet_computed_two_ways(length: int) -> None:
    x, c = jax.random.normal(KEY, (3, length, 5)), jnp.array([-1.5, 0.0, 1.1])
    shift, native = (small_unet(length, convolution=how) for how in ("shift", "native"))
    params = unet_params()
    first, second = (np.asarray(way.apply(params, x, c)) for way in (shift, native))
    assert first.shape == x.shape
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4)
    # Rows do not see each other, and each its own noise.
    others = jnp.array([[[2.0]], [[1.0]], [[-1.0]]]) * x
    again = np.asarray(shift.apply(params, others, c + jnp.array([0.5, 0.0, 0.0])))
    np.testing.assert_allclose(again[1], first[1], rtol=1e-3, atol=1e-4)
    moved = np.abs(shift.apply(params, x, c + 0.5) - first).max((1, 2))
    assert (moved > 1e-3).all()


class Unbatched(nn.Module):
    """flax's GroupNorm on one trajectory `[L, C]` at a time, as the public code calls it."""

    groups: int
    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        gain, bias = (self.param(name, nn.initializers.zeros, shape) for name in ("scale", "bias"))
        norm = nn.GroupNorm(num_groups=self.groups, epsilon=self.epsilon)
        return jax.vmap(lambda row: norm.apply({"params": {"scale": gain, "bias": bias}}, row))(x)


@pytest.mark.slow
def test_normalised_by_step_it_is_the_public_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """flax takes the first axis for the batch: of `[L, C]` the time."""
    x, c = 3.0 * jax.random.normal(KEY, (3, 6, 5)) + 1.0, jnp.array([-1.5, 0.0, 1.1])
    params = jax.tree.map(lambda leaf: leaf + 0.1, unet_params())  # gains and biases of its own
    step, window = (
        np.asarray(small_unet(6, norm_over=over).apply(params, x, c)) for over in ("step", "window")
    )
    names = iter(range(100))

    def reference(groups: int, epsilon: float) -> Unbatched:
        return Unbatched(groups, epsilon, name=f"GroupNorm_{next(names)}")

    monkeypatch.setattr(unet, "GroupNorm", reference)
    network = unet.TemporalUnet(Unet(features=8))
    published = network.apply({"params": params}, x, c)
    np.testing.assert_allclose(step, published, rtol=1e-3, atol=1e-4)
    assert np.abs(window - published).max() > 0.1


@pytest.mark.parametrize("length", [7, 8, 9])
def test_every_step_of_a_window_sees_every_other(length: int) -> None:
    network = small_unet(length)
    x, c = jax.random.normal(KEY, (1, length, 5)), jnp.zeros(1)

    @jax.jit
    def slopes(params: Any) -> jax.Array:
        return jax.jacobian(lambda x: network.apply(params, x, c).sum((0, 2)))(x)[:, 0].sum(-1)

    slope = slopes(unet_params())
    assert slope.shape == (length, length) and (np.abs(slope) > 0).all()


def test_halving_and_doubling_are_pooling_and_nearest_neighbours() -> None:
    x = jax.random.normal(KEY, (2, 8, 3))
    np.testing.assert_array_equal(halve(x), nn.max_pool(x, (2,), (2,)))
    np.testing.assert_array_equal(double(x, 16), jax.image.resize(x, (2, 16, 3), "nearest"))


@pytest.mark.parametrize("length", [1, 6, 7])
def test_no_step_of_an_odd_window_is_lost(length: int) -> None:
    """Published pooling drops the last one, which then is all the coarse blocks never see."""
    x = jax.random.normal(KEY, (2, length, 3))
    coarse = halve(x)
    assert coarse.shape == (2, (length + 1) // 2, 3)
    back = double(coarse, length)
    assert back.shape == x.shape and (back >= x).all()
    if length % 2:
        np.testing.assert_array_equal(back[:, -1], x[:, -1])


@pytest.mark.parametrize("body", ["mlp", "unet"])
def test_bfloat16_is_close_and_keeps_float32_outside(body: str) -> None:
    def make(dtype: Any) -> tuple[Network, jax.Array]:
        if body == "mlp":
            config = ResidualMlp(width=32, blocks=2, embedding=16, dtype=dtype)
            return make_residual_mlp(config, 4), jax.random.normal(KEY, (64, 4))
        config = Unet(features=16, blocks=1, dtype=dtype)
        return make_temporal_unet(config, 8, 4), jax.random.normal(KEY, (64, 8, 4))

    (full, x), (half, _) = make("float32"), make("bfloat16")
    made = jax.eval_shape(half.init, KEY)
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {jnp.dtype("float32")}
    params = full.init(KEY)
    one, two = (
        jax.jit(make_denoiser(net).denoise)(params, x, jnp.float32(0.5)) for net in (full, half)
    )
    assert two.dtype == jnp.float32
    assert 0 < np.abs(one - two).max() < 0.1


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="windows: found"):
        small_unet(8).apply(unet_params(), jnp.zeros((1, 9, 5)), jnp.zeros(1))
    with pytest.raises(ConfigError, match="length: found 3"):
        make_temporal_unet(Unet(), 3, 2)


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (Unet(features=12), "features"),
        (Unet(blocks=0), "blocks"),
        (Unet(dtype="float16"), "dtype"),  # type: ignore[arg-type]
        (Unet(convolution="fft"), "convolution"),  # type: ignore[arg-type]
        (ResidualMlp(width=0), "width"),
        (ResidualMlp(dtype="float16"), "dtype"),  # type: ignore[arg-type]
    ],
)
def test_network_settings_are_checked(config: Any, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_temporal_unet(config, 16, 2) if isinstance(config, Unet) else make_residual_mlp(
            config, 2
        )
    assert caught.value.setting == setting
