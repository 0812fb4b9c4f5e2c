"""Parameters as a safetensors file: numbers and their names, nothing that could be run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CheckpointError, MissingExtraError, one_line
from ..trees import PyTree

PARAMS = "params.safetensors"


def write_tensors(path: Path, params: PyTree) -> None:
    """All arrays of a pytree, by where they lie in it (`worlds/net/Dense_0/kernel`)."""
    save = _library("safetensors.numpy", "writing parameters").save_file
    save({name: np.ascontiguousarray(leaf) for name, leaf in _named(params)}, path)


def read_tensors(path: Path, like: PyTree) -> PyTree:
    """Arrays in the structure of `like`, whose names, shapes and types they must have.

    Raises:
        CheckpointError: a damaged file, or one of something else.
    """
    expected = dict(_named(like))
    with _opened(path) as file:
        if wrong := sorted(set(file.keys()) ^ set(expected)):
            whose = "only in the file" if wrong[0] not in expected else "not in the file"
            raise CheckpointError(f"{path}: found {wrong[0]} {whose}, expected the same names")
        found = {}
        for name, leaf in expected.items():
            shape = tuple(file.get_slice(name).get_shape())
            if shape != leaf.shape:
                raise CheckpointError(f"{path}: {name}: found shape {shape}, expected {leaf.shape}")
            found[name] = file.get_tensor(name)
            if found[name].dtype != leaf.dtype:
                kinds = f"found {found[name].dtype}, expected {leaf.dtype}"
                raise CheckpointError(f"{path}: {name}: {kinds}")
    leaves = [jnp.asarray(found[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file of others, by name.

    Raises:
        CheckpointError: a damaged file, or one of another kind.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    opened = _library("safetensors", f"reading {path}").safe_open
    try:
        with opened(path, framework="np") as file:
            yield file
    except CheckpointError:
        raise
    except Exception as error:  # whatever safetensors raises of a damaged file
        raise CheckpointError(f"{path}: found {one_line(error)}, expected safetensors") from error


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def _library(name: str, feature: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(feature, "safetensors", "hub") from error
