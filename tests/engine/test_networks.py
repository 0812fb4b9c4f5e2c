"""Networks as pure functions: arithmetic, initial weights and draws, group normalisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from jaxrl_rollouts import draws
from jaxrl_rollouts.group_norm import GroupNorm, normalise
from jaxrl_rollouts.networks import (
    MLP,
    from_linen,
    normal_fan_in,
    orthogonal,
    parameter_count,
    uniform,
    uniform_fan_in,
)

X = jax.ShapeDtypeStruct((1, 3), jnp.float32)


def forward(params: Any, x: np.ndarray, hidden: int, heads: int, layer_norm: bool) -> list:
    """The network in plain numpy."""
    for i in range(hidden):
        x = x @ params[f"Dense_{i}"]["kernel"] + params[f"Dense_{i}"]["bias"]
        if layer_norm:
            norm = params[f"LayerNorm_{i}"]
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x * norm["scale"] + norm["bias"]
        x = np.maximum(x, 0.0)
    last = [params[f"Dense_{hidden + i}"] for i in range(heads)]
    return [x @ head["kernel"] + head["bias"] for head in last]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_mlp_is_its_formula(layer_norm: bool) -> None:
    network = from_linen(MLP((8, 6), (2, 4), layer_norm=layer_norm), X)
    params = network.init(jax.random.key(0))
    params = jax.tree.map(  # biases and scales start trivial: move them
        lambda p: p + 0.1 * jax.random.normal(jax.random.key(p.size), p.shape), params
    )
    x = jax.random.normal(jax.random.key(1), (5, 3))
    for got, want in zip(
        network.apply(params, x), forward(params, np.asarray(x), 2, 2, layer_norm), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_several_inputs_are_concatenated_and_one_head_is_an_array() -> None:
    network = from_linen(MLP((4,), (1,)), X, jax.ShapeDtypeStruct((1, 2), jnp.float32))
    params = network.init(jax.random.key(0))
    a, b = jnp.ones((5, 3)), jnp.zeros((5, 2))
    got = network.apply(params, a, b)
    assert got.shape == (5, 1)
    want = forward(params, np.concatenate([a, b], -1), 1, 1, False)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_initial_weights_lie_where_the_papers_put_them() -> None:
    mlp = MLP(
        (64, 64),
        (5,),
        bias_init=nn.initializers.constant(0.1),
        head_init=uniform(1e-3),
        head_bias_init=uniform(3e-3),
    )
    params = from_linen(mlp, X).init(jax.random.key(0))
    for name, bound in (("Dense_0", 3**-0.5), ("Dense_1", 64**-0.5), ("Dense_2", 1e-3)):
        kernel = np.abs(params[name]["kernel"])
        assert 0.9 * bound < kernel.max() <= bound
        assert kernel.mean() == pytest.approx(bound / 2, rel=0.15)  # uniform
    np.testing.assert_array_equal(params["Dense_1"]["bias"], np.float32(0.1))
    assert 0 < np.abs(params["Dense_2"]["bias"]).max() <= 3e-3


@pytest.mark.parametrize("shape", [(16, 16), (24, 8), (8, 24), (3, 3, 2, 12), (1, 1)])
def test_orthogonal_weights_are_jaxs(shape: tuple[int, ...]) -> None:
    """Also of many keys at once, and without LAPACK: see `orthogonal`."""
    keys = jax.random.split(jax.random.key(1), 2)
    ours = jax.jit(jax.vmap(lambda key: orthogonal()(key, shape)))
    assert "lapack" not in ours.lower(keys).as_text()
    want = [jax.nn.initializers.orthogonal()(key, shape) for key in keys]
    np.testing.assert_allclose(ours(keys), want, atol=2e-6)


def test_parameter_count() -> None:
    params = from_linen(MLP((4,), (2, 3)), X).init(jax.random.key(0))
    assert parameter_count(params) == (3 * 4 + 4) + (4 * 2 + 2) + (4 * 3 + 3)


KEY = jax.random.key(3)
AS_USERS = pytest.mark.usefixtures("as_users_compile")
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "normal": (draws.normal, jax.random.normal),
    "uniform": (
        lambda key, shape: draws.uniform(key, shape, low=-2.0, high=jnp.float32(0.5)),
        lambda key, shape: jax.random.uniform(key, shape, minval=-2.0, maxval=0.5),
    ),
    "truncated": (
        lambda key, shape: draws.truncated_normal(key, -1.0, 2.0, shape),
        lambda key, shape: jax.random.truncated_normal(key, -1.0, 2.0, shape),
    ),
}
SCALED = jax.nn.initializers.variance_scaling
INITIAL: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lecun": (normal_fan_in(), jax.nn.initializers.lecun_normal()),
    "pets": (normal_fan_in(0.5), SCALED(0.25, "fan_in", "truncated_normal")),
    "torch": (uniform_fan_in(), SCALED(1.0 / 3.0, "fan_in", "uniform")),
    "he": (uniform_fan_in(6.0**0.5), jax.nn.initializers.he_uniform()),
    "bounded": (uniform(0.3), lambda key, shape: 0.3 * jax.random.uniform(key, shape, minval=-1.0)),
}


@AS_USERS
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5)])
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_numbers(name: str, shape: tuple[int, ...]) -> None:
    # Compiled anew: jax.random keeps its programs, also one of another test that optimised more.
    ours, theirs = (jax.jit(lambda key, draw=draw: draw(key, shape)) for draw in PAIRS[name])
    got = ours(KEY)
    assert got.shape == shape and got.dtype == jnp.float32
    np.testing.assert_array_equal(got, theirs(KEY))


@AS_USERS
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_numbers_of_many_keys(name: str) -> None:
    ours, theirs = (jax.vmap(lambda key, f=f: f(key, (3, 2))) for f in PAIRS[name])
    keys = jax.random.split(KEY, 4)
    np.testing.assert_array_equal(ours(keys), theirs(keys))


@AS_USERS
@pytest.mark.parametrize("name", INITIAL)
def test_initial_weights(name: str, shape: tuple[int, ...] = (3, 7, 5)) -> None:
    """A kernel of a convolution, too: its fan in counts its width."""
    ours, theirs = INITIAL[name]
    np.testing.assert_allclose(ours(KEY, shape), theirs(KEY, shape), rtol=1e-6)


def arrays(points: int, channels: int, seed: int = 0) -> tuple[jax.Array, ...]:
    keys = jax.random.split(jax.random.key(seed), 4)
    x = 3.0 + 2.0 * jax.random.normal(keys[0], (points, channels))
    gain, bias, above = (
        jax.random.normal(k, s)
        for k, s in zip(keys[1:], ((channels,), (channels,), x.shape), strict=True)
    )
    return x, gain, bias, above


def flax_norm(x: jax.Array, gain: jax.Array, bias: jax.Array, groups: int) -> jax.Array:
    module = nn.GroupNorm(num_groups=groups, epsilon=1e-5, reduction_axes=(-2, -1))
    return module.apply({"params": {"scale": gain, "bias": bias}}, x)  # type: ignore[return-value]


FUNCTIONS = (normalise, flax_norm)


@settings(deadline=None, max_examples=5)  # every shape compiles anew
@given(
    points=st.integers(2, 9),
    size=st.integers(1, 4),
    groups=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_flax(
    points: int, size: int, groups: int, seed: int
) -> None:
    x, gain, bias, above = arrays(points, size * groups, seed)

    def total(function: Any, *args: Any) -> jax.Array:
        return (function(*args, groups) * above).sum()

    found, expected = (jax.jit(f, static_argnums=3)(x, gain, bias, groups) for f in FUNCTIONS)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)
    with jax.enable_x64(True):
        wide = [jnp.asarray(np.asarray(v), jnp.float64) for v in (x, gain, bias)]
        mine, theirs = (jax.jit(jax.grad(partial(total, f), (0, 1, 2)))(*wide) for f in FUNCTIONS)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), mine, theirs
        )


def test_derivatives_are_finite_differences_also_of_a_batch() -> None:
    with jax.enable_x64(True):
        x, gain, bias, _ = (jnp.asarray(np.asarray(v), jnp.float64) for v in arrays(6, 4))
        check_grads(jax.jit(lambda *a: normalise(*a, 2)), (x, gain, bias), order=2)
        batch = jnp.stack([x, 2.0 * x + 1.0, x[::-1]])
        gains = jnp.stack([gain, -gain, 2.0 * gain])
        each = jax.jit(jax.vmap(normalise, (0, 0, None)))
        check_grads(each, (batch, gains, bias), order=2)


def test_one_norm_has_mean_zero_and_variance_one_and_room_for_conditions() -> None:
    module, (x, _, _, _) = GroupNorm(), arrays(16, 5)
    params = module.init(jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, params) == {"params": {"scale": (5,), "bias": (5,)}}
    plain = np.asarray(module.apply(params, x))
    np.testing.assert_allclose([plain.mean(), plain.std()], [0.0, 1.0], atol=1e-4)
    scale, shift = jnp.arange(5.0), -jnp.arange(5.0)
    shaken = {"params": {"scale": jnp.full(5, 2.0), "bias": jnp.full(5, 0.5)}}
    told = module.apply(shaken, x, scale, shift)
    want = (2.0 * plain + 0.5) * (1.0 + np.arange(5)) - np.arange(5)
    np.testing.assert_allclose(told, want, rtol=1e-4, atol=1e-4)


def test_a_constant_field_is_only_the_bias() -> None:
    said = normalise(jnp.full((8, 4), 7.0), jnp.full(4, 3.0), jnp.arange(4.0))
    np.testing.assert_allclose(said, np.broadcast_to(np.arange(4.0), (8, 4)), atol=1e-2)


def test_leading_axes_are_normalised_one_by_one() -> None:
    x, gain, bias, _ = arrays(6, 4)
    batch = jnp.stack([x, 5.0 * x**2, -x])
    each = jnp.stack([normalise(one, gain, bias, 2) for one in batch])
    np.testing.assert_allclose(normalise(batch, gain, bias, 2), each, rtol=1e-5, atol=1e-5)


def test_half_precision_is_normalised_in_single() -> None:
    """Means of squares near 1e4 would lose everything in bfloat16."""
    module, x = GroupNorm(2), 100.0 + arrays(16, 4)[0]
    half = x.astype(jnp.bfloat16)
    params = module.init(jax.random.key(0), x)
    found = module.apply(params, half)
    assert found.dtype == jnp.bfloat16  # type: ignore[union-attr]
    wide = np.asarray(module.apply(params, half.astype(jnp.float32)))
    np.testing.assert_allclose(np.asarray(found, np.float32), wide, rtol=1e-2, atol=1e-2)


def test_a_mean_far_above_the_deviation_costs_no_digits() -> None:
    """A mean of a hundred deviations: in one pass the variance would be off by 3e-3."""
    rng = np.random.default_rng(0)
    x = (100.0 + rng.normal(size=(256, 8))).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    found = normalise(jnp.asarray(x), jnp.ones(8), jnp.zeros(8))
    assert float(np.abs(found - exact).max()) < 2e-5
