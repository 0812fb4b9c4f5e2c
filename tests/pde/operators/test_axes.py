"""Operators over two and three axes: definitions, forms, walls, grids, whole networks."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape, grid_of
from jaxrl_rollouts.pde.objectives import Mse
from jaxrl_rollouts.pde.operators import Fno, Resnet, Unet
from jaxrl_rollouts.pde.operators.fno import SpectralConv
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, PeriodicUpsample, paddings
from jaxrl_rollouts.pde.spectral import waves

PADS = {"periodic": "wrap", "zero": "constant", "edge": "edge"}
GRID = (8, 12)
RESNET = Resnet(width=6, blocks=1, dilations=(1, 2), embedding=8)
UNET = Unet(hidden=8, multipliers=(1, 2), blocks=1)
FNO = Fno(width=6, layers=2, modes=3, embedding=8)
NETS = {"resnet": RESNET, "unet": UNET, "fno": FNO}


def said(net: FieldNetwork, params: Any, u: Any, noised: Any = None) -> np.ndarray:
    noised = jnp.zeros_like(u) if noised is None else noised
    return np.asarray(net.apply(params, u, noised, 0.0, jnp.zeros(0)))


PADDINGS = [("periodic",), ("periodic", "zero"), ("edge", "periodic"), ("zero", "edge")]
HOW = [("matmul", 1, 1), ("matmul", 2, 1), ("matmul", 1, 2), ("conv", 2, 1)]


@pytest.mark.parametrize(("form", "stride", "dilation"), HOW)
@pytest.mark.parametrize("padding", PADDINGS)
def test_convolution_against_its_definition(
    form: Any, stride: int, dilation: int, padding: Any
) -> None:
    rng, axes = np.random.default_rng(0), len(padding)
    x, kernel = rng.normal(size=(*GRID[:axes], 2)), rng.normal(size=(*(3,) * axes, 2, 4))
    layer = PeriodicConv(4, stride=stride, dilation=dilation, padding=padding, form=form)
    params = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.arange(4.0)}}
    wide = x
    for axis, kind in enumerate(padding):
        beyond = [(dilation * (i == axis), dilation * (i == axis)) for i in range(axes + 1)]
        wide = np.pad(wide, beyond, mode=PADS[kind])  # type: ignore[call-overload]
    expected = np.zeros((*(n // stride for n in GRID[:axes]), 4)) + np.arange(4.0)
    for place in itertools.product(*map(range, expected.shape[:-1])):
        for tap in itertools.product(range(3), repeat=axes):
            at = tuple(p * stride + t * dilation for p, t in zip(place, tap, strict=True))
            expected[place] += wide[at] @ kernel[tap]
    out = layer.apply(params, jnp.asarray(x))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    batched = layer.apply(params, jnp.asarray(np.stack([x, 2 * x])))
    np.testing.assert_allclose(batched[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("grid", "padding", "how"),
    [
        ((4, 6, 8), ("zero", "periodic", "edge"), {"stride": 2}),
        ((12,), ("periodic",), {"dilation": 3}),
    ],
)
def test_both_forms_agree_in_space_and_in_their_gradients(
    grid: Any, padding: Any, how: dict
) -> None:
    x = jax.random.normal(jax.random.key(0), (*grid, 2))
    kernel = jax.random.normal(jax.random.key(1), (*(3,) * len(grid), 2, 3))
    params = {"params": {"kernel": kernel, "bias": jnp.arange(3.0)}}

    def total(params: Any, x: jax.Array, form: Any) -> jax.Array:
        layer = PeriodicConv(3, padding=padding, form=form, **how)
        out: Any = layer.apply(params, x)
        return jnp.square(out).sum()

    pairs = (jax.value_and_grad(total, (0, 1))(params, x, form) for form in ("matmul", "conv"))
    for a, b in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("padding", [("periodic",), ("periodic", "periodic"), ("zero", "periodic")])
def test_upsampling_against_its_definition(padding: Any) -> None:
    """out[2 r + i - 1, 2 c + j - 1] collects x[r, c] kernel[i, j]; not over walls."""
    rng, axes = np.random.default_rng(0), len(padding)
    grid = (4, 6)[:axes]
    x, kernel = rng.normal(size=(*grid, 2)), rng.normal(size=(*(4,) * axes, 2, 2))
    params = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.ones(2)}}
    expected = np.ones((8, 12, 2) if axes == 2 else (8, 2))
    for place in itertools.product(*map(range, grid)):
        for tap in itertools.product(range(4), repeat=axes):
            at = [2 * p + t - 1 for p, t in zip(place, tap, strict=True)]
            if padding[0] == "periodic" or 0 <= at[0] < 8:
                there = tuple(a % (2 * n) for a, n in zip(at, grid, strict=True))
                expected[there] += x[place] @ kernel[tap]
    out = PeriodicUpsample(padding).apply(params, jnp.asarray(x))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        *((name, (32,)) for name in NETS),
        ("unet", (8, 16)),
        *((name, (4, 8, 8)) for name in ("resnet", "fno")),
        pytest.param("unet", (4, 8, 8), marks=pytest.mark.slow),
    ],
)
def test_networks_on_more_axes(name: str, grid: tuple[int, ...]) -> None:
    """Zero at the start, of the fields' shape, and a moved field gives a moved answer."""
    config = NETS[name]
    if name == "fno" and len(grid) == 3:
        config = Fno(width=6, layers=2, modes=2, embedding=8)
    net = config.make(FieldShape(2, grid))
    u, noised = jax.random.normal(jax.random.key(2), (2, 2, *grid))
    np.testing.assert_array_equal(said(net, net.init(jax.random.key(0)), u, noised), 0.0)
    params = stirred(net)
    out = said(net, params, u, noised)
    assert out.shape == (2, *grid)
    # Exactly by what the grid is halved by, and by any point without halving.
    by, axes = (2 if name == "unet" else 1,) * len(grid), tuple(range(1, 1 + len(grid)))
    there = said(net, params, *(jnp.roll(x, by, axes) for x in (u, noised)))
    np.testing.assert_allclose(
        there, np.roll(out, by, axes), rtol=1e-3, atol=1e-4 * np.abs(out).max()
    )


