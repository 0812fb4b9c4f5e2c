"""Settings from a file: YAML or JSON of one's own, or the record of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError, one_line


class _Loader(yaml.SafeLoader):
    """YAML 1.1, but `1e-4` is a number, as in YAML 1.2 and everywhere else."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_settings(path: Path, experiment: str) -> tuple[str | None, Any]:
    """The preset a file was made from, where it says so, and its settings as nested data.

    Args:
        path: a YAML or JSON file, keys nested or dotted (`study.seeds: 3`); or a run's `run.json`,
            or its folder.
        experiment: whose settings they should be.

    Raises:
        ConfigError: it cannot be read, holds no settings, or those of another experiment.
    """
    path = path / "run.json" if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
        json_file = path.suffix == ".json"
        data = json.loads(text) if json_file else yaml.load(text, _Loader)  # noqa: S506
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "no text"
        expected = "a YAML or JSON file, or a run folder"
        raise ConfigError("--config", f"{path} ({found})", expected) from None
    except (ValueError, yaml.YAMLError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise ConfigError(f"{path}", one_line(error), f"valid {kind}") from None
    if data is None:
        data = {}
    if isinstance(data, Mapping) and {"experiment", "config"} <= set(data):
        if data["experiment"] != experiment:
            raise ConfigError(f"{path}: experiment", data["experiment"], experiment)
        return data.get("preset"), data["config"]
    return None, nested(data, str(path))


def nested(data: Any, where: str) -> Any:
    """The same with dotted keys taken apart and hyphens in them as in field names.

    Raises:
        ConfigError: a setting is given twice, once by itself and once as part of its group.
    """
    if not isinstance(data, Mapping):
        return data
    tree: dict[str, Any] = {}
    for key, value in data.items():
        *groups, last = str(key).replace("-", "_").split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{where}: {key}", "a second value", "one for each setting")
        value = nested(value, where)
        if last in place and not (isinstance(place[last], dict) and isinstance(value, dict)):
            raise ConfigError(f"{where}: {key}", "a second value", "one for each setting")
        place[last] = {**place.get(last, {}), **value} if isinstance(value, dict) else value
    return tree
