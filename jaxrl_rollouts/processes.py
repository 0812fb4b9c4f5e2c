"""Several processes as one: on the devices of one machine, or of many.

Every process runs the same program on the same data and settings (jax's multi-controller model):
what is computed is spread over all their devices, and each carries out every step of the host's.
The first one writes; the others keep what they would have written in a folder of their own that
goes with them, so that all see the same files and take the same turns.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from .devices import use_cores
from .errors import ConfigError, PeerError, one_line

LOST = ("gloo", "connection", "heartbeat", "coordination", "nccl", "unavailable", "peer")
_FIRST: dict[Path, Path] = {}  # of a folder of this process, the first one's


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    patience: int = 300,
) -> None:
    """Meet the other processes; before jax computes anything.

    Args:
        coordinator: `HOST:PORT` of the first one.
        processes: number of processes.
        process: index of this process, from 0.
        patience: seconds to wait for the others.

    Where none of the first three is given, SLURM, Open MPI or a TPU pod sets them (jax reads their
    variables).
    """
    # On CPUs results travel over TCP. Who is left when another one dies can still say so.
    jax.config.update("jax_enable_recoverability", True)
    use_cores()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        who = coordinator, processes, process
        jax.distributed.initialize(*who, initialization_timeout=patience)
    except (ValueError, RuntimeError) as error:
        if "DEADLINE" in str(error) or "UNAVAILABLE" in str(error):
            raise PeerError(f"the others did not come within {patience} s") from error
        if coordinator is None:
            hint = "give --coordinator HOST:PORT --processes N --process I"
            expected = "the variables of SLURM, Open MPI or a TPU pod"
            raise ConfigError("--distributed", one_line(error), expected, hint) from error
        raise ConfigError(
            "--coordinator", coordinator, f"where all can meet: {one_line(error)}"
        ) from error


def several() -> bool:
    """Whether there is more than this process. Starts no backend of jax."""
    return bool(jax.distributed.is_initialized()) and jax.process_count() > 1


def first() -> bool:
    """Whether this is the process that writes."""
    return not several() or jax.process_index() == 0


def agree(*flags: bool) -> tuple[bool, ...]:
    """Each True where it is for any process; all have to ask."""
    if not several():
        return flags
    from jax.experimental.multihost_utils import process_allgather

    gathered = process_allgather(np.array(flags))
    return tuple(map(bool, np.any(np.asarray(gathered).reshape(-1, len(flags)), 0)))


def meet(where: str) -> None:
    """Wait here for all processes."""
    if several():
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(where)


def own(folder: Path) -> Path:
    """The folder itself for the first process; for another one a copy that ends with it."""
    if not several():
        return folder
    mine = folder if first() else _private() / folder.name
    if not first() and folder.is_dir():
        shutil.copytree(folder, mine)
    follow(mine)  # and not before all have their copies
    return mine


def root(folder: Path) -> Path:
    """Where to make a new folder: of the first process here, of other processes a temporary one."""
    return folder if first() else _private()


def follow(folder: Path) -> None:
    """Whether the first process's folder is the others' too, as `shared` states."""
    if not several():
        return
    from jax.experimental.multihost_utils import broadcast_one_to_all

    name = os.fsencode(folder.absolute())
    path = np.zeros(4096, np.uint8)
    path[: len(name)] = np.frombuffer(name, np.uint8)
    theirs = np.asarray(broadcast_one_to_all(path)).astype(np.uint8).tobytes()
    if not first():
        _FIRST[folder.absolute()] = Path(os.fsdecode(theirs.rstrip(b"\0")))


def shared(path: Path) -> Path:
    """The first process's path of the same file: checkpoints are written by all, to one place."""
    for mine, theirs in _FIRST.items():
        if path.absolute().is_relative_to(mine):
            return theirs / path.absolute().relative_to(mine)
    return path


def _private() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"process-{jax.process_index()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def part() -> None:
    """End together: the first one, whom all others talk to, last."""
    meet("at the end")
    if first():
        time.sleep(2.0)
    else:
        jax.distributed.shutdown()


@contextlib.contextmanager
def watched(hint: str = "") -> Iterator[None]:
    """jax's error when another process has ended becomes a `PeerError`."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if several() and any(word in str(error).lower() for word in LOST):
            text = f"process {jax.process_index()}: another process of this run has ended"
            raise PeerError(f"{text} ({one_line(error)}){hint and '; '}{hint}") from error
        raise


@contextlib.contextmanager
def joined(*who: Any) -> Iterator[None]:
    """`join`; only the first of the processes prints."""
    join(*who)
    with contextlib.ExitStack() as stack:
        if not first():
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield
        part()


def leave(code: int) -> NoReturn:
    """End this process at once: processes that wait for a dead one wait for minutes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
