"""Nested containers of arrays: parameters, states, batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Equal trees as one with a leading axis (of seeds, say), on the device."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)


def unstack(tree: PyTree) -> list[PyTree]:
    """The opposite of `stack`: the trees along the leading axis, one of each seed, say."""
    count = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(count)]
