"""Nested containers of arrays: parameters, states, batches; and nested programs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Equal trees as one with a leading axis (of seeds, say), on the device."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)


@jax.jit
def row(tree: PyTree, index: Any) -> PyTree:
    """`leaf[index]` of every leaf, one program for all: a tree of one seed, or of several."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def unstack(tree: PyTree) -> list[PyTree]:
    """The opposite of `stack`: the trees along the leading axis, one of each seed, say."""
    return [row(tree, i) for i in range(len(jax.tree.leaves(tree)[0]))]


def equations(program: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those within it; a loop's body once."""
    for equation in program.eqns:
        yield equation
        # A primitive of ours that is compiled as a function, as in `pde/operators/convolution.py`.
        if work := getattr(equation.primitive, "stands_for", None):
            given = (each.aval for each in equation.invars)
            inner = jax.make_jaxpr(functools.partial(work, **equation.params))(*given)
            yield from equations(inner.jaxpr)
        params = list(equation.params.values())
        for value in jax.tree.leaves(params, is_leaf=lambda v: hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)