def test_a_network_knows_its_walls() -> None:
    config = Resnet(width=6, blocks=1, dilations=(1,), embedding=8)
    u = jax.random.normal(jax.random.key(2), (1, 32, 8))
    walls, circle = (config.make(FieldShape(1, (32, 8), boundaries=b)) for b in (("wall", ""), ()))
    params = stirred(circle)
    assert not np.allclose(said(walls, params, u), said(circle, params, u))


def test_an_fno_continues_what_is_open_and_cuts_it_away() -> None:
    net = FNO.make(FieldShape(1, (8, 16), boundaries=("wall", "periodic")))
    u = jax.random.normal(jax.random.key(2), (1, 8, 16))
    params = stirred(net)
    out = said(net, params, u)
    assert out.shape == (1, 8, 16)
    along = said(net, params, jnp.roll(u, 3, 2))
    np.testing.assert_allclose(along, np.roll(out, 3, 2), rtol=1e-3, atol=1e-4)
    across = said(net, params, jnp.roll(u, 3, 1))
    assert not np.allclose(across, np.roll(out, 3, 1), atol=1e-2)


def band_limited(points: int) -> jax.Array:
    """One field of wavenumbers up to 2 along both axes, on a grid."""
    x, y = np.meshgrid(*(2 * np.pi * np.arange(points) / points,) * 2, indexing="ij")
    return jnp.asarray(np.sin(2 * x - y) + 0.5 * np.cos(x + 2 * y) + 0.3 * np.sin(2 * y))


def test_an_fno_is_the_same_on_two_grids() -> None:
    layer = SpectralConv(1, modes=(4, 4))
    params = layer.init(jax.random.key(0), jnp.zeros((32, 32, 1)))
    coarse, fine = (layer.apply(params, band_limited(n)[..., None]) for n in (32, 64))
    np.testing.assert_allclose(coarse, fine[::2, ::2], atol=1e-5)
    small = layer.apply(params, band_limited(6)[..., None])  # fewer modes than it has weights
    assert small.shape == (6, 6, 1)


