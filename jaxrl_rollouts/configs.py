"""Configurations are frozen dataclasses, possibly nested; this module moves them to JSON and back.

Reading is strict, so that a run folder written by another version, or a file edited by hand, says
what is wrong with it rather than training something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigError

Config = TypeVar("Config")

# JSON has no such numbers; strings keep the file readable by strict parsers and lose nothing.
_SPECIAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_RANGE = "range"  # key of a field's metadata
WHOLE = 2**31  # whole numbers are below: sizes are counted in 32 bits


def to_json(config: Any) -> dict[str, Any]:
    """`config` as a dictionary of plain JSON values (tuples become lists, paths strings).

    Raises:
        TypeError: `config` is no dataclass instance, or holds a value JSON cannot carry.
    """
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
        where: where the data come from, for the messages.
        base: has the values of the settings that `data` leaves out; None takes the defaults.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type.
    """
    return _dataclass(cls, data, where, "", base)


def check(config: Any, path: str = "") -> None:
    """Hold `config` and every dataclass inside it to their ranges, then to their `validate()`.

    Ranges are declared with the fields (`number`, `positive`, `step_size`, ...); `validate` is for
    what is between fields. Every number is finite, whole ones fit 32 bits, and a `seed` is not
    negative.

    Args:
        config: a dataclass instance.
        path: what it is called; goes before the names of its settings in messages.

    Raises:
        ConfigError: a setting out of its range, or whatever the `validate` methods raise.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check(value, _join(path, field.name))
    with within(path):
        for field in dataclasses.fields(config):
            undeclared = SEED if field.name == "seed" else Range()
            field.metadata.get(_RANGE, undeclared).check(field.name, getattr(config, field.name))
        validate = getattr(config, "validate", None)
        if callable(validate):
            validate()


@contextlib.contextmanager
def within(path: str) -> Iterator[None]:
    """Put `path` before the names of settings in a `ConfigError`: where they are nested."""
    try:
        yield
    except ConfigError as error:
        if not path:
            raise
        raise error.named(_join(path, error.setting)) from None


def settings(config: Any, path: str = "") -> dict[str, Any]:
    """All settings by dotted name, `{"study.agent.discount": 0.99}`: the leaves of a `config`."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), _join(path, field.name)
        nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
        leaves |= settings(value, name) if nested else {name: value}
    return leaves


def digest(config: Any) -> str:
    """Twelve hex digits that depend on the values of `config` only, not on machine or session."""
    text = json.dumps(to_json(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class Range:
    """Which numbers a setting may be; every one of a tuple, and None where its type has it.

    Attributes:
        least, most: ends that belong to it.
        above, below: ends that do not.
        entries: how many a tuple has at least.
        expected: how a message says it; made of the ends where it is left out.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    entries: int = 0
    expected: str = ""

    def check(self, name: str, value: Any) -> None:
        """`ConfigError` for the first number of a setting that is out of range."""
        if isinstance(value, tuple | list):
            if len(value) < self.entries:
                raise ConfigError(name, value, self.expected or "at least one")
            for one in value:
                self.check(name, one)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(name, value, "a finite number")
        if isinstance(value, int) and self.most is None and abs(value) >= WHOLE:
            raise ConfigError(name, value, f"a number below {WHOLE:,}")
        if not (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        ):
            raise ConfigError(name, value, self.expected or self.words())

    def words(self) -> str:
        """`at least 1`, `above 0`, `in [0, 1)`."""
        low = self.least if self.above is None else self.above
        high = self.most if self.below is None else self.below
        if high is None:
            return f"{'at least' if self.above is None else 'above'} {low:g}"
        if low is None:
            return f"{'at most' if self.below is None else 'below'} {high:g}"
        brackets = "[" if self.above is None else "(", "]" if self.below is None else ")"
        return f"in {brackets[0]}{low:g}, {high:g}{brackets[1]}"


# Larger or negative ones would be taken modulo 32 bits: the same numbers under another name.
SEED = Range(least=0, most=2**32 - 1, expected="a whole number from 0 to 4294967295")


def number(default: Any, **ends: Any) -> Any:
    """A field that `check` holds to a `Range`: `penalty: float = number(1.0, least=0)`."""
    return dataclasses.field(default=default, metadata={_RANGE: Range(**ends)})


def positive(default: Any) -> Any:
    """A field of at least 1, or of several numbers that are: `steps: int = positive(3)`."""
    return number(default, least=1)


def layers(default: tuple[int, ...]) -> Any:
    """A field of widths of hidden layers, at least one."""
    return number(default, least=1, entries=1, expected="at least one layer, each at least 1 wide")


def step_size(default: float) -> Any:
    """A field of a learning rate, in (0, 1]."""
    return number(default, above=0, most=1)


def fraction(default: float) -> Any:
    """A field in [0, 1]."""
    return number(default, least=0, most=1)


def at_least_one(config: Any, *names: str) -> None:
    """`ConfigError` for the first of the named settings that is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ConfigError(name, getattr(config, name), "at least 1")


def unknown(setting: str, found: Any, choices: Iterable[str]) -> ConfigError:
    """The error of a name that is none of `choices`."""
    choices = list(choices)
    hint = did_you_mean(str(found), choices)
    return ConfigError(setting, found, "one of " + ", ".join(choices), hint)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A hint with the closest choice, whatever its case, or an empty string."""
    lowered = {choice.lower(): choice for choice in choices}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[close[0]]}?" if close else ""


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
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


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _error(where: str, path: str, found: Any, expected: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{where}: {path}" if path else where, found, expected, hint)


def _dataclass(cls: type, data: Any, where: str, path: str, base: Any = None) -> Any:
    if not isinstance(data, Mapping):
        raise _error(where, path, data, f"an object with the settings of {cls.__name__}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in data:
        if key not in fields:
            raise _unknown_key(cls, str(key), where, path)
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            inner = getattr(base, name, None)
            values[name] = _read(hints[name], data[name], where, _join(path, name), inner)
        elif base is not None:
            values[name] = getattr(base, name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise _error(where, _join(path, name), "nothing", _name(hints[name]))
    return cls(**values)


def _unknown_key(cls: type, key: str, where: str, path: str) -> ConfigError:
    """With the closest setting beside it, else the one deeper down that has this name."""
    names = [f.name for f in dataclasses.fields(cls)]
    deeper = {name.rpartition(".")[2]: name for name in _names(cls)}
    hint = did_you_mean(key, names) or did_you_mean(key, deeper)
    if hint:
        close = hint.removeprefix("did you mean ").removesuffix("?")
        hint = f"did you mean {_join(path, close if close in names else deeper[close])}?"
    return _error(where, _join(path, key), "an unknown setting", "a known one", hint)


def _names(cls: type, path: str = "") -> Iterator[str]:
    """Dotted names of all settings of a dataclass."""
    for name, kind in typing.get_type_hints(cls).items():
        yield _join(path, name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from _names(kind, _join(path, name))


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
        return {k: _read(args[1], v, where, _join(path, str(k))) for k, v in data.items()}
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
