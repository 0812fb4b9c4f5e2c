"""Setup of jax before its first program: cores as devices, compiled programs cached on disk."""

from __future__ import annotations

import contextlib
import glob
import os
import platform
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .record.provenance import cpu_model

CACHE = "JAXRL_ROLLOUTS_CACHE"
_DAMAGED = re.compile(r"Error reading persistent compilation cache entry for '([^']+)'")
CACHE_BYTES = 2e9  # what is kept of compiled programs


def prepare(*, cache: bool = True) -> None:
    """Make each CPU core a device and keep compiled programs on disk, as the command line does.

        import jaxrl_rollouts as jr

        jr.prepare()  # first: after jax's first computation its devices are fixed

    Seeds then train side by side on the cores, and a second process recompiles nothing. GPUs,
    TPUs, `XLA_FLAGS` and jax's own variables are left as they are (`devices.use_cores`). XLA's
    log is silent unless `$TF_CPP_MIN_LOG_LEVEL` is set, where jax was not imported before. The
    programs lie in the user's cache folder; `$JAXRL_ROLLOUTS_CACHE` names another, or is `off`.

    Args:
        cache: keep compiled programs.

    Raises:
        ConfigError: jax finds no device of the requested kind.
    """
    # Read when jaxlib is loaded. With cores as devices XLA logs a page on every simulator outside
    # of the compiled program; what it cannot do it raises.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from .devices import check_devices, use_cores

    use_cores()
    check_devices()
    if cache:
        keep_compiled()


def keep_compiled(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Keep compiled programs between runs, so that a second run starts at once.

    They lie in the user's cache folder, apart for each kind of processor; `$JAXRL_ROLLOUTS_CACHE`
    names another folder, or is `off`. jax's own variables take precedence.

    Returns:
        The folder, if it is ours.
    """
    asked = environment.get(CACHE, "")
    if asked.lower() in ("off", "0", "no") or "JAX_COMPILATION_CACHE_DIR" in environment:
        return None
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    kind = "-".join(f"{platform.machine()} {cpu_model()}".replace("/", " ").split())
    try:
        folder = Path(asked or f"{base}/jaxrl-rollouts/programs").expanduser() / kind
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to: compile anew
        return None
    if jax.config.jax_compilation_cache_dir == str(folder):  # pyright: ignore[reportAttributeAccessIssue]
        return folder
    _renew(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Many small programs together take longer than the few large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # Whether there is a cache jax decides at its first program, which may have been.
    compilation_cache.reset_cache()
    return folder


def _renew(folder: Path) -> None:
    """Delete a program that jax finds damaged, with a warning: it is compiled and kept anew.

    By itself jax writes no program over one that is there, and would warn in every run.
    """
    shown = warnings.showwarning

    def show(message: Warning | str, *rest: Any, **known: Any) -> None:
        if found := _DAMAGED.match(str(message)):
            for entry in folder.glob(f"{glob.escape(found[1])}-*"):
                remove(entry)
            message = f"{folder}: the compiled program {found[1]} is damaged, and made anew"
        shown(message, *rest, **known)  # type: ignore[arg-type]

    warnings.showwarning = show


def remove(entry: Path) -> None:
    """Delete a program, whatever lies in its place; what cannot be deleted is compiled anew."""
    with contextlib.suppress(OSError):
        entry.unlink()
    shutil.rmtree(entry, ignore_errors=True)  # a folder in its place


def prune(folder: Path) -> None:
    """Drop the oldest programs once there are too many; half of the room is then free."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    size = sum(file.stat().st_size for file in files)
    if size < CACHE_BYTES:
        return
    for file in files:
        size -= file.stat().st_size
        remove(file)
        if size < CACHE_BYTES / 2:
            return
