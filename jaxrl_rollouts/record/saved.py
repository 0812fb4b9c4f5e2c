"""Common layout of trained objects on disk: a folder with a JSON file of facts and a checkpoint.

Parameters of all seeds stand in one checkpoint, leading axis = seeds; the facts say what they are
parameters of.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CheckpointError, StorageError, one_line
from ..foreign import check_room
from ..trees import PyTree
from . import checkpoint, fetched
from .files import read_json, write_json_atomically
from .tensors import PARAMS, read_tensors

_BROKEN = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


def save_trained(folder: str | Path, file: str, facts: Mapping[str, Any], params: PyTree) -> Path:
    """Write `params` (leading axis = seeds) and then the facts, so that a reader finds both.

    What was there before is replaced, and gone only when the new one is whole.
    """
    folder = Path(folder)
    number = max(checkpoint.steps(folder), default=-1) + 1
    checkpoint.save(folder, number, params, keep=1)
    seeds = jax.tree.leaves(params)[0].shape[0]
    try:
        write_json_atomically(folder / file, {**facts, "seeds": seeds}, seal=True)
    except OSError as error:
        raise StorageError(folder / file, error) from error
    return folder


def read_facts(
    path: Path, kind: str, versions: int | tuple[int, ...], sizes: Iterable[str] = ()
) -> dict[str, Any]:
    """The facts, of a version that this library writes and with positive `sizes`."""
    facts = read_json(path, kind)
    versions = (versions,) if isinstance(versions, int) else versions
    if not isinstance(facts, dict) or facts.get("format") not in versions:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        expected = " or ".join(map(str, versions))
        hint = "it was written by another version of jaxrl-rollouts: train again, or use that one"
        raise CheckpointError(f"{path}: format: found {found!r}, expected {expected}; {hint}")
    for name in ("seeds", *sizes):
        size = facts.get(name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise CheckpointError(
                f"{path}: {name}: found {size!r}, expected a whole number of at least 1"
            )
    return facts


@contextlib.contextmanager
def reading(path: str | Path, kind: str) -> Iterator[None]:
    """What facts of another kind than expected make Python raise becomes one line."""
    try:
        yield
    except _BROKEN as error:
        found = f"{type(error).__name__}: {one_line(error)}"
        raise CheckpointError(f"{path}: found {found}, expected the facts of {kind}") from error


def find_folder(
    path: str | Path, file: str, what: str, wanted: Callable[[Path], bool] = lambda folder: True
) -> Path:
    """`path` where it holds `file`, else the only `wanted` folder inside it that does.

    `hf://owner/name` is fetched first.
    """
    path = fetched.local(path)
    if not path.is_dir():
        raise CheckpointError(f"{path}: found no folder, expected a run folder or a {what} in one")
    if (path / file).is_file():
        return path
    inside = sorted(p.parent for p in path.rglob(file) if wanted(p.parent))
    if len(inside) == 1:
        return inside[0]
    if not inside:
        raise CheckpointError(
            f"{path}: found no trained {what}, expected a {file}; "
            "a run writes it once something is trained"
        )
    names = ", ".join(str(p.relative_to(path)) for p in inside)
    raise CheckpointError(
        f"{path}: found {len(inside)} times {file}, expected one; name one: {names}"
    )


def load_params(
    folder: Path, init: Callable[[jax.Array], PyTree], seeds: int, within: Sequence[str] = ()
) -> PyTree:
    """Parameters `[seeds, ...]` in the structure that `init(key)` has for one seed.

    Args:
        within: names of the levels of the checkpoint that the parameters are inside of.
    """
    with reading(folder, "a trained network"):
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), seeds))
        shapes = jax.eval_shape(jax.vmap(init), keys)
    # Nothing is allocated before it is compared with what lies there.
    place = jnp.zeros(()).sharding
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes
    )
    sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)]
    check_room(folder, "parameters", sum(sizes))
    if not within and (folder / PARAMS).is_file():  # of the hub
        return read_tensors(folder / PARAMS, like)
    for name in reversed(within):
        like = {name: like}
    loaded = checkpoint.load_newest(folder, like, part=bool(within))
    if loaded is None:
        raise CheckpointError(
            f"{folder}: found no undamaged checkpoint, expected one; "
            "a run writes it anew when it is resumed"
        )
    found = loaded[1]
    for name in within:
        found = found[name]
    return found


def diverged_seeds(params: PyTree) -> list[int]:
    """Seeds of `[seeds, ...]` that are not finite: a training left them behind."""
    leaves = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.floating)]
    good = [np.isfinite(np.asarray(x)).reshape(len(x), -1).all(1) for x in leaves]
    return np.flatnonzero(~np.all(good, axis=0)).tolist() if good else []


def one_seed(params: PyTree, seed: int) -> PyTree:
    """Parameters of one training seed.

    Raises:
        CheckpointError: there is no such seed, or it diverged.
    """
    seeds = jax.tree.leaves(params)[0].shape[0]
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < seeds:
        raise CheckpointError(f"training seed: found {seed}, expected 0 to {seeds - 1}")
    row = jax.tree.map(lambda leaf: leaf[seed], params)
    if diverged_seeds(jax.tree.map(lambda leaf: np.asarray(leaf)[None], row)):
        hint = "its training diverged; take another seed"
        raise CheckpointError(f"training seed {seed}: its parameters are not finite; {hint}")
    return row
