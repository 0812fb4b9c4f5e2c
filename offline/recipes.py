"""Whole settings of a method: small ones, long ones, and those that were published.

    recipe("mopo", "paper", "hopper-medium-v2")      # a Mopo with length 5 and penalty 5
    recipe("cql", "small", weight=10.0)

A class's defaults are the published general settings. A file beside its module, `mopo.toml`, has
`[smoke]`, `[small]` and `[long]` on top of them, and `[BENCHMARK.DATASET]` for `paper`, with its
`source` and what `differs` from it. A subclass has the presets of its bases (`model_based.toml`).
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from jaxrl_rollouts.config_json import read
from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.configs import unknown as no_such
from jaxrl_rollouts.errors import ConfigError

from .data import Dataset
from .method import Method
from .methods import METHODS, MethodName

Preset = Literal["smoke", "small", "long", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
OWN = "own settings"  # the preset of settings that were given whole
NULL = "null"  # None in a file of recipes: TOML has no word for it


@dataclass(frozen=True)
class Looks:
    """Seeds and evaluations of a preset."""

    seeds: int
    evaluations: int
    episodes: int


LOOKS: Mapping[str, Looks] = {
    "smoke": Looks(2, 1, 2),
    "small": Looks(2, 5, 10),
    "long": Looks(4, 20, 20),
    "paper": Looks(5, 60, 10),
    OWN: Looks(2, 5, 10),
}
# Widths of D4RL's observations and actions, by the first word of a dataset's name.
WIDTHS: Mapping[str, tuple[int, int]] = {
    "halfcheetah": (17, 6),
    "hopper": (11, 3),
    "walker2d": (17, 6),
    "antmaze": (29, 8),
    "pen": (45, 24),
    "door": (39, 28),
    "hammer": (46, 26),
    "relocate": (39, 30),
    "kitchen": (60, 9),
    "maze2d": (4, 2),
}
# NeoRL's observations begin with the position along x, which Gym's leave out.
NEORL_WIDTHS: Mapping[str, tuple[int, int]] = {
    "halfcheetah": (18, 6),
    "hopper": (12, 3),
    "walker2d": (18, 6),
}
D4RL_NAME = re.compile(r"([a-z0-9]+)-([a-z-]+)-v\d+")
NEORL_NAME = re.compile(r"(?:neorl/)?(halfcheetah|hopper|walker2d)-v3-(low|medium|high)\b.*")
# One row serves all tasks of a dataset, `cube-single-play-singletask-task2-v0` as well.
OGBENCH_NAME = re.compile(
    r"((?:antmaze|humanoidmaze|antsoccer)-[a-z]+-navigate|(?:cube-[a-z]+|scene|puzzle-\dx\d)-play)"
    r"(?:-singletask)?(?:-task\d)?-v\d+"
)


def recipe(
    method: MethodName,
    preset: Preset = "paper",
    dataset: Dataset | str | None = None,
    **changes: object,
) -> Method:
    """A method's whole settings.

    Args:
        method: its name.
        preset: `smoke` (shows that it runs), `small` (minutes on two cores), `long` (hours) or
            `paper`.
        dataset: with `paper`, the one whose published settings are taken.
        **changes: settings instead of the recipe's; of nested ones a mapping,
            `agent={"hidden_dims": (64, 64)}`; another agent by its name, `agent={"cql": {}}`.

    Raises:
        ConfigError: an unknown method, preset or setting.
    """
    cls = METHODS[method]
    if preset not in PRESETS:
        raise no_such("preset", preset, PRESETS)
    made, found = cls(), preset == "paper"
    for where, tables in files_of(cls):
        own = where == f"{cls.name}.toml"
        if preset in tables and (own or preset != "paper"):
            table = tables[preset] if own else _known(tables[preset], made)
            made, found = read(cls, table, f"{where}: {preset}", made), True
    if not found:
        hint = f"write it in {cls.name}.toml beside the class"
        raise ConfigError("preset", preset, f"one that {method} has", hint)
    if preset == "paper" and (row := published(cls, dataset)):
        made = read(cls, row, f"{cls.name}.toml: {dataset_name(dataset)}", made)
    return changed(made, changes)


def changed(method: Method, changes: Mapping[str, object]) -> Method:
    """The same settings with some changed; nested ones by a mapping."""
    return read(type(method), _lists(changes), method.name, method) if changes else method


def benchmark_of(dataset: Dataset | str | None) -> tuple[str, str] | None:
    """The benchmark that a dataset is of and its name there: `("d4rl", "hopper-medium")`.

    A dataset is known by its format and its widths as well as by its name (OGBench's by its
    format); what `data make` makes is of none. Of a name alone the widths are not checked.
    """
    name = dataset_name(dataset)
    known, widths = None, None
    if match := OGBENCH_NAME.fullmatch(name):
        known, kind = ("ogbench", match[1]), "ogbench"
    elif match := NEORL_NAME.fullmatch(name.lower()):
        known, widths, kind = ("neorl", "-".join(match.groups())), NEORL_WIDTHS[match[1]], "neorl"
    elif (match := D4RL_NAME.fullmatch(name)) and match[1] in WIDTHS:
        known, widths, kind = ("d4rl", f"{match[1]}-{match[2]}"), WIDTHS[match[1]], "d4rl"
    if known is None or not isinstance(dataset, Dataset):
        return known
    rows = dataset.transitions
    fits = widths in (None, (rows.observations.shape[1], rows.actions.shape[1]))
    return known if fits and dataset.attributes.get("format") == kind else None


def dataset_name(dataset: Dataset | str | None) -> str:
    """A dataset's name; "" for none."""
    return dataset.name if isinstance(dataset, Dataset) else dataset or ""