def test_a_whole_fno_of_one_layer_can_be_the_heat_equation() -> None:
    """One channel through everything; the two GELUs after it make a line: g(x) - g(-x) = x.

    Of Gaussian random fields without modes from `modes` on; three steps, each a residual.
    """
    modes, points, t, scale = 6, 16, 0.05, 0.3
    net = Fno(width=1, layers=1, modes=modes, embedding=4).make(FieldShape(1, (points, points)))
    params = jax.tree.map(jnp.zeros_like, net.init(jax.random.key(0)))
    k = np.concatenate([np.arange(modes), np.arange(-modes, 0)])
    square = k[:, None] ** 2 + np.arange(modes)[None] ** 2
    params["Dense_0"]["kernel"] = jnp.array([[1.0], [0.0]])  # the field, not what is noised
    params["SpectralConv_0"]["real"] = jnp.asarray((np.exp(-t * square) - 1) / scale)[
        ..., None, None
    ]
    params["Dense_3"]["kernel"] = jnp.array([[1.0, -1.0]])
    params["Dense_4"]["kernel"] = jnp.array([[1.0], [-1.0]])
    emulator = Mse().make(net, scale)
    wave = waves((points, points))
    rough = np.fft.rfft2(np.random.default_rng(0).normal(size=(points, points)))
    start = rough * (np.abs(wave) < modes).all(0)
    u = jnp.asarray(np.fft.irfft2(start))[None]
    for _ in range(3):
        u = emulator.step(params, jax.random.key(0), u, jnp.zeros(0))
    exact = np.fft.irfft2(start * np.exp(-3 * t * np.square(wave).sum(0)))
    np.testing.assert_allclose(u[0], exact, atol=1e-5)


def test_boundaries_say_what_lies_beyond() -> None:
    assert paddings(("periodic", "wall", "open"), 3) == ("periodic", "zero", "edge")
    assert paddings((), 2) == paddings(("", ""), 2) == ("periodic", "periodic")
    assert paddings(("open/wall",), 1) == ("edge",)
    with pytest.raises(ConfigError, match="boundaries: found .*, expected one for each of 2"):
        paddings(("wall",), 2)


@pytest.mark.parametrize("points", [(), (4, 4, 4, 4), (4, 0), 0])
def test_grids_that_are_none(points: Any) -> None:
    with pytest.raises(ConfigError, match="points"):
        grid_of(points)


def test_more_modes_than_an_axis_has() -> None:
    with pytest.raises(ConfigError, match="modes: found 7, expected at most 4 on 8 x 16 points"):
        Fno(modes=7).make(FieldShape(1, (8, 16)))
    with pytest.raises(ConfigError, match="found 6, expected a multiple of 4"):
        Unet(multipliers=(1, 1, 1)).make(FieldShape(1, (8, 6)))


def test_modes_of_each_axis_against_a_dense_reference() -> None:
    """Every wavenumber of the product by itself, on 64 x 16 points with 8 x 4 of them."""
    net = Fno(width=3, layers=1, modes=(8, 4), embedding=4).make(FieldShape(2, (64, 16)))
    shape = net.init(jax.random.key(0))["SpectralConv_0"]["real"].shape
    assert shape == (16, 4, 3, 3)
    rng = np.random.default_rng(0)
    real, imaginary = rng.normal(size=(2, *shape))
    x = rng.normal(size=(64, 16, 3))
    params = {"params": {"real": jnp.asarray(real), "imaginary": jnp.asarray(imaginary)}}
    layer = SpectralConv(3, (8, 4))
    found = layer.apply(params, jnp.asarray(x))
    modes, out = np.fft.rfft2(x, axes=(0, 1)), np.zeros((64, 9, 3), complex)
    for k in range(-8, 8):
        for m in range(4):
            out[k, m] = modes[k, m] @ (real[k, m] + 1j * imaginary[k, m])
    np.testing.assert_allclose(found, np.fft.irfft2(out, (64, 16), (0, 1)), atol=1e-4)


def test_one_number_of_modes_is_that_of_every_axis() -> None:
    grid = FieldShape(1, (8, 12))
    ones = [Fno(width=4, layers=1, modes=m, embedding=4).make(grid) for m in (3, (3, 3))]
    trees = [net.init(jax.random.key(0)) for net in ones]
    jax.tree.map(np.testing.assert_array_equal, *trees)
    for modes, words in (
        ((5, 3), "at most 4, 7"),
        ((3,), "one for each of 2"),
        (5, "at most 4 on"),
    ):
        with pytest.raises(ConfigError, match=words):
            Fno(modes=modes).make(grid)
