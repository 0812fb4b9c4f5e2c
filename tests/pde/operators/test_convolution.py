"""Convolutions as products beside the backend's own: values and derivatives of all kinds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred

from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import Fno, Resnet, Unet
from jaxrl_rollouts.pde.operators.convolution import convolution, products, shifted
from jaxrl_rollouts.pde.operators.layers import gelu_of

PADDINGS = [("periodic",), ("zero", "periodic"), ("periodic", "zero", "periodic")]


@pytest.mark.parametrize("padding", PADDINGS)
def test_derivatives_of_products_are_those_of_a_convolution(padding: Any) -> None:
    axes, dilation = len(padding), 2 if len(padding) == 1 else 1
    grid, key = (6, 5, 4)[:axes], jax.random.key(0)
    x = jax.random.normal(key, (2, *grid, 3))
    kernel = jax.random.normal(key, (*(3,) * axes, 3, 2))

    def everything(apply: Any, x: jax.Array, kernel: jax.Array) -> Any:
        def total(x: jax.Array, kernel: jax.Array) -> jax.Array:
            return jnp.sin(apply(x, kernel, 1, dilation, padding)).sum()

        gradient = jax.grad(total, (0, 1))
        at, along = (x, kernel), (jnp.cos(x), kernel**2)
        # Forward over reverse and reverse over reverse, and two networks side by side.
        twice = jax.jvp(gradient, at, along)
        square = jax.grad(lambda *at: sum(jnp.square(g).sum() for g in gradient(*at)), (0, 1))
        both = jnp.stack([kernel, 2 * kernel])
        each = jax.vmap(gradient, (None, 0))(x, both)
        summed = jax.grad(lambda x, k: jax.vmap(total, (None, 0))(x, k).sum(), (0, 1))
        return twice, square(*at), each, summed(x, both)

    found, expected = (
        jax.jit(everything, static_argnums=0)(apply, x, kernel) for apply in (products, convolution)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * float(jnp.abs(b).max()))


@pytest.mark.parametrize("padding", ["periodic", "zero"])
def test_a_shift_transposed_is_the_shift_back(padding: Any) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 3, 7, 2)).astype(np.float32)
    moved, back = jax.vjp(lambda x: shifted(x, 2, 1, padding), x)
    expected = np.roll(x, -2, 1)
    if padding == "zero":
        expected[:, -2:] = 0
    np.testing.assert_array_equal(moved, expected)
    np.testing.assert_array_equal(back(y)[0], shifted(jnp.asarray(y), -2, 1, padding))
    assert float((moved * y).sum()) == pytest.approx(float((x * back(y)[0]).sum()), rel=1e-5)


def test_gelu_by_tanh() -> None:
    x = jnp.linspace(-4, 4, 101)
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(gelu_of("tanh")(x), expected, atol=1e-6)
    apart = np.abs(np.asarray(gelu_of("tanh")(x) - gelu_of("erf")(x))).max()
    assert 1e-4 < apart < 5e-4


@pytest.mark.parametrize(
    "kind",
    [
        lambda **how: Resnet(width=6, blocks=1, dilations=(1,), embedding=8, **how),
        lambda **how: Unet(hidden=8, multipliers=(1, 2), blocks=1, **how),
        lambda **how: Fno(width=6, layers=2, modes=3, embedding=8, **how),
    ],
)
def test_networks_with_gelu_by_tanh(kind: Any) -> None:
    exact, near = (kind(gelu=form).make(FieldShape(1, (8,))) for form in ("erf", "tanh"))
    params = stirred(exact)
    u = jax.random.normal(jax.random.key(2), (1, 8))
    a, b = (net.apply(params, u, u, 0.0, jnp.zeros(0)) for net in (exact, near))
    apart = float(jnp.abs(a - b).max() / jnp.abs(a).max())
    assert 0 < apart < 0.02
