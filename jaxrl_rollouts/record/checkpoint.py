"""Checkpoints: the only place that writes or reads orbax.

A checkpoint is a pytree (parameters, optimiser, buffers, scalers, keys, step, elites) in a folder
named after the iteration it was taken at, with the digests of all its files. It is written beside
and renamed, so a process killed while saving leaves the checkpoint before it; and nothing is read
of one whose files are not those that were written.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .. import devices, processes
from ..errors import CheckpointError, DamagedError, StorageError, one_line
from ..foreign import check_unicode
from ..trees import PyTree
from .files import file_digests, file_sha256, read_json, sync, write_json_atomically

DIGESTS = "digests.json"
WRITING = ".writing"  # where a checkpoint is until it is whole


@functools.cache
def _orbax() -> Any:
    """Imported at the first checkpoint: it takes a third of a second."""
    from orbax.checkpoint import v1

    # What orbax raises it also logs, with tracebacks, from threads that live longer than the call.
    # A logger made before absl is imported does not say which file a message is from.
    logging.getLogger("absl").addFilter(lambda record: "/orbax/" not in record.pathname)
    return v1  # untyped: its path type is narrower than what it takes


def steps(folder: Path) -> list[int]:
    """Iterations with a complete checkpoint in `folder`, ascending."""
    folder = processes.shared(folder)
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit() and _complete(p))


def _complete(path: Path) -> bool:
    if (path / DIGESTS).is_file():
        return True
    # An earlier version's; orbax takes an empty folder for a checkpoint.
    return _orbax().is_orbax_checkpoint(path) and any(path.iterdir())


def save(
    folder: Path, step: int, tree: PyTree, *, keep: int = 2, texts: Mapping[str, str] | None = None
) -> Path:
    """Write `tree` as the checkpoint of iteration `step`; keep the `keep` newest.

    Of several processes all take part, and the first one does what needs one.

    Args:
        folder: folder of the checkpoints; created if it does not exist.
        step: iteration.
        tree: leaves may be jax arrays (typed keys too), numpy arrays and Python numbers.
        keep: number of checkpoints kept, this one included.
        texts: further text files, by file name; see `text`.
    """
    own, folder = folder, _place(folder)
    work, path = folder / WRITING, folder / str(step)
    part = work / str(step)
    first = processes.first()
    try:
        own.mkdir(parents=True, exist_ok=True)
        if first:
            shutil.rmtree(work, ignore_errors=True)  # left by a process killed while saving
        processes.meet("before a checkpoint")
        _orbax().save(part, devices.common(tree))
        if not first:
            processes.meet("after a checkpoint")
            return path
        for name, content in (texts or {}).items():
            (part / name).write_text(content, encoding="utf-8")
            sync(part / name)
        write_json_atomically(part / DIGESTS, {"files": file_digests(part)}, seal=True)
        if path.exists():
            path.rename(work / "before")
        part.rename(path)
        sync(folder)
    except Exception as error:
        if (cause := _refused(error)) is None:
            raise
        shutil.rmtree(work, ignore_errors=True)  # it may be what fills the disk
        hint = "earlier ones are complete: correct this and resume the run"
        raise StorageError(path, cause, hint) from error
    for old in steps(folder)[:-keep]:
        shutil.rmtree(folder / str(old), ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)
    processes.meet("after a checkpoint")
    return path


def _place(path: Path) -> Path:
    """Where all processes find it; orbax takes names in UTF-8 only."""
    path = processes.shared(path).absolute()
    check_unicode("folder", path)
    return path


def _refused(error: BaseException | None) -> OSError | None:
    """The message of the operating system, if that is why a checkpoint was not written or read."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        if code := re.search(r"os_error_code='(\d+)'", str(error)):  # as tensorstore says it
            return OSError(int(code[1]), os.strerror(int(code[1])))
        error = error.__cause__ or error.__context__
    return None


