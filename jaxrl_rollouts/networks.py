"""Networks as a pair of pure functions. Flax's Linen is an implementation detail of this file.

Parameters are nested dicts of arrays, so an ensemble is `vmap` of `init`, an elite is an index
into the leading axis and a checkpoint needs no special care.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from . import draws
from .trees import PyTree

Initializer = Callable[..., Any]


class Network(NamedTuple):
    """`init(key) -> params` and `apply(params, *inputs) -> outputs`."""

    init: Callable[[jax.Array], PyTree]
    apply: Callable[..., Any]


def from_linen(module: nn.Module, *example: jax.Array | jax.ShapeDtypeStruct) -> Network:
    """Hide a Linen module behind `Network`; `example` are inputs of the shapes it will see.

    Both functions are compiled, so that calling them one by one does not compile every
    operation by itself; within a larger program that changes nothing.
    """
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in example]

    def init(key: jax.Array) -> PyTree:
        zeros = [jnp.zeros(x.shape, x.dtype) for x in shapes]  # made only where it is run
        return module.init(key, *zeros)["params"]

    def apply(params: PyTree, *inputs: jax.Array) -> Any:
        return module.apply({"params": params}, *inputs)

    return Network(jax.jit(init), jax.jit(apply))


def uniform_fan_in(scale: float = 1.0) -> Initializer:
    """U(+-scale / sqrt(fan_in)), torch's default for weights of a linear layer."""

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        variance = jnp.array(scale**2 / 3.0 / math.prod(shape[:-1]), dtype)
        return draws.uniform(key, shape, dtype, -1.0) * jnp.sqrt(3.0 * variance)

    return init


def normal_fan_in(scale: float = 1.0) -> Initializer:
    """A normal cut at two deviations, of variance `scale**2 / fan_in`; 1.0 is LeCun's."""

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        variance = jnp.array(scale**2 / math.prod(shape[:-1]), dtype)
        std = jnp.sqrt(variance) / jnp.array(0.87962566103423978, dtype)  # of what is cut
        return draws.truncated_normal(key, -2.0, 2.0, shape, dtype) * std

    return init


def orthogonal() -> Initializer:
    """Orthonormal columns, or rows where there are more of them, of `[..., columns]`.

    To rounding that of jax, by Gram and Schmidt's method. Jax calls LAPACK, whose kernels wait for
    threads of the pool that they run in: on one or two cores a program with several of them may
    never end (jaxlib 0.10).
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        x = jax.random.normal(key, (max(rows, columns), min(rows, columns)), dtype)

        def column(i: jax.Array, q: jax.Array) -> jax.Array:
            """The i-th one less its part along those before it, which is taken twice: the first
            time leaves a rounding error of it."""
            left = x[:, i]
            for _ in range(2):
                left = left - q @ (left @ q)
            return q.at[:, i].set(left / jnp.linalg.norm(left))

        q = jax.lax.fori_loop(0, x.shape[1], column, jnp.zeros_like(x))
        return (q if rows >= columns else q.T).reshape(shape)

    return init


def uniform(bound: float) -> Initializer:
    """U(-bound, bound)."""

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        return draws.uniform(key, shape, dtype, -bound, bound)

    return init


Dense = functools.partial(nn.Dense, kernel_init=normal_fan_in())


class MLP(nn.Module):
    """Dense layers with an activation between them, optionally with layer normalisation before it.

    Attributes:
        hidden: widths of the hidden layers.
        out: widths of the linear heads; one array is returned for a single head.
        activation: between layers.
        layer_norm: normalise (affine) before each activation.
        norm_after: after it instead.
        kernel_init, bias_init: initialisers of the hidden layers; a bias of None is U(+-1 /
            sqrt(fan_in)).
        head_init, head_bias_init: initialisers of the heads; the hidden layers' where None.
    """

    hidden: Sequence[int]
    out: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array] = nn.relu
    layer_norm: bool = False
    norm_after: bool = False
    kernel_init: Initializer = uniform_fan_in()
    bias_init: Initializer | None = jax.nn.initializers.zeros
    head_init: Initializer | None = None
    head_bias_init: Initializer | None = None

    @nn.compact
    def __call__(self, *inputs: jax.Array) -> Any:
        x = jnp.concatenate(inputs, axis=-1)
        for width in self.hidden:
            bias = self.bias_init or uniform(x.shape[-1] ** -0.5)
            x = nn.Dense(width, kernel_init=self.kernel_init, bias_init=bias)(x)
            x = self.activation(x) if self.norm_after else x
            x = nn.LayerNorm(epsilon=1e-5)(x) if self.layer_norm else x
            x = x if self.norm_after else self.activation(x)
        kernel = self.head_init or self.kernel_init
        bias = self.head_bias_init or self.bias_init or uniform(x.shape[-1] ** -0.5)
        heads = [nn.Dense(n, kernel_init=kernel, bias_init=bias)(x) for n in self.out]
        return tuple(heads) if len(heads) > 1 else heads[0]


def parameter_count(params: PyTree) -> int:
    """Number of scalars in a parameter tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
