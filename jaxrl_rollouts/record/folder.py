"""A run's folder: it holds the configuration, and suffices to resume or repeat the run.

runs/pendulum-mixed-mopo-20261120-235905/
    run.json        the settings (written first, atomically)
    metrics.jsonl   what was measured while it ran
    <stage>/        one folder per training stage, with its checkpoints
    report.json     what came out
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config_json import earlier_version, read, to_json
from ..configs import check
from ..errors import CheckpointError, DataError, StorageError
from ..foreign import code_in
from .files import (
    append,
    check_contents,
    drop_torn_line,
    plain,
    read_json,
    sealed,
    unsealed,
    write_json_atomically,
)
from .provenance import current_versions

MEASURED = "measured"  # what a cell keeps of itself beside its training, `MEASURED.npz`
FORMAT = 1  # of run.json; raised when an older reader would misunderstand it
# Files and folders that a killed process leaves of what it was writing.
LEFT = re.compile(r"\..+\.(tmp|part)|\.writing|.+\.orbax-checkpoint-tmp.*")
_REQUIRED = {"experiment": str, "preset": str, "config": dict, "command": str, "versions": dict}


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
        loggers: loggers of its metrics.
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
        title: str = "",
    ) -> RunFolder:
        """Make `root/<title>-<YYYYmmdd-HHMMSS>[-n]` with its `run.json`.

        Without a title the name begins with experiment and preset.
        """
        title = re.sub(r"[^A-Za-z0-9_.-]+", "-", title).strip("-.")[:100]
        base = f"{title or f'{experiment}-{preset}'}-{time.strftime('%Y%m%d-%H%M%S')}"
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
            kept = {"format": FORMAT, **record, "directory": str(Path.cwd())}
            write_json_atomically(path / "run.json", kept, seal=True)
        except OSError as error:
            raise StorageError(f"{root}: cannot make a run folder", error) from error
        return cls(path=path, **record, made=made)

    @classmethod
    def at(cls, path: str | Path, name: str) -> RunFolder:
        """Open this folder, or make it for a program that is no experiment of the command line."""
        path = Path(path)
        if (path / "run.json").exists():
            return cls.open(path)
        record = {"experiment": name, "preset": "", "config": {}, "command": ""}
        record |= {"versions": current_versions()}
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_json_atomically(path / "run.json", {"format": FORMAT, **record}, seal=True)
        except OSError as error:
            raise StorageError(f"{path}: cannot make a run folder", error) from error
        return cls(path=path, **record)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open an existing run folder."""
        path = Path(path)
        if not path.is_dir():
            raise CheckpointError(f"{path}: found no folder, expected a run folder")
        check_contents(path)
        data = read_json(path / "run.json", "a run folder")
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
        held = data.get("data", {})
        if not isinstance(held, dict) or not all(isinstance(x, dict) for x in held.values()):
            raise CheckpointError(
                f"{path / 'run.json'}: data: found {held!r}, expected objects by name"
            )
        known = {key: data[key] for key in _REQUIRED}
        return cls(path=path, **known, loggers=tuple(loggers))

    def find(self, file: str) -> str:
        """A data file that the run names: from here, from where the run began, or beside the run.

        The name as it is where no such file is found.
        """
        began = read_json(self.path / "run.json", "a run folder").get("directory")
        places = (*([began] if isinstance(began, str) else []), *self.path.absolute().parents[:2])
        if not file or Path(file).exists():
            return file
        return next((str(p) for p in (Path(x) / file for x in places) if p.exists()), file)

    def config_as(self, cls: type) -> Any:
        """The configuration as an instance of the dataclass `cls`; `ConfigError` if it is none."""
        with earlier_version("start a new run"):
            config = read(cls, self.config, str(self.path / "run.json"))
        check(config)
        return config

    def stage(self, name: str) -> Path:
        """The (existing) subfolder of a training stage; `name` is a plain folder name."""
        if not name or name in (".", "..") or Path(name).name != name:
            raise ValueError(f"stage: found {name!r}, expected a plain folder name")
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def spend(self, **seconds: float) -> dict[str, float]:
        """Put a session's times on record; sums over all sessions (a killed one leaves none)."""
        path, sessions = self.path / "sessions.jsonl", []
        drop_torn_line(path)
        spent = {name: round(own, 3) for name, own in seconds.items()}
        append(path, json.dumps(sealed(spent)) + "\n")
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                session = unsealed(path, json.loads(line))
                sessions.append({name: float(session.get(name, 0.0)) for name in seconds})
            except (ValueError, AttributeError, TypeError, CheckpointError):
                warnings.warn(f"{path}: line {number} is damaged, its time missing", stacklevel=2)
        return {name: sum(session[name] for session in sessions) for name in seconds}

    @property
    def code(self) -> list[str]:
        """What the run imports by name, `package.module:factory`: a user's own, or a stranger's."""
        return sorted(set(code_in(plain(self.config))))

    @property
    def resume(self) -> str:
        """The command that resumes the run."""
        trust = f" --trust {shlex.join(self.code)}" if self.code else ""
        return f"jaxrl-rollouts resume {shlex.quote(str(self.path))}{trust}"

    def hold(self, name: str, **facts: Any) -> None:
        """Put on record which data the run learns from; a later session must bring the same.

        Args:
            name: name of the data.
            **facts: by which they are known (`sha256`).
        """
        path = self.path / "run.json"
        record = read_json(path, "a run folder")
        held = record.setdefault("data", {})
        if name not in held:
            held[name] = plain(facts)
            write_json_atomically(path, record, seal=True)
        for key, now in plain(facts).items():
            if held[name].get(key) != now:
                was = f"{held[name].get(key)}, as the run began with"
                hint = "bring those back, or start a new run"
                raise DataError(path, f"data.{name}.{key}", now, was, hint)

    @property
    def data(self) -> dict[str, dict[str, Any]]:
        """What `hold` put on record."""
        return read_json(self.path / "run.json", "a run folder").get("data", {})

    def changed(self, config: Any, command: str) -> RunFolder:
        """The same folder with another configuration from here on; needs its lock.

        What cells measured after their trainings is forgotten: it is measured anew.
        """
        record = read_json(self.path / "run.json", "a run folder")
        record |= {"config": to_json(config), "command": command}
        for measured in self.path.glob(f"*/{MEASURED}.npz"):
            measured.unlink()
        write_json_atomically(self.path / "run.json", record, seal=True)
        return replace(self, config=record["config"], command=command)

    def tidy(self) -> None:
        """Remove unfinished files of a killed process; needs the folder's lock."""
        for path in sorted(self.path.rglob("*"), reverse=True):
            if LEFT.fullmatch(path.name):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

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
