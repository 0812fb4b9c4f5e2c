"""Published settings: the recipes beside the methods against `published.csv`, written apart."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import jaxrl_rollouts.offline

OFFLINE = Path(jaxrl_rollouts.offline.__file__).parent
CSV = Path(__file__).with_name("published.csv")
MODEL_BASED = ("mopo", "mobile", "ravl", "combo", "morel", "rambo", "mobrac", "admpo")
FILES = {
    **{name: f"methods/{name}.toml" for name in MODEL_BASED},
    **{name: f"agents/{name}.toml" for name in ("bc", "sac", "edac", "cql")},
    **{name: f"agents/{name}.toml" for name in ("td3_bc", "iql", "rebrac")},
    **{name: f"agents/{name}.toml" for name in ("fql", "ifql", "td3_awr")},
}
# Their rows are from a specification, which names repository and short commit, and no file.
SPECIFIED = {"morel", "rambo", "mobrac", "admpo", "fql", "ifql", "td3_awr"}
BENCHMARKS = ("paper", "d4rl", "neorl", "ogbench")


class Row(NamedTuple):
    """A published value; `benchmark` is `paper` for what holds for every dataset."""

    method: str
    benchmark: str
    dataset: str
    setting: str
    value: Any
    upstream_file: str
    commit: str


def parsed(text: str) -> Any:
    """A JSON value, or the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def read_csv() -> list[Row]:
    with CSV.open(newline="") as file:
        return [Row(**{**row, "value": parsed(row["value"])}) for row in csv.DictReader(file)]


def table(method: str) -> Mapping[str, Any]:
    return tomllib.loads((OFFLINE / FILES[method]).read_text("utf-8"))


def flat(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """`(dotted name, value)` of nested settings."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def recipes(method: str) -> dict[tuple[str, str, str], Any]:
    """`(benchmark, dataset, setting) -> value` of a method's file."""
    read = table(method)
    return {
        (benchmark, dataset, name): value
        for benchmark in BENCHMARKS[1:]
        for dataset, settings in read.get(benchmark, {}).items()
        for name, value in flat(settings)
    }


PUBLISHED = read_csv()


@pytest.mark.parametrize("method", FILES)
def test_recipes_are_the_published_values(method: str) -> None:
    """Every row of the recipes is in the table with the same value, and the other way round."""
    rows = [row for row in PUBLISHED if row.method == method and row.benchmark != "paper"]
    published = {row[1:4]: row.value for row in rows}
    written = recipes(method)
    assert published.keys() - written.keys() == set()
    assert written.keys() - published.keys() == set()
    assert {
        key: (written[key], published[key]) for key in written if written[key] != published[key]
    } == {}


@pytest.mark.parametrize("method", FILES)
def test_recipes_have_a_source_and_say_what_differs(method: str) -> None:
    read = table(method)
    assert read["source"]
    assert all(isinstance(line, str) and line for line in read["differs"])


def test_a_value_is_published_once_and_by_a_file_at_a_commit() -> None:
    keys = [row[:4] for row in PUBLISHED]
    assert len(keys) == len(set(keys))
    assert {row.method for row in PUBLISHED} == set(FILES)
    assert {row.benchmark for row in PUBLISHED} == set(BENCHMARKS)
    for row in PUBLISHED:
        short = row.method in SPECIFIED
        file = "" if short else r":[\w./-]+\.(py|md|yaml)"
        assert re.fullmatch(rf"[\w.-]+/[\w.-]+{file}", row.upstream_file), row
        assert re.fullmatch(rf"[0-9a-f]{{{7 if short else 12}}}", row.commit), row
        assert bool(row.dataset) == (row.benchmark != "paper"), row


@pytest.mark.parametrize("method", FILES)
def test_classes_have_the_published_settings(method: str) -> None:
    default = made_by_name(method)()
    wanted = {row.setting for row in PUBLISHED if row.method == method}
    assert {name for name in wanted if not has(default, name)} == set()


@pytest.mark.parametrize("method", FILES)
def test_defaults_are_the_published_general_settings(method: str) -> None:
    default = made_by_name(method)()
    rows = [row for row in PUBLISHED if row[:2] == (method, "paper")]
    found = {row.setting: plain(at(default, row.setting)) for row in rows}
    assert found == {row.setting: row.value for row in rows}


@pytest.mark.parametrize("method", FILES)
def test_a_recipe_has_the_published_values(method: str) -> None:
    from jaxrl_rollouts.offline.recipes import recipe

    made_by_name(method)
    of_all = {row.setting: row.value for row in PUBLISHED if row[:2] == (method, "paper")}
    rows = [row for row in PUBLISHED if row.method == method and row.dataset]
    for key in sorted({row[1:3] for row in rows}):
        own = {row.setting: row.value for row in rows if row[1:3] == key}
        made = recipe(method, "paper", name_of(*key))
        for name, value in {**of_all, **own}.items():
            assert plain(at(made, name)) == value, (key, name)


def made_by_name(method: str) -> type:
    from jaxrl_rollouts.offline.methods import METHODS

    if method not in METHODS:
        pytest.skip(f"{method} is no method of the registry yet")
    return METHODS[method]


def name_of(benchmark: str, dataset: str) -> str:
    """A dataset's name as its benchmark has it: `hopper-medium-v2`, `hopper-v3-low`."""
    if benchmark in (versions := {"d4rl": "v2", "ogbench": "v0"}):
        return f"{dataset}-{versions[benchmark]}"
    robot, _, level = dataset.partition("-")
    return f"{robot}-v3-{level}"


def at(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings


def has(settings: Any, name: str) -> bool:
    """Whether a dotted name is one of nested settings."""
    for part in name.split("."):
        if not is_dataclass(settings) or part not in {field.name for field in fields(settings)}:
            return False
        settings = getattr(settings, part)
    return True


def plain(value: Any) -> Any:
    """Tuples as lists, as files have them."""
    return list(value) if isinstance(value, tuple) else value
