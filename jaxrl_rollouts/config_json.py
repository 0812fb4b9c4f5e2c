"""Configurations to JSON and back.

Reading is strict, so that a run folder written by another version, or a file edited by hand, says
what is wrong with it rather than training something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .configs import REGISTRY, check, current, did_you_mean, joined
from .errors import ConfigError

Config = TypeVar("Config")

# JSON has no such numbers; strings keep the file readable by strict parsers and lose nothing.
_SPECIAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def to_json(config: Any) -> dict[str, Any]:
    """`config` as a dictionary of plain JSON values (tuples become lists, paths strings)."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"config: found {type(config).__name__}, expected a dataclass instance")
    return _plain(config)


def from_json(cls: type[Config], data: Any, where: str = "config") -> Config:
    """Build a `cls` from what `to_json` wrote, and check it: `read`, then `check`."""
    config = read(cls, data, where)
    check(config)
    return config


def read(cls: type[Config], data: Any, where: str = "config", base: Config | None = None) -> Config:
    """Build a `cls` from JSON data, without checking its ranges.

    Args:
        cls: a dataclass; fields may be nested dataclasses, tuples, lists, mappings, Literals,
            Optionals and unions of those.
        data: the parsed JSON.
        where: source of the data, for messages.
        base: has the values of the settings that `data` leaves out; None takes the defaults.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type.
    """
    return _dataclass(cls, data, where, "", base)


@contextlib.contextmanager
def earlier_version(instead: str) -> Iterator[None]:
    """Unreadable settings are an earlier version's: the `ConfigError` states what to do."""
    try:
        yield
    except ConfigError as error:
        hint = f"settings were renamed since it was written: {instead}"
        hint = f"{error.hint} {hint}" if error.hint else hint
        raise ConfigError(error.setting, error.found, error.expected, hint) from None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _tagged(f, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"config: found a {type(value).__name__}, which JSON cannot carry")


def _tagged(field: dataclasses.Field, value: Any) -> Any:
    """A setting's value, with its name where it is one of a registry."""
    registry = field.metadata.get(REGISTRY)
    return _plain(value) if registry is None else {registry.name_of(value): _plain(value)}


