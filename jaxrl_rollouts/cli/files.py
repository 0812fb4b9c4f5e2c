"""Settings from a file: YAML or JSON of one's own, or the record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, one_line
from ..foreign import check_file
from ..strict import DEPTH, load_json, load_yaml

# Bytes of a file with settings; a second of reading each.
MOST = {"JSON": 4_000_000, "YAML": 100_000}


def read_settings(path: Path, experiment: str) -> tuple[str | None, Any]:
    """The preset named in a file, if any, and its settings as nested data.

    Args:
        path: a YAML or JSON file, keys nested or dotted (`study.seeds: 3`); or a run's `run.json`,
            or its folder.
    """
    if path.is_dir():
        path = path / "run.json"
        if path.exists():  # a pipe in a stranger's folder never answers
            check_file(path, "the record of a run")
    kind, load = ("JSON", load_json) if path.suffix == ".json" else ("YAML", load_yaml)
    text = _text(path, MOST[kind])
    try:
        data = load(text)
    except ValueError as error:
        raise ConfigError(f"{path}", one_line(error), f"valid {kind}") from None
    if data is None:
        data = {}
    if isinstance(data, Mapping) and {"experiment", "config"} <= set(data):
        if data["experiment"] != experiment:
            raise ConfigError(f"{path}: experiment", data["experiment"], experiment)
        preset = data.get("preset")
        return preset if isinstance(preset, str) else None, data["config"]
    return None, nested(data, str(path))


def _text(path: Path, most: int) -> str:
    """The text of a file, or of what a shell puts in its place; `ConfigError` where it is none."""
    expected = "a YAML or JSON file, or a run folder"
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        text = data.decode()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name, or no UTF-8
        found = getattr(error, "strerror", None) or "no text"
        raise ConfigError("--config", f"{path} ({found})", expected) from None
    if len(data) > most:
        raise ConfigError("--config", f"{path} (more than {most:,} bytes)", expected)
    return text


def nested(data: Any, where: str) -> Any:
    """The same with dotted keys taken apart and hyphens in them as in field names."""
    if not isinstance(data, Mapping):
        return data
    tree: dict[str, Any] = {}
    for key, value in data.items():
        *groups, last = str(key).replace("-", "_").split(".")
        if len(groups) > DEPTH:
            raise ConfigError(where, f"{len(groups)} dots in a name", f"at most {DEPTH}")
        value = nested(value, where)
        for group in (last, *reversed(groups)):
            value = {group: value}
        _join(tree, value, f"{where}: {key}")
    return tree


def _join(tree: dict[str, Any], more: Mapping[str, Any], where: str) -> None:
    """Put more settings into a tree; `ConfigError` where one of them is there already."""
    for key, value in more.items():
        if key not in tree:
            tree[key] = value
        elif isinstance(tree[key], dict) and isinstance(value, dict):
            _join(tree[key], value, where)
        else:
            raise ConfigError(where, "a second value", "one for each setting")