def load(path: Path, like: PyTree, *, part: bool = False) -> PyTree:
    """Read a checkpoint into the structure, shapes, types and shardings of `like`.

    Args:
        part: `like` is a part of what was saved, dictionaries for the levels above it; the rest is
            not read.

    Raises:
        DamagedError: a file of it is missing or is not the one that was written.
        CheckpointError: nothing complete at `path`, or it holds another structure or shapes.
        StorageError: too many files are open, say.
    """
    path, like = _place(path), devices.common(like)
    if not (path.is_dir() and _complete(path)):
        raise CheckpointError(f"{path}: found no complete checkpoint, expected one")
    _check_digests(path)
    wanted = jax.tree.map(_abstract, like)
    try:
        # Before anything is read: what orbax had begun to read when it refuses makes noise later.
        if differ := _differ(_shapes(_orbax().metadata(path).metadata), _shapes(wanted)):
            raise ValueError(differ)
        loading = _orbax().options.PyTreeOptions.Loading(partial_load=part)
        with _orbax().Context(pytree_options=_orbax().options.PyTreeOptions(loading=loading)):
            restored = _orbax().load(path, wanted)
    except Exception as error:
        if (cause := _refused(error)) is not None and cause.errno != errno.ENOENT:
            raise StorageError(path, cause, "correct this and try again") from error
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{path}: does not fit this configuration ({reason}); "
            "start a new run, or use the configuration that the run was started with"
        ) from error
    return devices.local(restored)


def load_all(path: Path) -> PyTree:
    """Everything in a checkpoint, named tuples as dictionaries; raises as `load`."""
    path = processes.shared(path).absolute()
    _check_digests(path)
    place = jnp.zeros(()).sharding
    try:
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            _orbax().metadata(path).metadata,
        )
        return _orbax().load(path, like)
    except Exception as error:
        raise CheckpointError(f"{path}: {one_line(error)}") from error


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    """Of all arrays, by where they lie; orbax describes named tuples as dicts."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "shape"):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = jax.eval_shape(jax.random.key_data, leaf)  # a key is kept as its numbers
            found[jax.tree_util.keystr(path, simple=True, separator="/")] = tuple(leaf.shape)
    return found


def _differ(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> str:
    """The first array of another shape, in words; empty if there is none."""
    for name in expected:
        if found.get(name, expected[name]) != expected[name]:
            return f"found {name} of shape {found[name]}, expected {expected[name]}"
    return ""


def _check_digests(path: Path) -> None:
    """Raise `DamagedError` unless every file is the one that was written."""
    if not (path / DIGESTS).exists():
        warnings.warn(f"{path}: an earlier version wrote it, without digests", stacklevel=3)
        return
    try:
        files = read_json(path / DIGESTS, "a checkpoint").get("files", {})
    except (CheckpointError, AttributeError) as error:
        raise DamagedError(one_line(error)) from None
    for name, digest in files.items():
        try:
            here = file_sha256(path / name)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO):
                raise DamagedError(f"{path / name}: {error.strerror}") from None
            raise StorageError(path / name, error, "correct this and try again") from error
        if here != digest:
            raise DamagedError(f"{path / name}: its content is not what was written")


def load_newest(folder: Path, like: PyTree, *, part: bool = False) -> tuple[int, PyTree] | None:
    """The newest undamaged checkpoint in `folder` and its iteration; None without any.

    `part` is as for `load`.

    Warns:
        UserWarning: a newer one is damaged.
    """
    for step in reversed(steps(folder)):
        try:
            return step, load(folder / str(step), like, part=part)
        except DamagedError as error:
            warnings.warn(f"checkpoint {step} is damaged, going back: {error}", stacklevel=2)
    return None


def text(folder: Path, step: int, name: str) -> str | None:
    """What `save` was given in `texts` with a checkpoint that was loaded; None if nothing."""
    path = processes.shared(folder) / str(step) / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf
