"""The settings of a configuration as options: what each of them means."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Annotated, Any

import docstring_parser
import tyro

from ..configs import FLAT, REGISTRY, joined

# What the values of a list look like on the command line, by the type of one.
EXAMPLES = {int: "64 64", float: "0.5 1.0", str: "NAME NAME"}


@functools.cache
def descriptions(cls: type) -> Mapping[str, str]:
    """What each field of a dataclass is: `Attributes:` of its docstring.

    A subclass also has the descriptions of its bases.
    """
    texts: dict[str, str] = {}
    for base in (c for c in reversed(cls.__mro__) if dataclasses.is_dataclass(c)):
        for parameter in docstring_parser.parse(base.__doc__ or "").params:
            for name in parameter.arg_name.split(","):
                texts[name.strip()] = " ".join((parameter.description or "").split())
    return texts


def shown(config: Any) -> Any:
    """A frozen dataclass described for tyro; nested ones become groups of options."""
    cls = type(config)
    hints, texts = typing.get_type_hints(cls, include_extras=True), descriptions(cls)
    specs = []
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), hints[field.name]
        text = texts.get(field.name, "")
        if dataclasses.is_dataclass(value):
            value = shown(value)
            if not dataclasses.fields(value):
                continue
            kind, text = type(value), text or (kind.__doc__ or "").split("\n\n")[0]
        flat = bool(field.metadata.get(FLAT))
        more: dict[str, Any] = _help(kind, text, value) | ({"name": ""} if flat else {})
        option = tyro.conf.arg(**more)
        default = dataclasses.field(
            default_factory=lambda value=value: value, metadata={FLAT: flat}
        )
        specs.append((field.name, Annotated[kind, option], default))
    made = dataclasses.make_dataclass(cls.__name__, specs, frozen=True)
    made.__doc__ = (cls.__doc__ or "").split("\n\n")[0]
    return made()


def _help(kind: Any, text: str, value: Any) -> dict[str, Any]:
    """What tyro should say of an option; a list shows what several values look like."""
    kind = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    args = typing.get_args(kind)
    if typing.get_origin(kind) is not tuple or args[-1] is not Ellipsis or args[0] not in EXAMPLES:
        return {"help": text}
    example = " ".join(map(str, value)) if len(value) > 1 else EXAMPLES[args[0]]
    what = {int: "INT", float: "FLOAT", str: "STR"}[args[0]]
    text = f"{text.rstrip('.')}; several" if text else "Several"
    return {"help": f"{text} with spaces between: {example}", "metavar": f"{what} {what} ..."}


def merged(config: Any, parsed: Any) -> Any:
    """`config` with the values that `shown` of it was given on the command line."""
    changes = {}
    for field in dataclasses.fields(parsed):
        value, before = getattr(parsed, field.name), getattr(config, field.name)
        nested = dataclasses.is_dataclass(value) and type(value) is not type(before)
        changes[field.name] = merged(before, value) if nested else value
    return dataclasses.replace(config, **changes)


def names_of_choices(config: Any, path: str = "") -> dict[str, str]:
    """Of settings that are one of a registry, also inside others: dotted name as it is typed -> the
    name of what is chosen."""
    names: dict[str, str] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), joined(path, field.name)
        if REGISTRY in field.metadata:
            names[name] = field.metadata[REGISTRY].name_of(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names |= names_of_choices(value, path if field.metadata.get(FLAT) else name)
    return names


def choices_of(config: Any, path: str = "") -> dict[str, list[str]]:
    """What may be chosen of each of `names_of_choices`."""
    found: dict[str, list[str]] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), joined(path, field.name)
        if REGISTRY in field.metadata:
            found[name] = list(field.metadata[REGISTRY])
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found |= choices_of(value, path if field.metadata.get(FLAT) else name)
    return found


def positional(cls: type) -> set[str]:
    """Settings of a dataclass that are typed without their names."""
    marker = typing.get_args(tyro.conf.Positional[int])[1]
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name for name, kind in hints.items() if marker in typing.get_args(kind)[1:]}


def option(name: str) -> str:
    """A setting's dotted name as it is typed: `--study.agent.initial-alpha`."""
    return "--" + name.replace("_", "-")


def options(shown_config: Any, path: str = "") -> dict[str, Any]:
    """The options of what `shown` made, as typed: of what type each is."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(shown_config):
        value, name = getattr(shown_config, field.name), f"{path}.{field.name}".lstrip(".")
        if dataclasses.is_dataclass(value):
            found |= options(value, path if field.metadata.get(FLAT) else name)
            continue
        found[option(name)] = kind = typing.get_args(field.type)[0]
        if kind is bool:
            group, _, last = name.rpartition(".")
            found[option(f"{group}.no_{last}".lstrip("."))] = bool
    return found
