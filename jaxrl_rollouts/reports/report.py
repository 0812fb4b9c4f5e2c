"""A report: an experiment's measurements, claims and pictures.

`report.json` and its PNG files lie side by side in a folder, with the readable `report.html` and
`report.md` (`page.write_pages`). Rich tables and Markdown are in `text`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import CheckpointError, DataError
from ..foreign import clean
from ..record.files import read_json, write_json_atomically
from ..record.provenance import provenance
from .claims import Claim, numbers
from .statistics import Summary, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..record.context import RunContext

FORMAT = 1
_TEXTS = ("experiment", "preset", "command")
# Names that can lead nowhere else.
PICTURE, EXPERIMENT = r"[A-Za-z0-9_-]{1,200}\.(png|gif)", r"[A-Za-z0-9_][A-Za-z0-9_.-]{,199}"
_NAMES = {str: "text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys(("config", "versions", "numbers", "tables", "pictures"), (dict,)),
    **dict.fromkeys(("notes", "claims"), (list,)),
    **dict.fromkeys(("wall_seconds", "compile_seconds"), (int, float)),
    "seeds": (int,),
}
_KEYS = (*_TEXTS, "config", "versions", "seeds", "wall_seconds", "compile_seconds", "notes")


@dataclass
class Picture:
    """A drawing or an animation.

    Attributes:
        file: relative to the report.
        caption: below it.
        figure: the figure, or frames `[rows, columns, 3]` uint8; None once loaded from disk.
    """

    file: str
    caption: str
    figure: Figure | Sequence[np.ndarray] | None = None


@dataclass
class Report:
    """A report being built. See `Report.of` for the usual start.

    Attributes:
        experiment, preset, config, command: what was run.
        versions: versions of the packages, the machine and the device (`provenance`).
        seeds: number of seeds.
        wall_seconds, compile_seconds: seconds of all sessions of the run.
        numbers: name -> `Summary`.
        tables: name -> rows; a row maps column -> number, text or `Summary`.
        claims, pictures, notes: as added.
        conclusion: sentences that stand above everything else.
        explained: table -> what its columns are, in words.
    """

    experiment: str
    preset: str
    config: dict[str, Any]
    command: str
    seeds: int
    versions: dict[str, Any] = field(default_factory=provenance)
    wall_seconds: float = 0.0
    compile_seconds: float = 0.0
    numbers: dict[str, Summary] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    pictures: dict[str, Picture] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    conclusion: list[str] = field(default_factory=list)
    explained: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, context: RunContext, seeds: int) -> Report:
        """An empty report on the run of `context`."""
        folder = context.folder
        command = context.command or folder.command
        return cls(folder.experiment, folder.preset, folder.config, command, seeds)

    def number(self, name: str, values: ArrayLike, unit: str = "") -> Summary:
        """Add a number from its `[seeds]` or `[seeds, tasks]` values, or a scalar."""
        self.numbers[name] = summarize(values, unit)
        return self.numbers[name]

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], explained: str = "") -> None:
        """Add a table of numbers, text, None, `Summary`, and arrays `[seeds]`, to be summarised."""
        if explained:
            self.explained[name] = explained
        self.tables[name] = [{column: _summary(v) for column, v in row.items()} for row in rows]

    def claim(self, claim: Claim) -> Claim:
        """Add a claim, also one that fails; a second one of the same name is a `ValueError`."""
        if any(claim.name == other.name for other in self.claims):
            raise ValueError(f"claim {claim.name}: found it twice, expected unique names")
        claim = claim if claim.command else replace(claim, command=self.command)
        self.claims.append(claim)
        return claim

    def picture(self, name: str, figure: Figure, caption: str) -> None:
        """Add a figure; it is drawn to `<name>.png` when the report is saved."""
        self._add(f"{name}.png", figure, caption)

    def animation(self, name: str, frames: Sequence[np.ndarray], caption: str) -> None:
        """Add frames `[rows, columns, 3]` uint8, written to `<name>.gif` with the report."""
        self._add(f"{name}.gif", frames, caption)

    def _add(self, file: str, figure: Figure | Sequence[np.ndarray], caption: str) -> None:
        name = file.rpartition(".")[0]
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"picture: found {name!r}, expected letters, digits, - and _")
        self.pictures[name] = Picture(file, caption, figure)

    def note(self, text: str) -> None:
        """Add a sentence that a reader of the numbers should know."""
        self.notes.append(text)

    def save(self, folder: str | Path) -> Path:
        """Write the pictures and then `report.json` (atomically); returns its path."""
        from .pictures import save_gif, save_png

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for picture in self.pictures.values():
            if picture.figure is not None:
                save: Any = save_gif if picture.file.endswith("gif") else save_png
                save(picture.figure, folder / picture.file)
        write_json_atomically(folder / "report.json", self.to_json(), seal=True)
        return folder / "report.json"

    def to_json(self) -> dict[str, Any]:
        """The content of `report.json`."""
        return {
            "format": FORMAT,
            **{key: getattr(self, key) for key in _KEYS},
            "claims": [claim.to_json() for claim in self.claims],
            "numbers": {name: _cell(summary) for name, summary in self.numbers.items()},
            "tables": {
                name: [{column: _cell(value) for column, value in row.items()} for row in rows]
                for name, rows in self.tables.items()
            },
            "pictures": {
                name: {"file": p.file, "caption": p.caption} for name, p in self.pictures.items()
            },
            "conclusion": self.conclusion,
            "explained": self.explained,
        }


def _summary(value: Any) -> Any:
    return summarize(value) if isinstance(value, np.ndarray) else value


def _cell(value: Any) -> Any:
    if not isinstance(value, Summary):
        return value
    keys = ("iqm", "interval", "mean", "seeds", "values", "unit")
    return {key: getattr(value, key) for key in keys}


def _read_number(value: Any) -> Summary:
    return Summary(numbers(value["values"]), unit=value.get("unit", ""))


def _read_cell(value: Any) -> Any:
    return _read_number(value) if isinstance(value, Mapping) and "values" in value else value


def load_report(path: str | Path) -> Report:
    """Read `report.json` (or the folder it is in); results of claims are computed again."""
    path = Path(path)
    path = path / "report.json" if path.is_dir() else path
    data = clean(read_json(path, "a folder with a finished run"))
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise CheckpointError(f"{path}: format: found {found!r}, expected {FORMAT}")
    for key in (*_KEYS, "claims", "numbers", "tables", "pictures"):
        if key not in data:
            raise DataError(path, key, "nothing", "an entry")
    _check_kinds(path, data)
    try:
        return Report(
            **{key: data[key] for key in _KEYS},
            claims=[Claim.from_json(claim, str(path)) for claim in data["claims"]],
            numbers={name: _read_number(value) for name, value in data["numbers"].items()},
            tables={
                name: [{column: _read_cell(cell) for column, cell in row.items()} for row in rows]
                for name, rows in data["tables"].items()
            },
            pictures={n: Picture(p["file"], p["caption"]) for n, p in data["pictures"].items()},
            conclusion=[str(text) for text in data.get("conclusion", [])],
            explained={str(k): str(v) for k, v in data.get("explained", {}).items()},
        )
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise DataError(path, "content", f"{type(error).__name__} {error}", "a report") from None


def _check_kinds(path: Path, data: Mapping[str, Any]) -> None:
    """Hold entries to their kinds, and pictures to files that lie beside the report."""
    for key, kind in _KINDS.items():
        if not isinstance(data[key], kind) or isinstance(data[key], bool):
            expected = " or ".join(_NAMES[one] for one in kind)
            raise DataError(path, key, type(data[key]).__name__, expected)
        if kind == (int, float) and not abs(data[key]) < 1e15:
            raise DataError(path, key, "a number beyond all time", "seconds")
    for number, note in enumerate(data["notes"]):
        if not isinstance(note, str):
            raise DataError(path, f"notes[{number}]", type(note).__name__, "text")
    for name, picture in data["pictures"].items():
        for key in ("file", "caption"):
            found = picture.get(key) if isinstance(picture, dict) else picture
            if not isinstance(found, str):
                kind = type(found).__name__
                raise DataError(path, f"pictures.{name}.{key}", kind, "text")
        if not re.fullmatch(PICTURE, picture["file"]):
            expected = "the plain name of a .png or .gif file"
            raise DataError(path, f"pictures.{name}.file", repr(picture["file"]), expected)


def publish(folder: str | Path, results: str | Path) -> Path:
    """Copy a finished report and its pictures to `results/<experiment>/`; returns that folder.

    Pictures of a report that lay there before are removed, other files stay.
    """
    folder = Path(folder)
    report = load_report(folder)
    if not re.fullmatch(EXPERIMENT, report.experiment):
        found, expected = repr(report.experiment), "a plain name: letters, digits, -, _ and ."
        raise DataError(folder / "report.json", "experiment", found, expected)
    target = Path(results) / report.experiment
    files = [picture.file for picture in report.pictures.values()]
    for file in (*files, "report.json"):
        if (folder / file).is_symlink():
            raise DataError(folder / file, "file", "a symbolic link", "a file of this folder")
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / file}: found no such file, expected a picture")
    target.mkdir(parents=True, exist_ok=True)
    if (target / "report.json").exists():
        for picture in load_report(target).pictures.values():
            (target / picture.file).unlink(missing_ok=True)
    for file in [*files, "report.json"]:
        temporary = target / f".{file}.tmp"
        shutil.copyfile(folder / file, temporary)
        os.replace(temporary, target / file)
    return target
