"""Several devices: one mesh axis over seeds (or members), data replicated.

Seeds never talk to each other, so `jit` with `NamedSharding` needs no collective: each device
carries its share of the leading axis. On a CPU each core can be such a device (`use_cores`): seeds
side by side on cores are about twice as fast as one program that splits every product over two.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .errors import ConfigError
from .trees import PyTree

AXIS = "seed"


def use_cores(most: int = 8) -> None:
    """Make every CPU core a device of its own, `most` at most (each holds a copy of the data).

    Has an effect before jax computes anything only; the command line calls it. Leaves alone what
    `XLA_FLAGS` says about the number of host devices, and any GPU or TPU.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    # Cores this process may use, which in a container are fewer than the machine has.
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    with contextlib.suppress(RuntimeError):  # jax has started: its devices are what they are
        jax.config.update("jax_num_cpu_devices", max(1, min(len(allowed), most)))


def seed_mesh(devices: Any = None) -> Mesh:
    """A 1-D mesh over a sequence of devices (all of them by default)."""
    devices = list(devices or jax.devices())
    auto = jax.sharding.AxisType.Auto
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(auto,), devices=devices)


def mesh_for(seeds: int) -> Mesh | None:
    """As many of this host's devices as `seeds` can keep busy; None where one is all there is.

    With several hosts None too: a mesh over all of them is the caller's to choose.
    """
    if jax.process_count() > 1 or seeds < 2:
        return None
    per_device = -(-seeds // len(jax.devices()))
    count = -(-seeds // per_device)
    return seed_mesh(jax.devices()[:count]) if count > 1 else None


def shard_seeds(tree: PyTree, mesh: Mesh) -> PyTree:
    """Spread the leading axis of every leaf over the mesh.

    Where it does not divide, the last row is repeated until it does; `gather` drops the copies.

    Raises:
        ConfigError: several hosts, and the leading axis is not a multiple of the devices.
    """
    seeds = jax.tree.leaves(tree)[0].shape[0]
    padded = -(-seeds // mesh.size) * mesh.size
    if padded > seeds:
        if jax.process_count() > 1:
            raise ConfigError(
                "seeds",
                seeds,
                f"a multiple of the {mesh.size} devices",
                "choose another number of seeds or fewer devices",
            )
        rows = jnp.minimum(jnp.arange(padded), seeds - 1)
        tree = jax.tree.map(lambda leaf: leaf[rows], tree)
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec(AXIS)))


def gather(tree: PyTree, seeds: int) -> PyTree:
    """The first `seeds` rows of every leaf, together on this host's first device."""
    tree = jax.device_put(tree, jax.local_devices()[0])
    return jax.tree.map(lambda leaf: leaf if leaf.shape[0] == seeds else leaf[:seeds], tree)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Put a full copy of `tree` on every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def map_seeds(function: Callable[..., PyTree], per_seed: PyTree, shared: PyTree = ()) -> PyTree:
    """`function(row of per_seed, shared)` for every seed, side by side as `loop.train` has them.

    The same function object compiles once for the same shapes. Results have a leading seed axis
    and lie on this host's first device.
    """
    seeds = jax.tree.leaves(per_seed)[0].shape[0]
    mesh = mesh_for(seeds)
    if mesh is None:
        return _mapped(function)(per_seed, shared)
    return gather(_mapped(function)(shard_seeds(per_seed, mesh), replicate(shared, mesh)), seeds)


@functools.lru_cache(maxsize=64)
def _mapped(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    return jax.jit(jax.vmap(function, in_axes=(0, None)))