def published(cls: type[Method], dataset: Dataset | str | None) -> Mapping[str, Any]:
    """The published settings of a method for a dataset; none where it has no row."""
    benchmark = benchmark_of(dataset)
    if benchmark is None:
        return {}
    tables = dict(files_of(cls)).get(f"{cls.name}.toml", {})
    return tables.get(benchmark[0], {}).get(benchmark[1], {})


def differences(method: Method, dataset: Dataset | str | None) -> tuple[str, ...]:
    """What differs from the paper, a line each: settings, and what the code itself does."""
    cls = type(method)
    paper = changed(cls(), published(cls, dataset))
    theirs, ours = settings(paper), settings(method)
    lines = [
        f"{name} {_word(ours.get(name))} (paper {_word(theirs.get(name))})"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    ]
    own = dict(files_of(cls)).get(f"{cls.name}.toml", {})
    return (*lines, *own.get("differs", ()))


def source_of(cls: type[Method]) -> str:
    """Where a method's published settings are from; "" where its file does not say."""
    return dict(files_of(cls)).get(f"{cls.name}.toml", {}).get("source", "")


def files_of(cls: type) -> list[tuple[str, Mapping[str, Any]]]:
    """Files of recipes of a method, by name, those of its bases first."""
    found = []
    for base in reversed(cls.__mro__):
        if not issubclass(base, Method):
            continue
        try:
            module = Path(inspect.getfile(base))
        except (OSError, TypeError):  # a class of a notebook
            continue
        # A base without a name, as ModelBased, has the file of its class: model_based.toml.
        of_class = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", base.__name__).lower()
        file = module.with_name(f"{base.__dict__.get('name', of_class)}.toml")
        if file.is_file():
            found.append((file.name, _nulls(tomllib.loads(file.read_text("utf-8")))))
    return found


def _known(table: Mapping[str, Any], method: Method) -> Mapping[str, Any]:
    """A table of a base, without what other agents and world models than its own do not have."""
    kept = dict(table)
    for part in {"agent", "world"} & set(table):
        own = getattr(method, part, None)
        if is_dataclass(own):
            names = {f.name for f in fields(own)}
            kept[part] = {k: v for k, v in table[part].items() if k in names}
    return kept


def _nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _nulls(item) for key, item in value.items()}
    return None if isinstance(value, str) and value == NULL else value


def _lists(value: Any) -> Any:
    """Tuples as lists, as files have them, in a mapping and in those inside it."""
    if isinstance(value, Mapping):
        return {name: _lists(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    return f"{value:,}" if type(value) is int else f"{value}"
