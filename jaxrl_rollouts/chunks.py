"""Iterations of all seeds as one compiled program, and what it needs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from . import devices
from .feeds import DataStream
from .trees import PyTree, equations

Init = Callable[[PyTree, PyTree], PyTree]
Update = Callable[[PyTree, PyTree], tuple[PyTree, Mapping[str, jax.Array]]]


Run = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]  # state, data -> state, metrics


class Chunk:
    """One chunk length of one update over all seeds, compiled once per set of shapes.

    Seeds side by side fill an accelerator, or the threads of a whole CPU. Where each core is a
    device (`devices.use_cores`) they take turns: its cache holds what one seed works on and not
    what four do, so that with ten critics, CQL or a U-Net four seeds on a core are 1.2 to 1.5
    times as fast, and small networks within 5 % either way. `turns` (None: so) decides otherwise.
    """

    def __init__(self, update: Update, length: int, axes: Axes, turns: bool | None = None) -> None:
        self._axes, self._turns = axes, turns
        self._side_by_side = side_by_side(update, length, axes)
        self._in_turn = in_turn(update, length, axes)
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
        if over is not None and not devices.of_seeds(over):
            # What comes out lies as it came in, so that the next call is the same program.
            with jax.set_mesh(over):
                run = jax.jit(self._side_by_side, donate_argnums=0, out_shardings=(lies, None))
                return run.lower(state, data).compile()
        if devices.cores_are_devices() if self._turns is None else self._turns:
            run = self._in_turn if over is None else _on_each(self._in_turn, over, self._axes)
            traced = jax.jit(run, donate_argnums=0).trace(state, data)
            # A simulator takes all seeds' states at a time; two callers of it could block XLA.
            does = equations(traced.jaxpr.jaxpr)
            if not any("callback" in equation.primitive.name for equation in does):
                return traced.lower().compile()
        return jax.jit(self._side_by_side, donate_argnums=0).lower(state, data).compile()


def side_by_side(update: Update, length: int, axes: Axes) -> Run:
    """`length` iterations of all seeds at a time: a scan of `vmap`, metrics `[length, seeds]`."""
    seeds = jax.vmap(update, in_axes=(0, axes.tree()))
    return lambda state, data: jax.lax.scan(lambda s, _: seeds(s, data), state, length=length)


def in_turn(update: Update, length: int, axes: Axes) -> Run:
    """The same one seed after the other; each finds its row of the state and writes it back."""

    def run(state: PyTree, data: PyTree) -> tuple[PyTree, PyTree]:
        mapped = jax.tree.broadcast(axes.per_seed(), data)

        def turn(state: PyTree, seed: jax.Array) -> tuple[PyTree, PyTree]:
            row = functools.partial(jax.lax.dynamic_index_in_dim, index=seed, keepdims=False)
            seen = jax.tree.map(lambda own, leaf: row(leaf) if own else leaf, mapped, data)
            after, metrics = jax.lax.scan(
                lambda s, _: update(s, seen), jax.tree.map(row, state), length=length
            )
            write = functools.partial(jax.lax.dynamic_update_index_in_dim, index=seed, axis=0)
            return jax.tree.map(write, state, after), metrics

        seeds = jax.tree.leaves(state)[0].shape[0]
        state, metrics = jax.lax.scan(turn, state, jnp.arange(seeds))
        return state, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), metrics)

    return run


def _on_each(run: Run, over: Mesh, axes: Axes) -> Run:
    """The same on every device of a mesh with its share of the seeds."""
    own, shared = PartitionSpec(devices.AXIS), PartitionSpec()
    seen = jax.tree.map(lambda its: own if its else shared, axes.per_seed())
    metrics = PartitionSpec(None, devices.AXIS)
    return jax.shard_map(
        run, mesh=over, in_specs=(own, seen), out_specs=(own, metrics), check_vma=False
    )


def run_fed(
    update: Update, length: int, state: PyTree, feed: DataStream
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

    def per_seed(self) -> PyTree:
        return jax.tree.unflatten(self.structure, self.leaves)


@functools.lru_cache(maxsize=32)
def compiled(update: Update, length: int, axes: Axes) -> Chunk:
    """The `Chunk` of these."""
    return Chunk(update, length, axes)


@functools.lru_cache(maxsize=32)
def beginning(init: Init, axes: Axes) -> Callable[[PyTree, PyTree], PyTree]:
    """`init` of all seeds, compiled; each leaf of what it returns has a buffer of its own."""
    # Chunks donate each leaf, and two equal ones of `init`, or one of the data, may be one buffer.
    seeds = jax.vmap(init, in_axes=(0, axes.tree()))
    return jax.jit(lambda keys, data: jax.tree.map(jnp.copy, seeds(keys, data)))
