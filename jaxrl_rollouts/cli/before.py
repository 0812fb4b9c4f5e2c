"""Checks before a run starts: output places, duration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..configs import settings
from ..errors import ConfigError
from ..foreign import check_unicode
from ..plugins import Experiment
from .shown import names_of_choices, option


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
    """A rough time as text: `a minute`, `12 minutes`, `3.5 hours`."""
    if minutes < 1.5:
        return "a minute"
    return f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"
