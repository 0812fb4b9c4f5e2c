"""The rows that runs learned from, by what is typed or by what runs have on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.folder import RunFolder

from .behaviours.made import is_program, load, undeclared
from .data import Dataset

DECLARED = ("action_low", "action_high", "max_episode_steps", "cut_mismatches")


def opened(settings: Mapping[str, Any]) -> Dataset:
    """The rows of a run's settings: `dataset`, `seed`, `stream` and what they declare."""
    name = settings["dataset"]
    given: dict[str, Any] = {n: settings[n] for n in DECLARED if settings.get(n)}
    stream = {} if is_program(name) else {"stream": settings.get("stream", "auto")}
    given |= undeclared(name, **given) | stream
    return load(name, settings.get("seed", 0), **given)


def log_of(data: str, runs: Sequence[Path]) -> Dataset:
    """The log that was named, or the one that all runs learned from.

    Raises:
        ConfigError: a folder that is no run, or runs that learned from several logs.
    """
    if data:
        return opened({"dataset": data})
    found: dict[str, Dataset] = {}
    for run in runs:
        if not (run / "run.json").is_file():
            raise ConfigError("--data", data, f"the log, which {run} does not say: it is no run")
        folder = RunFolder.open(run)
        if "dataset" not in folder.config:
            raise ConfigError("--data", data, f"the log, which {run} does not say")
        rows = {k: v for k, v in folder.config.items() if k in ("dataset", "seed", *DECLARED)}
        rows["dataset"] = folder.find(rows["dataset"])
        key = repr(sorted(rows.items()))
        found[key] = found.get(key) or opened(rows)
    digests = {log.sha256 for log in found.values()}
    if len(digests) > 1 or len(found) > 1 and digests == {""}:
        names = ", ".join(log.name for log in found.values())
        raise ConfigError("--data", names, "one log to value all of them on", "name it")
    return next(iter(found.values()))
