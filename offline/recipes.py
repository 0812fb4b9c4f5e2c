"""Whole settings of a method: small ones, long ones, and those that were published.

    recipe("mopo", "paper", "hopper-medium-v2")      # a Mopo with horizon 5 and penalty 5
    recipe("cql", "small", weight=10.0)

They stand in a file beside the method's own, `mopo.toml`: `[small]`, `[long]` and `[paper]` on top
of the class's defaults, and `[BENCHMARK.DATASET]` on top of `[paper]`; each says its source.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl_rollouts.config_json import read
from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import ConfigError

from .method import Method
from .methods import METHODS

PRESETS = ("smoke", "small", "long", "paper")


def recipe(method: str, preset: str = "paper", dataset: str = "", **changes: Any) -> Any:
    """A method's whole settings.

    Args:
        method: its name.
        preset: `small` (minutes on two cores), `long` (hours) or `paper`.
        dataset: with `paper`, whose published settings; a name like `hopper-medium-v2`.
        **changes: settings instead of the recipe's; of nested ones a mapping,
            `agent={"hidden": (64, 64)}`.

    Raises:
        ConfigError: an unknown method, preset or setting.
    """
    cls = METHODS[method]
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    table = written(cls)
    if preset != "paper" and preset not in table:
        known = ", ".join(name for name in PRESETS if name in table or name == "paper")
        raise ConfigError("preset", preset, f"one of {method}'s: {known}")
    made = read(cls, table.get(preset, {}), f"{method}.toml: {preset}", cls())
    if preset == "paper" and (own := published(table, dataset)):
        made = read(cls, own, f"{method}.toml: {dataset}", made)
    return read(cls, lists(changes), method, made)


def is_published(method: str, dataset: str) -> bool:
    """Whether there are published settings of a method for a dataset."""
    return bool(published(written(METHODS[method]), dataset))


def published(table: Mapping[str, Any], dataset: str) -> Mapping[str, Any]:
    """The settings of a dataset; none where it is of no benchmark that the table has."""
    benchmark, _, name = key_of(dataset).partition(".")
    return table.get(benchmark, {}).get(name, {})


def key_of(dataset: str) -> str:
    """`d4rl.hopper-medium` of `hopper-medium-v2`; what is no benchmark's is in none."""
    stem, _, version = dataset.rpartition("-v")
    known = ("halfcheetah-", "hopper-", "walker2d-", "antmaze-", "kitchen-")
    known += ("pen-", "hammer-", "door-")
    robot, _, quality = dataset.removeprefix("neorl/").lower().partition("-v3-")
    if robot in ("halfcheetah", "hopper", "walker2d") and quality:
        return f"neorl.{robot}-{quality.split('-')[0]}"
    is_d4rl = version.isdigit() and stem.startswith(known)
    return f"d4rl.{stem}" if is_d4rl else f".{dataset}"


def written(cls: type) -> Mapping[str, Any]:
    """A method's file of recipes, beside its module, on top of the presets of its bases."""
    tables: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        name = base.__dict__.get("name")
        if not isinstance(name, str):
            continue
        file = Path(inspect.getfile(base)).with_name(f"{name}.toml")
        if file.is_file():
            presets = {key: value for key, value in tables.items() if key in PRESETS}
            tables = _over(presets, _nulls(tomllib.loads(file.read_text("utf-8"))))
    return tables


def _over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(base.get(name), Mapping)
        merged[name] = _over(base[name], value) if both else value
    return merged


def _nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _nulls(item) for key, item in value.items()}
    return None if value == "null" else value  # TOML has no word for None


def lists(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as files have them."""
    return {
        name: lists(value) if isinstance(value, Mapping)
        else list(value) if isinstance(value, tuple) else value
        for name, value in changes.items()
    }  # fmt: skip


def method_of(method: Any, preset: str | None, dataset: str, **changes: Any) -> tuple[Method, str]:
    """The settings that `train` was given, by name and preset or as they are, and what they are
    called.

    Raises:
        ConfigError: a preset beside settings, which have all they need.
    """
    if isinstance(method, str):
        preset = preset or "small"
        return recipe(method, preset, dataset, **changes), preset
    if preset is not None:
        name = getattr(method, "name", "method")
        expected = "none beside settings, which say everything"
        raise ConfigError("preset", preset, expected, f'recipe("{name}", "{preset}", ...)')
    method = method() if isinstance(method, type) else method
    return recipe_like(method, changes), "own settings"


def recipe_like(method: Method, changes: Mapping[str, Any]) -> Method:
    """The same settings with some changed."""
    return read(type(method), lists(changes), method.name, method)
