"""Transolver against the whole network in numpy, and what its slices and shifts may not change."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred
from scipy.special import erf, softmax

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.operators import Transolver

SMALL = Transolver(width=6, layers=2, heads=2, slices=4, ratio=2, embedding=4)
NONE = jnp.zeros(0)


def made(points: Any = (4, 6), **shape: Any) -> tuple[FieldNetwork, Any]:
    net = SMALL.make(FieldShape(1, points, **shape))
    return net, stirred(net)


def dense(p: Any, x: np.ndarray) -> np.ndarray:
    return x @ p["kernel"] + p.get("bias", 0.0)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def norm(p: Any, x: np.ndarray) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def convolved(p: Any, x: np.ndarray) -> np.ndarray:
    """Width 3, around circles: entry (a, b) of the kernel meets the point at (a - 1, b - 1)."""
    at = [(a, b) for a in range(3) for b in range(3)]
    return p["bias"] + sum(
        np.roll(x, (1 - a, 1 - b), (0, 1)) @ p["kernel"][a, b] for a, b in at
    )  # fmt: skip


def attended(p: Any, x: np.ndarray) -> np.ndarray:
    """Point by point and head by head."""
    size, space = x.shape[-1] // SMALL.heads, x.shape[:2]
    points, values = (convolved(p[n], x).reshape(-1, x.shape[-1]) for n in ("points", "values"))
    heads = []
    for head in range(SMALL.heads):
        own = slice(head * size, (head + 1) * size)
        heat = np.clip(p["temperature"][head], 0.1, 5)
        weights = softmax(dense(p["slices"], points[:, own]) / heat, 1)
        tokens = np.stack([w @ values[:, own] / (w.sum() + 1e-5) for w in weights.T])
        q, k, v = (tokens @ p[n]["kernel"] for n in "qkv")
        heads.append(weights @ (softmax(q @ k.T / np.sqrt(size), 1) @ v))
    return dense(p["out"], np.concatenate(heads, 1)).reshape(*space, -1)


def test_the_network_is_that_written_out_in_numpy() -> None:
    net, params = made(conditions=1)
    field = jax.random.normal(jax.random.key(2), (1, 4, 6))
    found = net.apply(params, field, 0.3 * field, 200.0, jnp.array([3.0]))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    waves = np.exp(-np.log(1e4) * np.arange(2) / 2)
    told = 0.0
    for i, value in enumerate((200.0, 3.0)):
        angles = np.concatenate([np.cos(value * waves), np.sin(value * waves)])
        inner = gelu(dense(p["Embedding_0"][f"Dense_{2 * i}"], angles))
        told = told + dense(p["Embedding_0"][f"Dense_{2 * i + 1}"], inner)
    x = np.moveaxis(np.concatenate([field, 0.3 * field]).astype(np.float64), 0, -1)
    x = dense(p["Dense_1"], gelu(dense(p["Dense_0"], x))) + dense(p["Dense_2"], gelu(told))
    for layer in (0, 1):
        x = x + attended(p[f"SliceAttention_{layer}"], norm(p[f"LayerNorm_{2 * layer}"], x))
        inner = dense(p[f"Dense_{3 + 2 * layer}"], norm(p[f"LayerNorm_{2 * layer + 1}"], x))
        x = x + dense(p[f"Dense_{4 + 2 * layer}"], gelu(inner))
    want = dense(p["Dense_7"], norm(p["LayerNorm_4"], x))
    np.testing.assert_allclose(found[0], want[..., 0], rtol=2e-4, atol=2e-5)


def test_slices_have_no_order() -> None:
    net, params = made()
    field = jax.random.normal(jax.random.key(3), (1, 4, 6))
    order, other = jnp.array([2, 0, 3, 1]), jax.tree.map(lambda x: x, params)
    for layer in (0, 1):
        held = other[f"SliceAttention_{layer}"]
        held["slices"] = jax.tree.map(lambda x: x[..., order], held["slices"])
    both = [net.apply(p, field, 0 * field, 0.0, NONE) for p in (params, other)]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-6)
    assert float(jnp.abs(both[0]).max()) > 0.1


def test_shifts_and_copies_of_a_field_give_those_of_the_answer() -> None:
    net, params = made()
    for layer in (0, 1):  # every slice has points: beside an empty one's weight 1e-5 is not small
        params[f"SliceAttention_{layer}"]["temperature"][:] = 5.0
    field = jax.random.normal(jax.random.key(4), (1, 4, 6))
    answer = net.apply(params, field, 0 * field, 0.0, NONE)
    moved = jnp.roll(field, (1, 2), (1, 2))
    found = net.apply(params, moved, 0 * moved, 0.0, NONE)
    np.testing.assert_allclose(found, jnp.roll(answer, (1, 2), (1, 2)), rtol=1e-4, atol=1e-5)
    # A slice is a mean: it does not depend on how often the same points come.
    twice = jnp.tile(field, (1, 2, 1))
    found = SMALL.make(FieldShape(1, (8, 6))).apply(params, twice, 0 * twice, 0.0, NONE)
    np.testing.assert_allclose(found, jnp.tile(answer, (1, 2, 1)), rtol=1e-4, atol=1e-4)
    # Between walls a shift is another field.
    net, params = made(boundaries=("wall", "periodic"))
    there, back = (net.apply(params, x, 0 * x, 0.0, NONE) for x in (field, moved))
    assert float(jnp.abs(back - jnp.roll(there, (1, 2), (1, 2))).max()) > 1e-3


def test_its_size_is_that_of_the_released_layers() -> None:
    """The authors' for Navier-Stokes: 8 blocks, width 256, 8 heads, 32 slices, an MLP of 256."""
    wide, heads, slices, inputs = 256, 8, 32, 2
    head, linear = wide // heads, wide * wide + wide
    attention = 2 * (9 * wide * wide + wide) + heads + (head * slices + slices) + 3 * head**2
    block = attention + linear + 2 * linear + 4 * wide
    ends = inputs * 2 * wide + 2 * wide + 2 * wide * wide + wide + 2 * wide + wide + 1
    told = 16 * 16 * 2 + 16 * 2 + 16 * wide + wide  # of the index alone, without conditions
    net = Transolver(wide, 8, heads, slices, embedding=16).make(FieldShape(1, (64, 64)))
    held = jax.eval_shape(net.init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(held)) == 8 * block + ends + told


def test_a_fresh_network_predicts_no_change_on_one_axis_and_on_three() -> None:
    for grid in ((8,), (4, 4, 4)):
        net = SMALL.make(FieldShape(2, grid))
        field = jax.random.normal(jax.random.key(0), (2, *grid))
        found = net.apply(net.init(jax.random.key(1)), field, 0 * field, 0.0, NONE)
        assert found.shape == field.shape and not found.any()


@pytest.mark.parametrize(
    ("settings", "match"), [({"heads": 3, "width": 8}, "divisor"), ({"embedding": 3}, "even")]
)
def test_what_cannot_be_is_refused(settings: dict[str, int], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Transolver(**settings).make(FieldShape(1, 8))
