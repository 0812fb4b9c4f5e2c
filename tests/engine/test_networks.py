"""Networks as pure functions: shapes, initial weights and the layers' arithmetic."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.networks import MLP, from_linen, parameter_count, uniform

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


def test_parameter_count() -> None:
    params = from_linen(MLP((4,), (2, 3)), X).init(jax.random.key(0))
    assert parameter_count(params) == (3 * 4 + 4) + (4 * 2 + 2) + (4 * 3 + 3)
