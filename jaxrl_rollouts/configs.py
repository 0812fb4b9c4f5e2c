"""Configurations: frozen dataclasses, possibly nested, validated by `check`.

What a setting may be stands with its field: its type, the choices of a `Literal`, and a range
(`number`, `positive`, `step_size`, ...). `config_json` writes and reads them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import numbers
import types
import typing
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from .errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_RANGE, _COEFFICIENT, REGISTRY, FLAT = "range", "coefficient", "registry", "flat"  # of metadata
# Settings by the names they had, each with the one that it has where a class has that only.
EARLIER = {
    "critic_hidden": "critic_hidden_dims",
    "delay": "policy_freq",
    "hidden": "hidden_dims",
    "jumps": "num_steps",
    "noise": "policy_noise",
    "normalise": "normalize_obs",
    "rate": "lr",
    "steps": "num_steps",
    "updates": "steps",
}
WHOLE = 2**31  # whole numbers are below: sizes are counted in 32 bits


def check(config: Any, path: str = "") -> None:
    """Hold `config` and every dataclass inside it to their types and ranges, then to `validate()`.

    Ranges are declared with the fields (`number`, `positive`, `step_size`, ...); `validate` checks
    conditions that involve several fields. A `Literal` is one of its choices; every number is
    finite, whole ones fit 32 bits, and a `seed` is not negative.

    Args:
        config: a dataclass instance.
        path: its name, a prefix of the names of its settings in messages.
    """
    for field in dataclasses.fields(config):
        for name, nested in _nested(field.name, getattr(config, field.name)):
            check(nested, joined(path, name))
    kinds = _kinds(type(config))
    with within(path):
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            _check_kind(field.name, kinds.get(field.name, Any), value)
            undeclared = SEED if field.name == "seed" else Range()
            field.metadata.get(_RANGE, undeclared).check(field.name, value)
        validate = getattr(config, "validate", None)
        if callable(validate):
            validate()


def _nested(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every dataclass that a setting is or holds, in a mapping or a tuple, with its name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield name, value
    elif isinstance(value, Mapping):
        for key, own in value.items():
            yield from _nested(joined(name, str(key)), own)
    elif isinstance(value, tuple | list):
        for i, own in enumerate(value):
            yield from _nested(f"{name}[{i}]", own)


@functools.cache
def _kinds(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields; none where they name something local to a function."""
    try:
        return typing.get_type_hints(cls)
    except NameError:
        return {}


# What a number, a switch or a text may be given as: numpy's numbers as well.
_SCALARS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((numbers.Integral,), "a whole number"),
    float: ((numbers.Real,), "a number"),
    str: ((str,), "a text"),
}


def _check_kind(name: str, kind: Any, value: Any) -> None:
    """`ConfigError` for a scalar of another type, and for none of a `Literal`'s choices; alone, in
    a tuple, or beside None. Other types are not checked here."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        others = [one for one in args if one is not types.NoneType]
        if value is not None and len(others) == 1:
            _check_kind(name, others[0], value)
    elif typing.get_origin(kind) is typing.Literal:
        if value not in args:
            raise unknown(name, value, map(str, args))
    elif typing.get_origin(kind) is tuple and isinstance(value, tuple):
        each = args[:1] * len(value) if args[-1:] == (Ellipsis,) else args
        for one, own in zip(each, value, strict=False):
            _check_kind(name, one, own)
    elif kind in _SCALARS:
        types_, expected = _SCALARS[kind]
        # bool is an int to Python, not to a reader of configurations.
        if not isinstance(value, types_) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(name, value, expected)


@contextlib.contextmanager
def within(path: str) -> Iterator[None]:
    """Put `path` before the names of settings in a `ConfigError`: where they are nested."""
    try:
        yield
    except ConfigError as error:
        if not path:
            raise
        raise error.named(joined(path, error.setting)) from None


def settings(config: Any, path: str = "") -> dict[str, Any]:
    """All settings by dotted name, `{"method.agent.discount": 0.99}`: the leaves of a `config`."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), joined(path, field.name)
        nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
        leaves |= settings(value, name) if nested else {name: value}
    return leaves


@dataclasses.dataclass(frozen=True)
class Range:
    """Which numbers a setting may be; every one of a tuple, and None where its type has it.

    Attributes:
        least, most: ends that belong to it.
        above, below: ends that do not.
        entries: least number of entries of a tuple.
        expected: its wording in messages; by default made from the bounds.
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


def layers(default: tuple[int, ...] | None) -> Any:
    """A field of widths of hidden layers, at least one."""
    return number(default, least=1, entries=1, expected="at least one layer, each at least 1 wide")


def step_size(default: float) -> Any:
    """A field of a learning rate, in (0, 1]."""
    return number(default, above=0, most=1)


def fraction(default: float) -> Any:
    """A field in [0, 1]."""
    return number(default, least=0, most=1)


def coefficient(default: float, **ends: Any) -> Any:
    """A number that can be data of the compiled program and no constant of it: all values share
    what is compiled, and a sweep over it is a `vmap`. `penalty: float = coefficient(1.0, least=0)`.
    Nothing may branch on it in Python."""
    metadata = {_RANGE: Range(**ends), _COEFFICIENT: True}
    return dataclasses.field(default=default, metadata=metadata)


def coefficients(config: Any) -> dict[str, float]:
    """The `coefficient` fields of a dataclass, by name."""
    fields = dataclasses.fields(config)
    return {f.name: getattr(config, f.name) for f in fields if f.metadata.get(_COEFFICIENT)}


def columns(config: Any, arms: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Values of the coefficients in each of some settings, `[arms]`; those not named are the
    configuration's.

    Raises:
        ConfigError: a setting that is no coefficient, or a value out of range.
    """
    own = coefficients(config)
    for arm in arms:
        for name in arm:
            if name not in own:
                raise unknown("sweep", name, own)
        check(dataclasses.replace(config, **arm))
    return {name: [float(arm.get(name, own[name])) for arm in arms] for name in own}


def chosen(registry: Any, default: Any, *, flat: bool = False) -> Any:
    """A field whose value is the settings of one of a `Registry`; files say `{"name": {...}}`.

    Args:
        registry: the choices.
        default: makes the value it has unless one is chosen.
        flat: on the command line its settings are options without the field's name before them.
    """
    metadata = {REGISTRY: registry, FLAT: flat}
    return dataclasses.field(default_factory=default, metadata=metadata)


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


def current(name: str, known: Container[str]) -> str:
    """The name that a setting has now among the `known` ones, where it is an earlier one."""
    new = EARLIER.get(name, name)
    return new if name not in known and new in known else name


def joined(path: str, name: str) -> str:
    """The dotted name of a setting below `path`."""
    return f"{path}.{name}" if path else name


def renamed(**names: str) -> Callable[[F], F]:
    """Let a function take keywords under the names they had, `old="new"`, with a warning."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def call(*given: Any, **options: Any) -> Any:
            for old, new in names.items():
                if old in options:
                    what = f"{function.__name__}: {old} is now called {new}"
                    warnings.warn(what, FutureWarning, stacklevel=2)
                    options[new] = options.pop(old)
            return function(*given, **options)

        made: Any = call
        return made

    return wrap
