"""Training in less memory: networks in bfloat16, activations recomputed or sharded."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxrl_rollouts.trees import PyTree

from .emulator import Conditions, FieldNetwork

Precision = Literal["float32", "bfloat16"]
Shard = Literal["seeds", "batch", "space"]


@functools.lru_cache(maxsize=32)
def lean(net: FieldNetwork, precision: Precision, remat: bool) -> FieldNetwork:
    """A network that needs less memory in training; the same one by default.

    Args:
        net: with parameters, inputs and outputs in float32, which they stay.
        precision: precision of what it computes between them. Fourier transforms, norms and
            conditions stay in float32.
        remat: keep its inputs only, and compute it again for the gradient (Chen et al. 2016, arXiv
            1604.06174).
    """
    if precision == "float32" and not remat:
        return net
    low = functools.partial(_cast, jnp.bfloat16 if precision == "bfloat16" else jnp.float32)

    def apply(
        params: PyTree, field: jax.Array, noised: jax.Array, index: Any, conditions: Conditions
    ) -> jax.Array:
        # The index is of the type that an `Embedding` gives.
        index = low(jnp.asarray(index, jnp.float32))
        found = net.apply(low(params), low(field), low(noised), index, conditions)
        return found.astype(field.dtype)

    return net._replace(apply=jax.checkpoint(apply) if remat else apply)


def _cast(dtype: Any, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)
