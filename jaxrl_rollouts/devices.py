"""Several devices: a mesh axis over seeds, members, a batch or space; data replicated.

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
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .cores import cores
from .errors import ConfigError
from .trees import PyTree, row

AXIS = "seed"
MEMBER = "member"  # of one ensemble
BATCH = "batch"  # of one learner: gradients are summed over devices
SPACE = "space"  # of fields: their first axis of space
_COUNT = "xla_force_host_platform_device_count"


def use_cores(most: int = 8) -> None:
    """Make every CPU core a device of its own, `most` at most (each holds a copy of the data).

    Has an effect before jax computes anything only; the command line calls it. Leaves alone what
    `XLA_FLAGS` says about the number of host devices, and any GPU or TPU. A single core gets
    `spare_thread`.
    """
    spare_thread()
    if _COUNT in os.environ.get("XLA_FLAGS", ""):
        return
    with contextlib.suppress(RuntimeError):  # jax has started: its devices are what they are
        jax.config.update("jax_num_cpu_devices", max(1, min(cores(), most)))


def check_devices() -> None:
    """Ask jax for its devices once, before anything is computed."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # a bare assertion where a plugin is missing
        configured = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        asked = os.environ.get("JAX_PLATFORMS") or configured or ""
        hint = "leave JAX_PLATFORMS empty for the devices of this machine, or say JAX_PLATFORMS=cpu"
        raise ConfigError("device", asked, "a device of this machine", hint) from error


def spare_thread() -> None:
    """Let XLA have two threads where there is one core, or simulators may wait for ever.

    A callback's large arguments are copied to numpy by a thread of XLA's pool, and the only one
    there is waits in the callback (jax issue 24255). Has an effect before jax computes anything
    only; `use_cores` does it, and so does making a simulator. It costs a sixth of the speed, so
    `NPROC`, which XLA reads, is set only where it is unset; without a simulator set `NPROC=1`.
    """
    if cores() == 1:
        os.environ.setdefault("NPROC", "2")


def unused_cores(seeds: int) -> str:
    """A sentence where jax started with one CPU device and seeds could train on more, else ""."""
    here = jax.devices()
    if seeds < 2 or here[0].platform != "cpu" or len(here) > 1 or (count := cores()) < 2:
        return ""
    if _COUNT in os.environ.get("XLA_FLAGS", ""):
        return ""
    return (
        f"{seeds} seeds share one device: jax had started. Call jaxrl_rollouts.prepare() before "
        f"its first computation to train them on {count} cores."
    )


def cores_are_devices() -> bool:
    """Whether each device is a CPU core, where nothing is gained by larger arrays.

    Several processes, whose hosts may differ, would not all say the same: there it is not.
    """
    here = jax.devices()
    return jax.process_count() == 1 and here[0].platform == "cpu" and len(here) >= cores()


def seed_mesh(devices: Any = None) -> Mesh:
    """A 1-D mesh over a sequence of devices (all of them by default)."""
    devices = list(devices or jax.devices())
    auto = jax.sharding.AxisType.Auto
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(auto,), devices=devices)


