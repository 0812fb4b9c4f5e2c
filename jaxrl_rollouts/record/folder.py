"""A run's folder: it holds the configuration, and is enough to go on with the run or repeat it.

runs/offline-cpu-20261120-235905/
    run.json        what was asked for (written first, atomically)
    metrics.jsonl   what was measured while it ran
    <stage>/        one folder per training stage, with its checkpoints
    report.json     what came out
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..configs import from_json, to_json
from ..errors import CheckpointError
from ..foreign import check_file

FORMAT = 1  # of run.json; raised when an older reader would misunderstand it
LINE_WIDTH = 100  # of lists and objects that stand on one line in JSON files
_REQUIRED = {"experiment": str, "preset": str, "config": dict, "command": str, "versions": dict}


def package_version(name: str) -> str:
    """The installed version of a distribution, or "absent"."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def plain(value: Any) -> Any:
    """`value` for JSON: arrays become lists, NaN becomes null, +-inf "Infinity"/"-Infinity".

    JSON knows none of the three; null is what other tools read as "no number", and the strings
    keep an infinity from turning into a missing value.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and jax arrays and their scalars
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return str(value) if isinstance(value, Path) else value


def json_text(data: Any, depth: int = 0) -> str:
    """JSON for people and for diffs: what is a list of numbers or short stands on one line.

    Raises:
        TypeError: `data` holds something JSON cannot carry.
    """
    line = json.dumps(data, allow_nan=False)
    if not isinstance(data, dict | list):
        return line
    numbers = isinstance(data, list) and all(isinstance(x, int | float | None) for x in data)
    if numbers or depth + len(line) <= LINE_WIDTH:
        return line
    if isinstance(data, dict):
        items = [f"{json.dumps(key)}: {json_text(x, depth + 1)}" for key, x in data.items()]
    else:
        items = [json_text(x, depth + 1) for x in data]
    margin = "\n" + " " * depth
    return line[0] + f"{margin} " + f",{margin} ".join(items) + margin + line[-1]


def write_json_atomically(path: Path, data: Any) -> None:
    """Write `data` so that `path` holds either all of it or what it held before.

    Raises:
        TypeError: `data` holds something JSON cannot carry; nothing is written.
    """
    write_atomically(path, json_text(plain(data)) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that `path` holds either all of it or what it held before."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class RunFolder:
    """An open run folder.

    Attributes:
        path: the folder.
        experiment: name of the experiment.
        preset: name of the preset the configuration started from.
        config: the configuration as JSON data (see `config_as`).
        command: the command line that remakes the run.
        versions: `jaxrl-rollouts`, `python`, `jax` versions it was made with.
        loggers: where its metrics go.
        made: folders above it that were not there before, innermost first.
    """

    path: Path
    experiment: str
    preset: str
    config: dict[str, Any]
    command: str
    versions: dict[str, str]
    loggers: tuple[str, ...] = ("jsonl",)
    made: tuple[Path, ...] = field(default=(), compare=False)

    @classmethod
    def create(
        cls,
        root: str | Path,
        experiment: str,
        preset: str,
        config: Any,
        command: str,
        loggers: Sequence[str] = ("jsonl",),
    ) -> RunFolder:
        """Make `root/<experiment>-<preset>-<YYYYmmdd-HHMMSS>[-n]` with its `run.json`.

        Raises:
            CheckpointError: the folder cannot be made.
        """
        base = f"{experiment}-{preset}-{time.strftime('%Y%m%d-%H%M%S')}"
        record = {"experiment": experiment, "preset": preset, "config": to_json(config)}
        record |= {"command": command, "versions": current_versions()}
        record |= {"loggers": tuple(loggers)}
        above = (Path(root), *Path(root).parents)
        made = tuple(folder for folder in above if not folder.exists())
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            path, n = Path(root) / base, 1
            while True:
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    n += 1
                    path = Path(root) / f"{base}-{n}"
            write_json_atomically(path / "run.json", {"format": FORMAT, **record})
        except OSError as error:
            raise CheckpointError(f"{root}: cannot make a run folder: {error.strerror}") from error
        return cls(path=path, **record, made=made)

    @classmethod
    def at(cls, path: str | Path, name: str) -> RunFolder:
        """Open this folder, or make it for a program that is no experiment of the command line.

        Raises:
            CheckpointError: it cannot be made, or its `run.json` is of another format.
        """
        path = Path(path)
        if (path / "run.json").exists():
            return cls.open(path)
        record = {"experiment": name, "preset": "", "config": {}, "command": ""}
        record |= {"versions": current_versions()}
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_json_atomically(path / "run.json", {"format": FORMAT, **record})
        except OSError as error:
            raise CheckpointError(f"{path}: cannot make a run folder: {error.strerror}") from error
        return cls(path=path, **record)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open an existing run folder.

        Raises:
            CheckpointError: it is missing, has no readable `run.json`, or another format.
        """
        path = Path(path)
        if not path.is_dir():
            raise CheckpointError(f"{path}: found no folder, expected a run folder")
        file = path / "run.json"
        if file.exists() and not file.is_file():
            check_file(file, "the record of a run")
        data = read_json(file, "a run folder")
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise CheckpointError(
                f"{path / 'run.json'}: format: found {found!r}, expected {FORMAT}; "
                "the run was made by another version of jaxrl-rollouts"
            )
        for key, kind in _REQUIRED.items():
            if not isinstance(data.get(key), kind):
                found = type(data[key]).__name__ if key in data else "nothing"
                expected = {str: "a string", dict: "an object"}[kind]
                raise CheckpointError(
                    f"{path / 'run.json'}: {key}: found {found}, expected {expected}"
                )
        loggers = data.get("loggers", ["jsonl"])  # runs of earlier versions do not say
        if not isinstance(loggers, list) or not all(isinstance(name, str) for name in loggers):
            raise CheckpointError(
                f"{path / 'run.json'}: loggers: found {loggers!r}, expected a list of names"
            )
        known = {key: data[key] for key in _REQUIRED}
        return cls(path=path, **known, loggers=tuple(loggers))

    def config_as(self, cls: type) -> Any:
        """The configuration as an instance of the dataclass `cls`; `ConfigError` if it is none."""
        return from_json(cls, self.config, str(self.path / "run.json"))

    def stage(self, name: str) -> Path:
        """The (existing) subfolder of a training stage; `name` is a plain folder name."""
        if not name or name in (".", "..") or Path(name).name != name:
            raise ValueError(f"stage: found {name!r}, expected a plain folder name")
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def spend(self, **seconds: float) -> dict[str, float]:
        """Put a session's times on record; sums over all sessions (a killed one leaves none)."""
        path = self.path / "sessions.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: round(own, 3) for name, own in seconds.items()}) + "\n")
        sessions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {name: sum(session.get(name, 0.0) for session in sessions) for name in seconds}

    def discard_if_unused(self) -> None:
        """Remove the folder if no stage was begun in it, and what was made for it above it.

        A run that fails at once leaves nothing behind.
        """
        begun = [child for child in self.path.iterdir() if child.is_dir()]
        if all(child.name in self.loggers for child in begun):
            shutil.rmtree(self.path)
            for folder in self.made:
                with contextlib.suppress(OSError):  # another run is in it
                    folder.rmdir()


def read_json(path: Path, kind: str) -> Any:
    """Parse a file of ours. `CheckpointError` when it is missing or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: found no such file, expected one in {kind}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # json or unicode
        raise CheckpointError(f"{path}: found no valid JSON ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def current_versions() -> dict[str, str]:
    """Versions that decide whether a resumed run is bitwise the uninterrupted one."""
    versions = {name: package_version(name) for name in ("jaxrl-rollouts", "jax", "jaxlib")}
    return {"python": platform.python_version(), **versions}