def _one_of(registry: Any, data: Any, where: str, path: str, base: Any) -> Any:
    """`{"name": {...}}` as settings, or plain settings for one of the kind that `base` has; what is
    left out stays as in `base` where it is of that kind."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return registry.name_of(data) and data
    expected = f'{{"NAME": settings}} of one of {", ".join(registry)}'
    if not isinstance(data, Mapping):
        raise _error(where, path, data, expected)
    cls, inner = type(base), data
    own = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    if len(data) == 1 and isinstance(next(iter(data.values())), Mapping) and not own & set(data):
        ((name, inner),) = data.items()
        cls = registry[name]
    elif base is None:
        raise _error(where, path, sorted(data), expected)
    if base is not None and type(base) is not cls:
        base = _carried(cls, base)
    return _dataclass(cls, inner, where, path, base)


def _carried(cls: type, base: Any) -> Any:
    """Settings of another kind, with what was changed in `base` and means the same here."""
    there, here = typing.get_type_hints(type(base)), typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}
    kept = {}
    for field in dataclasses.fields(base):
        value, made = getattr(base, field.name), field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        same = field.name in known and there[field.name] == here[field.name]
        if same and value != default:
            kept[field.name] = value
    return cls(**kept)


def _error(where: str, path: str, found: Any, expected: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{where}: {path}" if path else where, found, expected, hint)


def _dataclass(cls: type, data: Any, where: str, path: str, base: Any = None) -> Any:
    if not isinstance(data, Mapping):
        raise _error(where, path, data, f"an object with the settings of {cls.__name__}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    # A file of an earlier version stays readable; a setting under both names is an error.
    renamed = {key: current(str(key), fields) for key in data}
    data = {key if renamed[key] in data else renamed[key]: data[key] for key in data}
    for key in data:
        if key not in fields:
            raise _unknown_key(cls, str(key), where, path)
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            inner = getattr(base, name, None)
            if REGISTRY in field.metadata:
                registry = field.metadata[REGISTRY]
                values[name] = _one_of(registry, data[name], where, joined(path, name), inner)
                continue
            values[name] = _read(hints[name], data[name], where, joined(path, name), inner)
        elif base is not None:
            values[name] = getattr(base, name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise _error(where, joined(path, name), "nothing", _name(hints[name]))
    return cls(**values)


def _unknown_key(cls: type, key: str, where: str, path: str) -> ConfigError:
    """With the closest setting beside it, else the one deeper down that has this name."""
    names = [f.name for f in dataclasses.fields(cls)]
    deeper = {name.rpartition(".")[2]: name for name in _names(cls)}
    hint = did_you_mean(key, names) or did_you_mean(key, deeper)
    if hint:
        close = hint.removeprefix("did you mean ").removesuffix("?")
        hint = f"did you mean {joined(path, close if close in names else deeper[close])}?"
    return _error(where, joined(path, key), "an unknown setting", "a known one", hint)


def _names(cls: type, path: str = "") -> Iterator[str]:
    """Dotted names of all settings of a dataclass."""
    for name, kind in typing.get_type_hints(cls).items():
        yield joined(path, name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from _names(kind, joined(path, name))


def _read(kind: Any, data: Any, where: str, path: str, base: Any = None) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin is typing.Literal:
        if any(data == choice and type(data) is type(choice) for choice in args):
            return data
        choices = [str(choice) for choice in args]
        hint = did_you_mean(data, choices) if isinstance(data, str) else ""
        raise _error(where, path, data, "one of " + ", ".join(choices), hint)
    if origin in (typing.Union, types.UnionType):
        return _union(kind, args, data, where, path, base)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, data, where, path, base if isinstance(base, kind) else None)
    if origin in (tuple, list):
        return _sequence(kind, origin, args, data, where, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise _error(where, path, data, _name(kind))
        return {k: _read(args[1], v, where, joined(path, str(k))) for k, v in data.items()}
    return _scalar(kind, data, where, path)


def _union(kind: Any, args: tuple[Any, ...], data: Any, where: str, path: str, base: Any) -> Any:
    errors = []
    for choice in args:
        try:
            return _read(choice, data, where, path, base)
        except ConfigError as error:
            errors.append((choice, error))
    # `Optional[X]` and one dataclass among scalars: the detailed message of X says more.
    detailed = [e for c, e in errors if dataclasses.is_dataclass(c) and isinstance(data, Mapping)]
    raise detailed[0] if len(detailed) == 1 else _error(where, path, data, _name(kind))


def _sequence(kind: Any, origin: Any, args: tuple, data: Any, where: str, path: str) -> Any:
    if not isinstance(data, list | tuple):
        raise _error(where, path, data, _name(kind))
    if origin is list or (len(args) == 2 and args[1] is Ellipsis):
        kinds = [args[0]] * len(data)
    elif len(args) == len(data):
        kinds = list(args)
    else:
        raise _error(where, path, data, f"{len(args)} values")
    items = [
        _read(k, v, where, f"{path}[{i}]") for i, (k, v) in enumerate(zip(kinds, data, strict=True))
    ]
    return origin(items)


def _scalar(kind: Any, data: Any, where: str, path: str) -> Any:
    if kind is type(None) and data is None:
        return None
    if kind is Path and isinstance(data, str):
        return Path(data)
    if kind is float and isinstance(data, str) and data in _SPECIAL:
        return _SPECIAL[data]
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    # bool is an int to Python, not to a reader of configurations.
    if kind in (bool, int, str) and type(data) is kind:
        return data
    raise _error(where, path, data, _name(kind))


def _name(kind: Any) -> str:
    """The type as one would write it: `int`, `tuple[int, ...]`, `float or None`."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_name(arg) for arg in typing.get_args(kind))
    if kind is type(None):
        return "null"
    if typing.get_origin(kind) is None and isinstance(kind, type):
        return kind.__name__
    return str(kind).replace("typing.", "")
