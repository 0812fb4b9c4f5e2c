"""What a run should know before it starts: places to write, how long it takes, what is compiled."""

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

from ..configs import settings
from ..errors import ConfigError
from ..foreign import check_unicode
from ..plugins import Experiment
from ..record.provenance import cpu_model
from .shown import names_of_choices, option

CACHE = "JAXRL_ROLLOUTS_CACHE"
_DAMAGED = re.compile(r"Error reading persistent compilation cache entry for '([^']+)'")
CACHE_BYTES = 2e9  # what is kept of compiled programs


def check_places(out: Path, publish: Path | None) -> None:
    """Raise `ConfigError` where a run could not write."""
    for name, folder in (("--out", out), ("--publish", publish)):
        if folder is None:
            continue
        if "\0" in str(folder):
            raise ConfigError(name, str(folder), "a name without a zero byte")
        check_unicode(name, folder)
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            found = f"{folder} ({there} is {'read-only' if there.is_dir() else 'a file'})"
            raise ConfigError(name, found, "a folder to write in")


def check_file(out: Path | None) -> None:
    """Raise `ConfigError` for a file in a folder that is not there, before the work for it."""
    if out is not None and not out.parent.is_dir():
        raise ConfigError("--out", str(out), f"a file in an existing folder (no {out.parent})")


def duration(experiment: Experiment, preset: str, config: Any) -> str:
    """About how long a run takes here, on one line; of other choices than the preset's, nothing."""
    minutes, start = experiment.minutes.get(preset), experiment.preset(preset)
    others = [
        f"{option(name)} {getattr(config, name)}"
        for name in experiment.choices
        if experiment.begin is None and getattr(config, name) != getattr(start, name)
    ]
    before = names_of_choices(start)
    for name, chosen in names_of_choices(config).items():
        if before.get(name) != chosen:
            others.append(f"{option(name)} {chosen}")
    if minutes is None or others:
        what = f"preset {preset}" + (f" with {' '.join(others)}" if others else "")
        return f"how long {what} takes was not measured; progress shows the time left"
    import jax

    known = f"preset {preset} takes about {words(minutes)} on two CPU cores"
    if jax.default_backend() != "cpu":
        known += f", not measured on {jax.devices()[0].device_kind}"
    changed = settings(config) != settings(start)
    return known + (", other settings more or less" if changed else "")


def words(minutes: float) -> str:
    """A rough time for people: `a minute`, `12 minutes`, `3.5 hours`."""
    if minutes < 1.5:
        return "a minute"
    return f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"


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

    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    kind = "-".join(f"{platform.machine()} {cpu_model()}".replace("/", " ").split())
    try:
        folder = Path(asked or f"{base}/jaxrl-rollouts/programs").expanduser() / kind
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to: compile anew
        return None
    _renew(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
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
