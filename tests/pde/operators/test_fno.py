"""Parts of neuraloperator's FNO: published sizes, the network written out in numpy, ranks."""

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
from jaxrl_rollouts.pde.operators import Fno
from jaxrl_rollouts.pde.operators.fno import FnoNet, SpectralConv, tucker_ranks


@pytest.mark.parametrize("rank", [None, 1.0, 0.1])
def test_it_has_the_size_of_the_wells_networks(rank: float | None) -> None:
    """neuraloperator 0.3.0 as The Well calls it: 128 channels, 16 x 9 modes, MLPs of 256."""
    inputs, outputs, width, hidden = 16, 4, 128, 256
    config = Fno(width, 4, (8, 9), embedding=0, rank=rank, lifting=hidden)
    net = FnoNet(config, outputs, ("periodic", "periodic"))
    given = jnp.zeros((32, 32, inputs)), jnp.zeros(()), jnp.zeros(0)
    params: Any = jax.eval_shape(net.init, jax.random.key(0), *given)
    lifting = inputs * hidden + hidden + hidden * width + width
    projection = width * hidden + hidden + hidden * outputs + outputs
    sizes = np.array([width, width, 16, 9])
    spectral = sizes.prod()
    if rank is not None:
        ranks = np.array({1.0: sizes, 0.1: [71, 71, 9, 5]}[rank])  # as TensorLy 0.10 gives them
        spectral = ranks.prod() + (ranks * sizes).sum()
    blocks = 4 * (2 * spectral + width * width + width)
    assert sum(x.size for x in jax.tree.leaves(params)) == lifting + blocks + projection


def test_ranks_are_tensorlys() -> None:
    assert tucker_ranks((128, 128, 16, 9), 1.0) == (128, 128, 16, 9)
    assert tucker_ranks((16, 9, 128, 128), 0.1) == (9, 5, 71, 71)
    assert tucker_ranks((4, 4, 6, 3), 0.5) == (3, 3, 4, 2)
    assert tucker_ranks((16, 16, 8), 0.42) == (10, 10, 5)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def dense(p: Any, x: np.ndarray) -> np.ndarray:
    return x @ p["kernel"] + p["bias"]


def joined(pair: np.ndarray) -> np.ndarray:
    return pair[0] + 1j * pair[1]


def test_the_network_is_that_written_out_in_numpy() -> None:
    """One axis, two layers, with every part switched on but the embedding."""
    config = Fno(4, 2, 3, embedding=0, rank=0.5, lifting=5, channel_mlp=0.5, coordinates=True)
    net = config.make(FieldShape(1, 12))
    params = stirred(net)
    field = jax.random.normal(jax.random.key(2), (1, 12))
    found = net.apply(params, field, jnp.zeros_like(field), 0.0, jnp.zeros(0))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    x = np.stack([np.asarray(field[0], np.float64), np.zeros(12), np.arange(12) / 12], -1)
    x = dense(p["Dense_1"], gelu(dense(p["Dense_0"], x)))
    for layer in (0, 1):
        q = {name: joined(value) for name, value in p[f"SpectralConv_{layer}"].items()}
        core = q["core"], q["factor_0"], q["factor_1"], q["factor_2"]
        weight = np.einsum("abc,ka,ib,jc->kij", *core)
        modes = np.zeros((7, 4), complex)
        modes[:3] = np.einsum("kc,kcf->kf", np.fft.rfft(x, axis=0)[:3], weight)
        at = 2 + 3 * layer
        h = np.fft.irfft(modes, 12, axis=0) + dense(p[f"Dense_{at}"], x)
        h = dense(p[f"Dense_{at + 2}"], gelu(dense(p[f"Dense_{at + 1}"], gelu(h))))
        h = h + p[f"gate_{layer}"] * x
        x = h if layer else gelu(h)
    want = dense(p["Dense_9"], gelu(dense(p["Dense_8"], x)))
    np.testing.assert_allclose(found[0], want[:, 0], rtol=2e-4, atol=2e-5)


def test_full_ranks_reach_every_matrix() -> None:
    """With square factors that are one, the core is the matrices of the dense layer."""
    x = jax.random.normal(jax.random.key(0), (12, 12, 16))
    full, tucker = (SpectralConv(16, (4, 5), rank) for rank in (None, 1.0))
    matrices: Any = full.init(jax.random.key(1), x)["params"]
    factors: Any = tucker.init(jax.random.key(2), x)["params"]
    one = {
        name: jnp.stack([jnp.eye(value.shape[1]), jnp.zeros(value.shape[1:])])
        for name, value in factors.items()
        if name != "core"
    }
    one["core"] = jnp.stack([matrices["real"], matrices["imaginary"]])
    found: Any = tucker.apply({"params": one}, x)
    want: Any = full.apply({"params": matrices}, x)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_coordinates_break_shifts_and_nothing_else_does() -> None:
    for coordinates in (False, True):
        config = Fno(4, 1, 3, 4, rank=0.5, lifting=4, channel_mlp=1.0, coordinates=coordinates)
        net = config.make(FieldShape(1, (8, 12)))
        params = stirred(net)
        field = jax.random.normal(jax.random.key(1), (1, 8, 12))
        out, moved = (
            net.apply(params, u, jnp.zeros_like(u), 0.0, jnp.zeros(0))
            for u in (field, jnp.roll(field, (2, 3), (1, 2)))
        )
        same = np.allclose(moved, jnp.roll(out, (2, 3), (1, 2)), atol=1e-5)
        assert same is not coordinates


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"embedding": 3}, "embedding: found 3, expected 0, or an even number"),
        ({"embedding": 0}, "embedding: found 0, expected above 0.*conditions"),
        ({"rank": 0.0}, r"rank: found 0.0, expected in \(0, 1\]"),
        ({"lifting": -1}, "lifting"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Fno(4, 1, 3, **{"embedding": 4, **changes}).make(FieldShape(1, 12, 1))


@pytest.mark.parametrize("channels", [3, 32])  # a complex product, a real one of twice the size
def test_modes_are_mixed_by_complex_matrices(channels: int) -> None:
    layer, points, modes = SpectralConv(6, (4,)), 16, 4
    x = np.random.default_rng(0).normal(size=(points, channels)).astype(np.float32)
    params = layer.init(jax.random.key(0), jnp.asarray(x))
    weight = np.asarray(params["params"]["real"]) + 1j * np.asarray(params["params"]["imaginary"])
    low = np.zeros((points // 2 + 1, 6), complex)
    low[:modes] = np.einsum("kc,kcf->kf", np.fft.rfft(x, axis=0)[:modes], weight)
    want = np.fft.irfft(low, points, axis=0)
    np.testing.assert_allclose(layer.apply(params, jnp.asarray(x)), want, rtol=1e-4, atol=1e-6)