def mesh_for(seeds: int) -> Mesh | None:
    """As many devices as `seeds` can keep busy; None where one is all there is.

    Of several processes each gives equally many, so that none has nothing to do.
    """
    if seeds < 2:
        return None
    processes = jax.process_count()
    per_device = -(-seeds // len(jax.devices()))
    count = -(-seeds // per_device)
    count = -(-count // processes) * processes
    return seed_mesh(_of_each(count // processes)) if count > 1 else None


def mesh_along(axis: str, size: int) -> Mesh | None:
    """The most devices, equally many of each process, over which `size` members, rows of a
    batch or points of an axis can be spread evenly; None where that is one, or not all processes
    have a share."""
    processes = jax.process_count()
    most = [n for n in range(1, len(jax.local_devices()) + 1) if size % (n * processes) == 0]
    if not most or most[-1] * processes == 1:
        return None
    devices, auto = _of_each(most[-1]), jax.sharding.AxisType.Auto
    return jax.make_mesh((len(devices),), (axis,), axis_types=(auto,), devices=devices)


def _of_each(count: int) -> list:
    """The first so many devices of every process."""
    of_process = {
        i: [d for d in jax.devices() if d.process_index == i] for i in range(jax.process_count())
    }
    return [d for i in range(jax.process_count()) for d in of_process[i][:count]]


def split(tree: PyTree, axis: str, place: int = 0) -> PyTree:
    """Inside a program: an array's axis at `place` over the mesh, if that is one along `axis`.

    In every other program nothing happens.
    """
    if axis not in jax.sharding.get_abstract_mesh().axis_names:
        return tree
    return jax.lax.with_sharding_constraint(tree, PartitionSpec(*(None,) * place, axis))


def shard_seeds(tree: PyTree, mesh: Mesh) -> PyTree:
    """Spread the leading axis of every leaf over the mesh.

    Where it does not divide, the last row is repeated until it does; `gather` drops the copies.
    """
    seeds = jax.tree.leaves(tree)[0].shape[0]
    padded = -(-seeds // mesh.size) * mesh.size
    if padded > seeds:
        tree = row(tree, np.minimum(np.arange(padded), seeds - 1))
    return jax.tree.map(functools.partial(_put, NamedSharding(mesh, PartitionSpec(AXIS))), tree)


def shard_members(tree: PyTree, mesh: Mesh) -> PyTree:
    """Spread the second axis of every leaf that has one: `[seeds, members, ...]`."""

    def put(leaf: jax.Array) -> jax.Array:
        spec = PartitionSpec(None, MEMBER) if leaf.ndim > 1 else PartitionSpec()
        return _put(NamedSharding(mesh, spec), leaf)

    return jax.tree.map(put, tree)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Put a full copy of `tree` on every device of the mesh."""
    return jax.tree.map(functools.partial(_put, NamedSharding(mesh, PartitionSpec())), tree)


def of_seeds(mesh: Mesh) -> bool:
    """Whether a mesh is for seeds, and not for members or a batch."""
    return mesh.axis_names == (AXIS,)


def spread(state: PyTree, data: PyTree, per_seed: PyTree, mesh: Mesh) -> tuple[PyTree, PyTree]:
    """State and data of a training on its mesh, with a copy of what is shared on each device."""
    if not of_seeds(mesh):
        shard = shard_members if MEMBER in mesh.axis_names else replicate
        return shard(state, mesh), replicate(data, mesh)
    places = {True: shard_seeds, False: replicate}
    mapped = jax.tree.broadcast(per_seed, data)
    data = jax.tree.map(lambda own, leaf: places[bool(own)](leaf, mesh), mapped, data)
    return shard_seeds(state, mesh), data


def _put(sharding: NamedSharding, leaf: jax.Array) -> jax.Array:
    """An array that every process has, where each keeps its devices' part."""
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    if sharding.is_fully_addressable:
        # Of CPUs cut by numpy: jax would compile a program for every shape.
        on_cpu = all(device.platform == "cpu" for device in sharding.device_set)
        return jax.device_put(np.asarray(leaf) if on_cpu and not is_key else leaf, sharding)
    if is_key:
        wrap = functools.partial(jax.random.wrap_key_data, impl=jax.random.key_impl(leaf))
        return jax.jit(wrap)(_put(sharding, jax.random.key_data(leaf)))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


def gather(tree: PyTree, seeds: int) -> PyTree:
    """The first `seeds` rows of every leaf, together on this process's first device."""
    tree = jax.device_put(local(tree), jax.local_devices()[0])
    return jax.tree.map(lambda leaf: leaf if leaf.shape[0] == seeds else leaf[:seeds], tree)


def local(tree: PyTree) -> PyTree:
    """The same with every array whole in this process; all processes have to ask."""
    leaves, structure = jax.tree.flatten(tree)
    away = [i for i, x in enumerate(leaves) if not getattr(x, "is_fully_addressable", True)]
    if away:
        whole = _copied(leaves[away[0]].sharding.mesh)([leaves[i] for i in away])
        for i, leaf in zip(away, whole, strict=True):
            leaves[i] = leaf.addressable_shards[0].data
    return jax.tree.unflatten(structure, leaves)


def common(tree: PyTree) -> PyTree:
    """Arrays that every process has, as one array of all of them: what is saved together."""
    if jax.process_count() == 1:
        return tree
    mesh = seed_mesh()
    own = lambda leaf: replicate(leaf, mesh) if isinstance(leaf, jax.Array) else leaf  # noqa: E731
    return jax.tree.map(own, tree)


@functools.lru_cache(maxsize=8)
def _copied(mesh: Mesh) -> Callable[[PyTree], PyTree]:
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))


def map_seeds(function: Callable[..., PyTree], per_seed: PyTree, shared: PyTree = ()) -> PyTree:
    """`function(row of per_seed, shared)` for every seed, side by side as `train_loop` has them.

    The same function object compiles once for the same shapes. Results have a leading seed axis
    and lie on this host's first device.
    """
    seeds = jax.tree.leaves(per_seed)[0].shape[0]
    mesh = mesh_for(seeds) if jax.process_count() == 1 else None
    if mesh is None:  # of several processes each does it for itself
        return _mapped(function)(per_seed, shared)
    return gather(_mapped(function)(shard_seeds(per_seed, mesh), replicate(shared, mesh)), seeds)


@functools.lru_cache(maxsize=64)
def _mapped(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    return jax.jit(jax.vmap(function, in_axes=(0, None)))
