"""Group normalisation by hand against flax's, forwards and backwards."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from jaxrl_rollouts.group_norm import GroupNorm, normalise


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
