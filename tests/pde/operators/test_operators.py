"""Networks on periodic fields, and PDEArena's U-Net with random weights by its names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred
from helpers_pdearena import NumpyUnet
from helpers_ported import unet_from_pdearena

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.operators import ConvNext, Fno, Resnet, Unet
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, sinusoid, use_matmul
from jaxrl_rollouts.pde.operators.unet import Attention

N = 32
UNET = Unet(hidden=8, multipliers=(1, 2))
RESNET = Resnet(width=6, blocks=1, dilations=(1, 2, 4), embedding=8)
SMALL = {"unet": UNET, "resnet": RESNET, "fno": Fno(width=6, layers=2, modes=5, embedding=8)}
SMALL["convnext"] = ConvNext(width=4, stages=2, embedding=8)


def count(net: Any) -> int:
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def made(name: str, p: int = 1, **changes: Any) -> FieldNetwork:
    return replace(SMALL[name], **changes).make(FieldShape(1, N, p))


def inputs() -> tuple:
    u, noised = jax.random.normal(jax.random.key(2), (2, 1, N))
    return u, noised


def test_the_unet_has_the_papers_size() -> None:
    """53.9 million with two conditions (time and space step), 215.5 million at twice the width."""
    assert count(Unet().make(FieldShape(1, 256, 2))) == 53_924_225
    assert count(Unet().make(FieldShape(1, 256, 0))) == 53_759_361
    assert count(Unet(hidden=128).make(FieldShape(1, 256, 2))) == 215_548_673
    # PDEArena's `Unetmod-64` in the plane, 4 frames of 3 fields to one, has no embedding: besides
    # it the index's MLP, 64 to 256 to 256, and a linear map from 256 in each block.
    widths = 2 * (64 + 128 + 256 + 1024) + 2 * 1024 + 2304 + 640 + 320 + 192
    told = 65 * 256 + 257 * 256 + 257 * widths
    flows = FieldShape(3, (128, 128), history=3)
    assert count(Unet().make(flows)) == 144_263_683 + told


def test_attention_over_the_coarsest_grid() -> None:
    """Against numpy, a query at a time; a shift of the coarsest cells stays one of the answer."""
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    layer = Attention()
    params: Any = layer.init(jax.random.key(1), jnp.asarray(x))["params"]
    found: Any = layer.apply({"params": params}, jnp.asarray(x))
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    points = x.reshape(12, 5).astype(np.float64)
    query, key, value = np.split(points @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"], 3, 1)
    for i, asks in enumerate(query):
        weight = np.exp(key @ asks / np.sqrt(5))
        want = weight @ value / weight.sum() @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"]
        np.testing.assert_allclose(found.reshape(12, 5)[i], points[i] + want, rtol=1e-4, atol=1e-5)
    plain, more = (
        count(replace(UNET, attention=on).make(FieldShape(1, N))) for on in (False, True)
    )
    width = 16  # at the coarsest level
    assert more - plain == 3 * width * (width + 1) + width * (width + 1)
    net, (u, noised) = made("unet", attention=True), inputs()
    weights = stirred(net)
    out = net.apply(weights, u, noised, 0.0, jnp.ones(1))
    moved = net.apply(weights, jnp.roll(u, 2, 1), jnp.roll(noised, 2, 1), 0.0, jnp.ones(1))
    np.testing.assert_allclose(moved, jnp.roll(out, 2, 1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_every_input_matters(name: str) -> None:
    net, (u, noised) = made(name), inputs()
    params, apply = stirred(net), net.apply
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
    nets = (made(name), made(name, form="conv" if use_matmul("auto") else "matmul"))
    here, there = (net.apply(stirred(net), *inputs(), 0.0, jnp.ones(1)) for net in nets)
    np.testing.assert_allclose(here, there, atol=1e-4 * float(jnp.abs(here).max()))


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
    for name in SMALL:
        assert made(name) is made(name) is not made(name, 2)
    line = RESNET.make(FieldShape(1, N))
    assert line is RESNET.make(FieldShape(1, (N,), boundaries=("periodic",)))
    assert line is not RESNET.make(FieldShape(1, N, boundaries=("wall",)))


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


TIME, CONDITIONS = 250.0, (4.5, 6.25)
PORTED = Unet(hidden=8, multipliers=(1, 2), blocks=1, zero_upsampling=True)
DEEP = Unet(hidden=8, multipliers=(1, 2, 2), zero_upsampling=True)


def numpy_unet(config: Unet, **how: Any) -> NumpyUnet:
    return NumpyUnet(config.hidden, config.multipliers, config.blocks, **how)


def away(said: Any, expected: np.ndarray) -> float:
    """The largest difference, of the largest value."""
    assert np.shape(said) == expected.shape
    return np.abs(np.asarray(said) - expected).max() / np.abs(expected).max()


def difference(
    theirs: NumpyUnet,
    config: Unet,
    points: tuple[int, ...],
    conditions: int,
    history: int = 1,
    boundaries: tuple[str, ...] = (),
) -> float:
    """How far ours is away in double precision; only the sines of the embedding are in single."""
    x = np.random.default_rng(1).normal(size=((history + 1) * theirs.channels, *points))
    given = CONDITIONS[:conditions]
    expected = theirs(x, TIME, given)
    shape = FieldShape(theirs.channels, points, conditions, history, boundaries)
    net, params = config.make(shape), unet_from_pdearena(theirs.state, config, shape)
    seen = x[: -theirs.channels], x[-theirs.channels :], np.array(given)
    with jax.enable_x64(True):
        params, *seen = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), (params, *seen))
        said = net.apply(params, *seen[:2], TIME, seen[2])
        assert said.dtype == np.float64
    return away(said, expected)


def test_a_ported_checkpoint_says_the_same() -> None:
    assert difference(numpy_unet(DEEP), DEEP, (32,), 2) < 1e-7


def test_in_the_plane_with_a_history() -> None:
    """Of two channels; the only condition's embedding has the name of PDEArena's 2-D file."""
    assert difference(numpy_unet(PORTED, channels=2, single=True), PORTED, (8, 12), 1, 2) < 1e-7


def test_zeros_everywhere_are_walls() -> None:
    """PDEArena's default padding. At walls our up-sampling has zeros without the option."""
    config = Unet(hidden=8, multipliers=(1, 2), blocks=1)
    theirs = numpy_unet(config, circular=False)
    assert difference(theirs, config, (8, 12), 0, boundaries=("wall", "wall")) < 1e-7


def test_without_zero_upsampling_it_is_another_network() -> None:
    config = Unet(hidden=8, multipliers=(1, 2), blocks=1)
    assert difference(numpy_unet(config), config, (16,), 2) > 0.01


def state(config: Unet = PORTED, conditions: int = 2) -> dict[str, np.ndarray]:
    theirs = numpy_unet(config)
    theirs(np.zeros((2, 16)), TIME, CONDITIONS[:conditions])
    return theirs.state


def test_every_array_has_its_place() -> None:
    """The published model's names and size: 280 arrays; each number is there once."""
    given = state(Unet(hidden=8))
    assert len(given) == 280 and "up.14.res.shortcut.bias" in given
    params = unet_from_pdearena(given, Unet(hidden=8), FieldShape(1, 16, 2))
    ours, theirs = (
        np.sort(np.concatenate([np.ravel(x) for x in arrays]))
        for arrays in (jax.tree.leaves(params), given.values())
    )
    np.testing.assert_array_equal(ours, theirs)
