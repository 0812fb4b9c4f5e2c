"""Several devices: one mesh axis over seeds (or members), data replicated.

Seeds never talk to each other, so `jit` with `NamedSharding` needs no collective: each device
carries its share of the leading axis.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .errors import ConfigError

PyTree = Any
AXIS = "seed"


def seed_mesh(devices: Any = None) -> Mesh:
    """A 1-D mesh over a sequence of devices (all of them by default)."""
    devices = list(devices or jax.devices())
    auto = jax.sharding.AxisType.Auto
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(auto,), devices=devices)


def shard_seeds(tree: PyTree, mesh: Mesh) -> PyTree:
    """Spread the leading axis of every leaf over the mesh.

    Raises:
        ConfigError: the leading axis is not a multiple of the number of devices.
    """
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % mesh.size:
            raise ConfigError(
                "seeds", leaf.shape[0], f"a multiple of the {mesh.size} devices",
                "choose another number of seeds or fewer devices",
            )  # fmt: skip
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec(AXIS)))


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Put a full copy of `tree` on every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
