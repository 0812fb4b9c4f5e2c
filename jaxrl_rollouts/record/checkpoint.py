"""Checkpoints: the only place that writes or reads orbax.

A checkpoint is a pytree (parameters, optimiser, buffers, scalers, keys, step, elites) in a folder
named after the iteration it was taken at. Orbax writes to a temporary folder and renames it, so a
process killed while saving leaves the checkpoint before it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as _ocp

from ..errors import CheckpointError
from ..trees import PyTree

ocp: Any = _ocp  # its path type is narrower than what it takes


def steps(folder: Path) -> list[int]:
    """Iterations with a complete checkpoint in `folder`, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit() and _complete(p))


def _complete(path: Path) -> bool:
    # Orbax takes an empty folder for a checkpoint.
    return ocp.is_orbax_checkpoint(path) and any(path.iterdir())


def save(folder: Path, step: int, tree: PyTree, *, keep: int = 2) -> Path:
    """Write `tree` as the checkpoint of iteration `step`; keep the `keep` newest.

    Leaves may be jax arrays (typed keys too), numpy arrays and Python numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob("*.orbax-checkpoint-tmp*"):  # left by a process killed while saving
        shutil.rmtree(torn, ignore_errors=True)
    path = (folder / str(step)).absolute()
    ocp.save(path, tree, overwrite=True)
    for old in steps(folder)[:-keep]:
        shutil.rmtree(folder / str(old), ignore_errors=True)
    return path


def load(path: Path, like: PyTree) -> PyTree:
    """Read a checkpoint into the structure, shapes, types and shardings of `like`.

    Raises:
        CheckpointError: nothing complete at `path`, or it holds another structure or shapes.
    """
    path = path.absolute()
    if not (path.is_dir() and _complete(path)):
        raise CheckpointError(f"{path}: found no complete checkpoint, expected one")
    try:
        restored = ocp.load(path, jax.tree.map(_abstract, like))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{path}: does not fit this configuration ({reason}); "
            "start a new run, or go on with the configuration the run was started with"
        ) from error
    for want, got in zip(jax.tree.leaves(like), jax.tree.leaves(restored), strict=True):
        if getattr(want, "shape", ()) != getattr(got, "shape", ()):
            raise CheckpointError(f"{path}: found shape {got.shape}, expected {want.shape}")
    return restored


def load_newest(folder: Path, like: PyTree) -> tuple[int, PyTree] | None:
    """The newest checkpoint in `folder` that can be read and its iteration; None without any.

    Raises:
        CheckpointError: there are some and none can be read; says what is wrong with the newest.
    """
    failure: CheckpointError | None = None
    for step in reversed(steps(folder)):
        try:
            return step, load(folder / str(step), like)
        except CheckpointError as error:
            failure = failure or error
    if failure:
        raise failure
    return None


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf
