"""Networks on periodic fields: parameter counts, symmetry, both forms of the convolution."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import (
    Fno,
    Resnet,
    Unet,
)
from jaxrl_rollouts.pde.operators.layers import (
    PeriodicConv,
    PeriodicUpsample,
    sinusoid,
    use_matmul,
)

N = 32
SMALL = {
    "unet": lambda form="auto", p=1: Unet(hidden=8, multipliers=(1, 2), form=form).make(
        FieldShape(1, N, p)
    ),
    "resnet": lambda form="auto", p=1: Resnet(
        width=6, blocks=1, dilations=(1, 2, 4), embedding=8, form=form
    ).make(FieldShape(1, N, p)),
    "fno": lambda form="auto", p=1: Fno(width=6, layers=2, modes=5, embedding=8).make(
        FieldShape(1, N, p)
    ),
}


def count(net: Any) -> int:
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@cache
def compiled(name: str) -> tuple[Any, Any]:
    """`init` and `apply` of a small network, compiled once for all tests of this file."""
    net = SMALL[name]()
    return jax.jit(net.init), jax.jit(net.apply)


@cache
def stirred(name: str) -> Any:
    """Parameters without a zero among them, so that every part takes part."""
    params = compiled(name)[0](jax.random.key(0))
    flat, back = ravel_pytree(params)
    return back(flat + 0.1 * jax.random.normal(jax.random.key(1), flat.shape))


def inputs() -> tuple:
    u, noised = jax.random.normal(jax.random.key(2), (2, 1, N))
    return u, noised


def test_the_unet_has_the_papers_size() -> None:
    """53.9 million with two conditions (time and space step), 215.5 million at twice the width."""
    assert count(Unet().make(FieldShape(1, 256, 2))) == 53_924_225
    assert count(Unet().make(FieldShape(1, 256, 0))) == 53_759_361
    assert count(Unet(hidden=128).make(FieldShape(1, 256, 2))) == 215_548_673


@pytest.mark.parametrize("name", SMALL)
def test_zero_at_the_start_and_of_the_fields_shape(name: str) -> None:
    init, apply = compiled(name)
    out = apply(init(jax.random.key(0)), *inputs(), 333.3, jnp.ones(1))
    assert out.shape == (1, N)
    np.testing.assert_array_equal(out, 0.0)


@pytest.mark.parametrize(("name", "shift"), [("unet", 2), ("resnet", 1), ("fno", 1)])
def test_a_shifted_field_gives_a_shifted_answer(name: str, shift: int) -> None:
    """Exactly by the factor the grid is halved by, and by any point without halving."""
    params, (u, noised), (_, apply) = stirred(name), inputs(), compiled(name)
    for steps in (shift, 5 * shift):
        there = [jnp.roll(x, steps, -1) for x in (u, noised)]
        shifted = apply(params, *there, 0.0, jnp.ones(1))
        out = jnp.roll(apply(params, u, noised, 0.0, jnp.ones(1)), steps, -1)
        np.testing.assert_allclose(shifted, out, rtol=1e-4, atol=1e-4 * float(jnp.abs(out).max()))


@pytest.mark.parametrize("name", SMALL)
def test_every_input_matters(name: str) -> None:
    params, (u, noised), (_, apply) = stirred(name), inputs(), compiled(name)
    out = apply(params, u, noised, 0.0, jnp.ones(1))
    for changed in (
        (u + 0.1, noised, 0.0, jnp.ones(1)),
        (u, noised.at[0, 3].add(0.1), 0.0, jnp.ones(1)),
        (u, noised, 333.3, jnp.ones(1)),
        (u, noised, 0.0, jnp.full(1, 2.0)),
    ):
        assert float(jnp.abs(apply(params, *changed) - out).max()) > 1e-5


@pytest.mark.parametrize("name", ["unet", "resnet"])
def test_matrix_products_and_convolutions_agree(name: str) -> None:
    other = SMALL[name]("conv" if use_matmul("auto") else "matmul")
    here, there = (
        apply(stirred(name), *inputs(), 0.0, jnp.ones(1))
        for apply in (compiled(name)[1], jax.jit(other.apply))
    )
    np.testing.assert_allclose(here, there, atol=1e-4 * float(jnp.abs(here).max()))


@pytest.mark.parametrize("form", ["matmul", "conv"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 3)])
def test_convolution_against_its_definition(form: Any, stride: int, dilation: int) -> None:
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(12, 2)), rng.normal(size=(3, 2, 5))
    layer = PeriodicConv(5, stride=stride, dilation=dilation, form=form)
    params = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.arange(5.0)}}
    out = layer.apply(params, jnp.asarray(x))
    for j in range(12 // stride):
        expected = np.arange(5.0)
        for i in range(3):
            expected = expected + x[(j * stride + (i - 1) * dilation) % 12] @ kernel[i]
        np.testing.assert_allclose(out[j], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 3)])
def test_gradients_of_both_forms_agree(stride: int, dilation: int) -> None:
    x, weights = jax.random.normal(jax.random.key(2), (2, 12, 5))
    kernel = jax.random.normal(jax.random.key(3), (3, 5, 5))
    params = {"params": {"kernel": kernel, "bias": jnp.arange(5.0)}}

    def gradients(form: Any) -> list[jax.Array]:
        layer = PeriodicConv(5, stride=stride, dilation=dilation, form=form)

        def total(params: Any, x: jax.Array) -> jax.Array:
            out: Any = layer.apply(params, x)
            return jnp.vdot(out, weights[::stride])

        return jax.tree.leaves(jax.jit(jax.grad(total, (0, 1)))(params, x))

    for a, b in zip(gradients("matmul"), gradients("conv"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # the test above asks it of the only layer that has two forms
@pytest.mark.parametrize("name", ["unet", "resnet"])
def test_gradients_of_whole_networks_agree(name: str) -> None:
    def gradients(form: str) -> list[jax.Array]:
        net = SMALL[name](form)

        def total(params: Any) -> jax.Array:
            return net.apply(params, *inputs(), 0.0, jnp.ones(1)).sum()

        return jax.tree.leaves(jax.jit(jax.grad(total))(stirred(name)))

    for a, b in zip(gradients("matmul"), gradients("conv"), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 * float(jnp.abs(a).max() + 1.0))


def test_upsampling_against_its_definition() -> None:
    """out[2 j + i - 1] collects x[j] kernel[i], around the circle."""
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(6, 2)), rng.normal(size=(4, 2, 2))
    params = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.zeros(2)}}
    out = PeriodicUpsample().apply(params, jnp.asarray(x))
    expected = np.zeros((12, 2))
    for j in range(6):
        for i in range(4):
            expected[(2 * j + i - 1) % 12] += x[j] @ kernel[i]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_a_kernel_that_reaches_around_is_refused() -> None:
    with pytest.raises(ConfigError, match="points: found 8, expected at least 9"):
        PeriodicConv(1, dilation=9).init(jax.random.key(0), jnp.zeros((8, 1)))


def test_sinusoid_is_cosines_then_sines() -> None:
    found = sinusoid(jnp.float32(3.0), 64)
    assert float(found[0]) == pytest.approx(np.cos(3.0), abs=1e-6)
    assert float(found[32]) == pytest.approx(np.sin(3.0), abs=1e-6)
    assert float(found[63]) == pytest.approx(np.sin(3.0 * 10_000 ** (-31 / 32)), rel=1e-4)


def test_the_form_is_chosen_by_where_it_runs() -> None:
    assert use_matmul("auto") == (jax.default_backend() == "cpu")
    assert use_matmul("matmul") and not use_matmul("conv")


def test_equal_arguments_give_the_same_network() -> None:
    """`jit` compiles once per function object."""
    for make in SMALL.values():
        assert make() is make() is not make(p=2)
    config = Resnet(width=6, blocks=1, dilations=(1,), embedding=8)
    line = config.make(FieldShape(1, N))
    assert line is config.make(FieldShape(1, (N,), boundaries=("periodic",)))
    assert line is not config.make(FieldShape(1, N, boundaries=("wall",)))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Unet(hidden=12).make(FieldShape(1, N)), "hidden"),
        (lambda: Unet(multipliers=()).make(FieldShape(1, N)), "multipliers"),
        (lambda: Unet(blocks=0).make(FieldShape(1, N)), "blocks"),
        (lambda: Resnet(dilations=(0,)).make(FieldShape(1, N)), "dilations"),
        (lambda: Resnet(embedding=7).make(FieldShape(1, N)), "embedding"),
        (lambda: Fno(modes=18).make(FieldShape(1, N)), "modes"),
        (lambda: Fno(width=0).make(FieldShape(1, N)), "width"),
    ],
)
def test_settings_are_checked(make: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


def test_a_grid_that_cannot_be_halved() -> None:
    with pytest.raises(ConfigError, match="found 20, expected a multiple of 8"):
        Unet().make(FieldShape(1, 20))
