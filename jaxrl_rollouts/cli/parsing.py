"""Reading arguments with tyro, with errors in one line."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tyro

from ..configs import did_you_mean, unknown
from ..errors import ConfigError, UserError

Result = TypeVar("Result")

_CHOICE = re.compile(r"invalid choice '(.*?)' for argument '(\S+?)'\. Expected one of \((.*?)\)")
_VALUE = re.compile(r"Error parsing (--\S+?):")
_MISSING = re.compile(r"Missing value for argument '(\S+?)'\. Expected (.+?)\.")
_STRAY = re.compile(r"Unrecognized options: (\S+?),? ")
_REQUIRED = re.compile(r"Missing from (.*?): (\S+)")


def call(
    commands: Mapping[str, Callable[..., None]] | Callable[..., None],
    arguments: Sequence[str],
    prog: str,
    description: str = "",
) -> None:
    """Read the arguments of a function, or of a table of subcommands, and call what was meant."""
    arguments = list(arguments)
    if isinstance(commands, Mapping):
        arguments = arguments or ["--help"]
        first = arguments[0]
        if not first.startswith("-") and first not in commands:
            raise unknown(prog, first, commands)
        bound: Any = {name: _bound(function) for name, function in commands.items()}
        parse: Any = functools.partial(
            tyro.extras.subcommand_cli_from_dict, bound, prog=prog, description=description
        )
        head = [first] if first in commands else []
    else:
        parse, head = functools.partial(tyro.cli, _bound(commands), prog=prog), []
    try:
        command = read(lambda: parse(args=arguments), arguments, prog)
    except UserError:
        # A mistyped option may have been taken for something else: look for one first.
        known = _options_in_help(lambda: parse(args=[*head, "--help"]))
        for argument in filter(is_option, arguments):
            if (name := argument.partition("=")[0].replace("_", "-")) not in known:
                raise no_such_option(name, known, " ".join([prog, *head])) from None
        raise
    command()


def _bound(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The function with its call put off, so that what it prints is not taken for an error."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return bind


def _options_in_help(ask: Callable[[], object]) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        ask()
    return re.findall(r"(?<![\w-])--?[a-z][\w.-]*", printed.getvalue())


def read(parse: Callable[[], Result], arguments: Sequence[str], prog: str) -> Result:
    """What `parse` makes of arguments; tyro's boxes become errors of one line.

    Raises:
        ConfigError, UserError: what tyro found wrong.
        SystemExit: help was requested.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return parse()
    except SystemExit as stop:
        if not stop.code:
            raise
        raise _error(printed.getvalue(), arguments, prog) from None


def _error(box: str, arguments: Sequence[str], prog: str) -> UserError:
    lines = [line.strip("│╭╮╰╯─ ") for line in box.splitlines()]
    text = " ".join(line for line in lines if line)
    if match := _CHOICE.search(text):
        found, name, choices = match.groups()
        return unknown(name, found, re.findall(r"'(.*?)'", choices))
    if match := _VALUE.search(text):
        name = match[1]
        shape = next((line for line in lines if line.startswith(f"{name} ")), "")
        expected = shape.removeprefix(name).strip() or "another value"
        expected += ", with spaces between" if "..." in expected else ""
        return ConfigError(name, " ".join(values(arguments, name)), expected)
    if match := _MISSING.search(text):
        count = match[2].removesuffix("s") if match[2].startswith("1 ") else match[2]
        return ConfigError(match[1], "nothing", count)
    if match := _REQUIRED.search(text):
        shape = " ".join(next(line for line in lines if line.startswith(match[2])).split()[:2])
        return ConfigError(match[1], "nothing", shape if shape.startswith("-") else match[2])
    if match := _STRAY.search(text + " "):
        return no_such_option(match[1], [], prog)
    return UserError(f"{prog}: {text.partition('For full helptext')[0].strip()}")


def no_such_option(found: str, known: Iterable[str], prog: str) -> ConfigError:
    """The error of an option that is none of the `known` ones, with the closest of them."""
    known = list(known)
    last = {name.rpartition(".")[2].lstrip("-"): name for name in reversed(known)}
    if whole := last.get(found.lstrip("-")):  # only the group is missing
        hint = f"did you mean {whole}?"
    else:
        hint = did_you_mean(found, known)
    if not hint and (close := did_you_mean(found.lstrip("-"), last)):
        hint = f"did you mean {last[close.split()[-1].rstrip('?')]}?"
    what = "option" if found.startswith("-") else "argument"
    return ConfigError(what, found, f"what `{prog} --help` shows", hint)


def value_of(arguments: Sequence[str], name: str) -> str | None:
    """The last value given to an option, as `--name value` or `--name=value`."""
    given = values(arguments, name)
    return given[0] if given else None


def values(arguments: Sequence[str], name: str) -> list[str]:
    """All values that follow the last use of an option; `-3` is a value, `-h` is none."""
    found: list[str] = []
    here = False
    for argument in arguments:
        head, equals, rest = argument.partition("=")
        if is_option(argument):
            here = head.replace("_", "-") == name
            found = ([rest] if equals else []) if here else found
        elif here:
            found.append(argument)
    return found


def is_option(argument: str) -> bool:
    """Whether an argument is an option and no value, which negative numbers are."""
    return re.match(r"--?[A-Za-z]", argument) is not None
