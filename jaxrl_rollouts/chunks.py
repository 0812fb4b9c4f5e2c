"""Iterations of all seeds as one compiled program, and what it needs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from . import devices
from .feeds import Feed
from .trees import PyTree

Init = Callable[[PyTree, PyTree], PyTree]
Update = Callable[[PyTree, PyTree], tuple[PyTree, Mapping[str, jax.Array]]]


class Chunk:
    """One chunk length of one update: `scan` of `vmap`, compiled once per set of shapes."""

    def __init__(self, update: Update, length: int, axes: Axes) -> None:
        seeds = jax.vmap(update, in_axes=(0, axes.tree()))

        def run(state: PyTree, data: PyTree) -> tuple[PyTree, PyTree]:
            return jax.lax.scan(lambda s, _: seeds(s, data), state, length=length)

        self._run = run
        self._programs: dict[Any, Any] = {}

    def run(self, state: PyTree, data: PyTree) -> tuple[PyTree, dict[str, np.ndarray], dict]:
        """New state, metrics `[chunk, seeds]` on the host, and what it took; `state` is gone."""
        begin = time.perf_counter()
        program = self.program(state, data)
        compiled = time.perf_counter()
        state, metrics = program(state, data)
        metrics = {name: np.asarray(value) for name, value in devices.local(metrics).items()}
        seconds = {"compile": compiled - begin, "run": time.perf_counter() - compiled}
        return state, metrics, seconds

    def program(self, state: PyTree, data: PyTree) -> Any:
        """Compiled for arguments of these shapes."""
        leaves, structure = jax.tree.flatten((state, data))
        signature = (structure, tuple((x.shape, x.dtype, x.sharding) for x in leaves))
        if signature not in self._programs:
            self._programs[signature] = self._compile(state, data)
        return self._programs[signature]

    def _compile(self, state: PyTree, data: PyTree) -> Any:
        lies = jax.tree.map(lambda leaf: leaf.sharding, state)
        over = getattr(jax.tree.leaves(lies)[0], "mesh", None)
        if over is None or devices.of_seeds(over):
            return jax.jit(self._run, donate_argnums=0).lower(state, data).compile()
        # What comes out lies as it came in, so that the next call is the same program.
        with jax.set_mesh(over):
            jitted = jax.jit(self._run, donate_argnums=0, out_shardings=(lies, None))
            return jitted.lower(state, data).compile()


def run_fed(
    update: Update, length: int, state: PyTree, feed: Feed
) -> tuple[PyTree, dict[str, np.ndarray], dict]:
    """`Chunk.run` where every iteration brings its own data, `[seeds, ...]`."""
    program, every = compiled(update, 1, Axes.of(True)), []
    for _ in range(length):
        state, *rest = program.run(state, feed.take())
        every.append(rest)
    metrics, seconds = zip(*every, strict=True)
    joined = {name: np.concatenate([m[name] for m in metrics]) for name in metrics[0]}
    return state, joined, {name: sum(s[name] for s in seconds) for name in seconds[0]}


def placed(rows: PyTree, over: Mesh | None) -> PyTree:
    """Leaves `[seeds, ...]` on the devices of the mesh, as the state lies there."""
    if over is None:
        return jax.tree.map(jnp.asarray, rows)
    return (devices.shard_seeds if devices.of_seeds(over) else devices.replicate)(rows, over)


class Axes(NamedTuple):
    """A prefix of the data for `vmap`, in a form that a cache can compare."""

    leaves: tuple[bool, ...]
    structure: Any

    @classmethod
    def of(cls, per_seed: PyTree) -> Axes:
        leaves, structure = jax.tree.flatten(per_seed)
        return cls(tuple(map(bool, leaves)), structure)

    def tree(self) -> PyTree:
        return jax.tree.unflatten(self.structure, [0 if own else None for own in self.leaves])


@functools.lru_cache(maxsize=32)
def compiled(update: Update, length: int, axes: Axes) -> Chunk:
    """The `Chunk` of these."""
    return Chunk(update, length, axes)


@functools.lru_cache(maxsize=32)
def beginning(init: Init, axes: Axes) -> Callable[[PyTree, PyTree], PyTree]:
    """`init` of all seeds, compiled."""
    return jax.jit(jax.vmap(init, in_axes=(0, axes.tree())))
