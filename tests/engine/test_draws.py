"""Flat draws are jax.random's numbers, to the bit; the initial weights are jax.nn's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import draws
from jaxrl_rollouts.networks import normal_fan_in, uniform, uniform_fan_in

KEY = jax.random.key(3)
pytestmark = pytest.mark.usefixtures("as_users_compile")
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


@pytest.mark.parametrize("shape", [(), (0, 3), (6,), (4, 3), (2, 3, 5)])
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_numbers(name: str, shape: tuple[int, ...]) -> None:
    # Compiled anew: jax.random keeps its programs, also one of another test that optimised more.
    ours, theirs = (jax.jit(lambda key, draw=draw: draw(key, shape)) for draw in PAIRS[name])
    got = ours(KEY)
    assert got.shape == shape and got.dtype == jnp.float32
    np.testing.assert_array_equal(got, theirs(KEY))


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_numbers_of_many_keys(name: str) -> None:
    ours, theirs = (jax.vmap(lambda key, f=f: f(key, (3, 2))) for f in PAIRS[name])
    keys = jax.random.split(KEY, 4)
    np.testing.assert_array_equal(ours(keys), theirs(keys))


@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5)])
@pytest.mark.parametrize("name", INITIAL)
def test_initial_weights(name: str, shape: tuple[int, ...]) -> None:
    """A kernel of a convolution, too: its fan in counts its width."""
    ours, theirs = INITIAL[name]
    np.testing.assert_allclose(ours(KEY, shape), theirs(KEY, shape), rtol=1e-6)
